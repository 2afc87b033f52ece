// Ghosts: tensors that have sizes, strides, a type and a storage of so many bytes, but no memory.
//
//   const ShapesOnly shapes;                    // while it stands, on this thread
//   Net net(1'000'000'000'000);                 // constructed, initialized: kilobytes
//   net.forward(x).sum().backward();            // sizes and types of all that a run makes
//   net.weight.sum().item();                    // throws an epl::Error: there is nothing to read
//
// A ghost is an ordinary tensor of the CPU, and not one of LibTorch's Meta device: its device(),
// the thread that autograd runs backward on, what shares its storage and what a scope made are as
// in a real run, so that a program, and the recorder, need not know. It carries the key of the
// dispatcher's hook (handler.cc): no kernel is ever given its null pointer, with or without a
// ShapesOnly.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "capture/null_read.h"

namespace epl {

bool is_ghost(const at::Tensor& tensor);  // a sparse tensor is one where its parts are
at::Tensor make_ghost(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype);
at::Tensor make_ghost_like(const at::Tensor& tensor);     // at the same place of as large a storage
at::Tensor make_ghost_storage(const at::Tensor& tensor);  // all of as large a storage

// The bytes of all ghosts that were made and are alive. A real tensor that became one does not
// count.
int64_t bytes_of_ghosts();

// What a number is that the program reads from a ghost.
enum class ReadBack : uint8_t { kError, kZero, kOne };

struct ShapeOptions {
  // What is made of no ghost and has at most so many bytes is real: masks, numbers of positions,
  // torch::tensor({1, 2}), which C++ fills through a pointer.
  int64_t real_up_to = int64_t{64} << 10;
  ReadBack read_back = ReadBack::kError;
};

// While it stands, operators of this thread work on shapes. Real tensors may take part: where one
// is written from a ghost it becomes a ghost, with all that shares its memory, until the guard
// ends; then it has its memory again, as it was.
class ShapesOnly {
 public:
  explicit ShapesOnly(const ShapeOptions& options = {});
  ~ShapesOnly();
  ShapesOnly(const ShapesOnly&) = delete;
  ShapesOnly& operator=(const ShapesOnly&) = delete;

  static ShapesOnly* current();  // of this thread, the innermost; null: none

  const ShapeOptions& options() const { return options_; }

  // What was answered in the place of contents, a line each with the number of times.
  std::vector<std::string> assumptions() const;
  void assume(const std::string& what) { ++assumed_[what]; }

  void become_ghost(const at::Tensor& tensor);

 private:
  struct Taken {
    c10::Storage storage;
    c10::DataPtr data;
    size_t bytes;
    c10::Allocator* allocator;
  };

  const ShapeOptions options_;
  std::map<std::string, int> assumed_;
  std::vector<Taken> taken_;
  ShapesOnly* const outer_;
  const NullReadMessage null_reads_;
  const c10::impl::IncludeDispatchKeyGuard include_;
};

}  // namespace epl

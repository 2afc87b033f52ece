// SpreadTensor: the memory of a parameter of which each of several workers keeps a range
// (zero.level = "v2").
//
//   SpreadTensor weight(parameter, account);   // a copy, in memory of its own
//   weight.keep({0, 524288});                  // elements, in the order of memory
//   weight.drop();    // the rest is gone, and whoever touches it crashes, rather than read zeros
//   weight.bring();   // there is memory for it; what lies there comes from other workers
//   ...
//   weight.drop();
//
// Addresses stay. Pages of the range, the last ones of which may hold some elements of others, are
// never given back.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "layout/layout.h"

namespace epl {

// Bytes of parameters that others keep and that are in memory here now, and most at once since
// begin_lap().
class NearAccount {
 public:
  void add(int64_t bytes);
  int64_t near() const { return near_.load(); }
  int64_t most_near() const { return most_.load(); }
  void begin_lap() { most_ = near_.load(); }

 private:
  std::atomic<int64_t> near_{0};
  std::atomic<int64_t> most_{0};
};

class SpreadTensor {
 public:
  // Memory for a dense tensor that fills its storage, with what it holds. Throws epl::Error where
  // there is none. Nothing is dropped yet. The account outlives it.
  SpreadTensor(const at::Tensor& tensor, NearAccount& account);
  ~SpreadTensor();
  SpreadTensor(const SpreadTensor&) = delete;
  SpreadTensor& operator=(const SpreadTensor&) = delete;

  // The same for another tensor, which the program has put in place of the one before: tensor()
  // stays the same object, and sees the new memory.
  void take(const at::Tensor& tensor);

  // Sees the memory, whatever the program's own tensor shows. Executors, who hold this one, leave
  // the storage of the program's to the program.
  const at::Tensor& tensor() const { return tensor_; }
  // The memory once more, for the program's storage: it lives as long as either of the two.
  c10::DataPtr memory() const;
  bool is_memory_of(const at::Tensor& tensor) const;

  // What stays when the rest is dropped: elements in the order of memory. All of them at first.
  void keep(const Piece& elements);
  const Piece& kept() const { return kept_; }
  int64_t bytes_of_others() const { return bytes_of_others_; }

  // Throws epl::Error where the system has no memory for it.
  void bring();
  void drop();
  bool is_near() const { return near_.load(); }

 private:
  class Mapping;
  int64_t item() const { return static_cast<int64_t>(tensor_.element_size()); }
  int64_t first_byte() const { return kept_.begin * item(); }
  int64_t kept_bytes() const { return kept_.length * item(); }

  std::shared_ptr<Mapping> mapping_;  // with the tensors that lie in it
  at::Tensor tensor_;
  NearAccount& account_;
  Piece kept_ = {};
  int64_t bytes_of_others_ = 0;
  std::atomic<bool> near_{true};
};

}  // namespace epl

// Executor: runs the Program of a role on one device.
//
// Binding comes first: the arena is allocated, and every slot becomes a tensor at its place that
// stays for all steps. What is left to do for an operator is to call its kernel with arguments made
// once. Operators run below autograd, on a thread with a DeviceMemory::Use: that is how the results
// of operators without an out= kernel come into their slots. An exception leaves the executor
// usable: the next load starts anew.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>

#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "program/program.h"

namespace epl {

// The memory of one plan at a time. Plans of several batch shapes share it: only one of them runs.
class Arena {
 public:
  explicit Arena(c10::Device device) : device_(device) {}

  // Grows to at least `bytes`; what lay in it is lost. The memory comes from the allocator of the
  // device that this thread uses.
  void ensure(int64_t bytes);
  void release();
  char* base() const { return static_cast<char*>(memory_.get()); }
  int64_t bytes() const { return bytes_; }
  c10::Device device() const { return device_; }

 private:
  const c10::Device device_;
  c10::DataPtr memory_;
  int64_t bytes_ = 0;
};

// A recorded step is right for a batch only while what it once found in its data is found again: a
// number that C++ read, the shape of a selection. Thrown by Executor::run where it is not.
class GuardFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;  // "aten::nonzero gave [3, 1], but [5, 1] when recorded"
};

class Executor {
 public:
  // `leaf_tensors`: the user's tensors, one for each leaf of the program (undefined for inputs and
  // seed). Program and arena must outlive the executor; the arena must be large enough for the
  // program. Where the user handed a generator to an operator, `stream_of` says what this device
  // takes for it.
  using StreamOf = std::function<at::Generator(const at::Generator&)>;
  Executor(PlanRole role, const Arena& arena, std::vector<at::Tensor> leaf_tensors,
           at::Generator generator, StreamOf stream_of = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Whether the arena or a leaf lies elsewhere than it did, or is seen otherwise (the user replaced
  // a parameter's data). If so everything is bound anew.
  bool rebind_if_moved();

  // From the next rebind_if_moved() on this stands in the place of a leaf.
  void set_leaf(size_t index, at::Tensor tensor) { leaf_tensors_[index] = std::move(tensor); }

  // Inputs of one micro batch, into the slots of their leaves or into `slots` where there are any
  // (see Instruction::slots). A device that has one piece of an input takes it out of the batch,
  // which begins `rows.begin` of `rows.of` parts behind the first row of the micro batch where
  // other workers have the rows before.
  struct GivenRows {
    int64_t begin = 0;
    int64_t of = 1;
  };
  void load(const std::vector<at::Tensor>& batch, const std::vector<SlotId>& slots, GivenRows rows);
  void load(const std::vector<at::Tensor>& batch) { load(batch, {}, {}); }
  // The gradient of the loss; stays until it is set anew.
  void set_seed(double seed);
  // The calls [first, end) of a segment; the whole of it where they are left out.
  void run(int segment, int first = 0, int end = Instruction::kToTheEnd);

  // The tensor of a slot, valid until the next run.
  const at::Tensor& tensor(SlotId slot) const { return tensors_[static_cast<size_t>(slot)]; }

 private:
  struct BoundCall;

  void bind();
  void bind_leaves();
  void bind_arena();
  BoundCall bind_call(const Call& call);
  c10::IValue bind_constant(const c10::IValue& constant, const c10::TypePtr& type) const;
  c10::IValue bind_operand(const Operand& operand, const c10::TypePtr& type) const;
  void run_call(BoundCall& bound);
  void check_expectation(const Call& call) const;
  void take_results(BoundCall& bound);

  const PlanRole role_;
  const Program& program_;  // that it runs
  std::vector<at::Tensor> leaf_tensors_;
  const at::Generator generator_;
  const StreamOf stream_of_;
  const Arena& arena_;
  const char* bound_arena_ = nullptr;
  struct BoundLeaf;
  std::vector<BoundLeaf> bound_leaves_;  // as leaf_tensors_ were
  std::vector<at::Tensor> tensors_;      // by slot
  std::vector<std::vector<BoundCall>> segments_;
  std::vector<c10::IValue> stack_;
};

}  // namespace epl

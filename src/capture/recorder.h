// Recorder: turns operator calls into Graph nodes while the user's step runs.
//
// Identity. A tensor is the Value that its TensorImpl was last seen as; one that was never seen (
// autograd unpacks what it saved into new TensorImpls) is found by storage, offset, sizes, strides
// and dtype. The recorder holds weak references: data is freed as in any eager run, but no address
// comes back under another meaning while recording. Sparse tensors have no storage and are known by
// their TensorImpl alone.
//
// Uninitialized memory. torch::tensor({1, 2}) makes an empty tensor and fills it through its
// pointer, unseen. The node of an empty tensor is therefore kept only if operators fill it; if it
// is read first, its contents were made by C++ and it becomes a constant. So does memory that is
// only borrowed (torch::from_blob): if nobody holds the tensor after the step, a copy of it.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/library.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/capture.h"
#include "ir/graph.h"

namespace epl {

struct EnclosingOp {
  std::string name;
  std::vector<c10::IValue> inputs;
};

class Recorder {
 public:
  using Kernel = std::function<void()>;

  // Declares a tensor that the step may read. The same tensor declared twice keeps its first leaf.
  void declare(Leaf leaf, const at::Tensor& tensor);

  // Runs one operator through `kernel` and records it. `stack` holds its arguments before and its
  // results after.
  void record(const c10::OperatorHandle& op, torch::jit::Stack* stack, const Kernel& kernel);

  // The value of a tensor that the step made or read; a tensor not seen before becomes a constant.
  ValueId value_of(const at::Tensor& tensor);

  // The same for a tensor that the step returns.
  ValueId returned(const at::Tensor& tensor);

  // Phase and TaskGraph of what is recorded next. Without a TaskGraph of its own, a node of the
  // backward phase gets that of the node that reads it: see claim().
  void enter_backward() { phase_ = Phase::kBackward; }
  void set_backward_taskgraph(std::optional<int> taskgraph) { backward_taskgraph_ = taskgraph; }

  // A backward node of this TaskGraph reads `tensor`: the sums that made it belong there as well.
  void claim(const at::Tensor& tensor, int taskgraph);

  // The same for the gradient of a parameter, which no backward node reads.
  void claim_gradient(const at::Tensor& parameter, const at::Tensor& gradient);

  // The operators that the step is in, outermost first: composite ones too, which record() never
  // sees.
  std::vector<EnclosingOp> enclosing_ops;

  // Takes back what the recorded run wrote into tensors that outlive it: parameters, buffers, state
  // that the step closes over, the batch, and generators.
  void restore_written();

  // Asked when the step and what it returned are gone. A tensor that the step made and somebody
  // still holds, as text; empty if there is none.
  std::string describe_kept() const;

  // The same moment: the tensors that the step closes over and somebody else holds.
  std::vector<WeakTensor> closed_over() const;

  // The recorder is spent. Whatever else the step made should be gone by now.
  Graph take_graph();

 private:
  struct Place {  // where a strided tensor lies
    c10::StorageImpl* storage;
    TensorType type;
    bool operator<(const Place& other) const;
  };

  bool reads_back(const Node& node) const;
  bool varies(const Node& node) const;
  void spread_variation(const Node& node);
  Argument read(const c10::IValue& value);
  void settle_uninitialized(const Node& node);
  void filled_by_cpp(ValueId root);
  std::vector<Node> settle_temporaries();
  void save_written(const Node& node, const torch::jit::Stack& stack, size_t first);
  void save_generators(const torch::jit::Stack& stack, size_t first);
  Result define(const c10::IValue& value);
  ValueId define(const at::Tensor& tensor);
  ValueId find(const at::Tensor& tensor) const;
  ValueId root_of(const at::Tensor& tensor) const;
  void remember(const at::Tensor& tensor, ValueId id);
  void claim_value(ValueId id, int taskgraph);

  Graph graph_;
  Phase phase_ = Phase::kForward;
  std::optional<int> backward_taskgraph_;
  std::vector<bool> varies_;   // by value: may differ from step to step
  std::vector<int> producer_;  // by value: index of its node, -1 for leaves
  std::set<int> unclaimed_;    // backward nodes whose TaskGraph is not known yet

  std::unordered_map<c10::TensorImpl*, ValueId> by_impl_;
  std::map<Place, ValueId> by_place_;
  std::unordered_map<c10::StorageImpl*, ValueId> roots_;
  std::vector<WeakTensor> impls_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;

  struct Uninitialized {
    int node;
    at::Tensor tensor;
  };
  std::map<ValueId, Uninitialized> uninitialized_;  // by root
  std::set<int> dropped_;                           // nodes whose result became a constant

  struct Temporary {  // a constant that the step itself may have made
    size_t leaf = 0;
    at::Tensor contents;  // before the step wrote into it
    bool borrowed = false;
    bool written = false;
  };
  std::map<ValueId, Temporary> temporaries_;  // by root

  struct Saved {
    at::Tensor tensor;
    at::Tensor contents;
  };
  std::map<ValueId, Saved> saved_;  // by root
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
};

// Records this thread's operators into `recorder` while it stands.
class RecorderGuard {
 public:
  explicit RecorderGuard(Recorder& recorder);
  ~RecorderGuard();
  RecorderGuard(const RecorderGuard&) = delete;
  RecorderGuard& operator=(const RecorderGuard&) = delete;

 private:
  uint64_t callback_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

}  // namespace epl

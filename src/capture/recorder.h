// Recorder: turns operator calls into Graph nodes while the user's step runs.
//
// Identity. A tensor is the Value that its TensorImpl was last seen as; one that was never seen
// (autograd unpacks what it saved into new TensorImpls) is found by storage, offset, sizes, strides
// and dtype. The recorder holds weak references: data is freed as in any eager run, but no address
// comes back under another meaning while recording. Sparse tensors have no storage and are known by
// their TensorImpl alone.
//
// Uninitialized memory. torch::tensor({1, 2}) makes an empty tensor and fills it through its
// pointer, unseen. The node of an empty tensor is therefore kept only if operators fill it; if it
// is read first, its contents were made by C++ and it becomes a constant. So does memory that is
// only borrowed (torch::from_blob): if nobody holds the tensor after the step, a copy of it.
#pragma once

#include <torch/library.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/capture.h"
#include "capture/foreign_results.h"
#include "capture/run_on_shapes.h"
#include "capture/watched_generators.h"
#include "ir/graph.h"

namespace epl {

struct EnclosingOp {
  std::string name;                 // with its overload: "aten::ctc_loss.Tensor"
  std::vector<c10::IValue> inputs;  // where needs_inputs(name)
};

// Whether more has to be known of a composite operator than that the step is in it.
bool needs_inputs(const std::string& composite);

// The forward operator that a backward node belongs to: its TaskGraph and its number
// (Origin::call).
struct ForwardPlace {
  int taskgraph = -1;
  int call = -1;
};

class Recorder final : public CallPlace {
 public:
  using Kernel = std::function<void()>;

  Recorder();

  // Declares a tensor that the step may read. The same tensor declared twice keeps its first leaf.
  void declare(Leaf leaf, const at::Tensor& tensor);
  // Those of the declared parameters that are to be trained: asked after the step function has run,
  // which may freeze and unfreeze parameters itself, as the two steps of a GAN do.
  std::vector<at::Tensor> settle_trained(const NamedTensors& parameters);

  // Runs one operator through `kernel` and records it. `stack` holds its arguments before and its
  // results after.
  void record(const c10::OperatorHandle& op, torch::jit::Stack* stack, const Kernel& kernel);

  // The value of a tensor that the step made or read; a tensor not seen before becomes a constant.
  ValueId value_of(const at::Tensor& tensor);

  // The same for a tensor that the step returns.
  ValueId returned(const at::Tensor& tensor);

  // The program marked this tensor, to be kept for backward. What the step did not make is kept
  // anyway.
  void mark(const at::Tensor& tensor);

  // Phase of what is recorded next, and whose derivative it is. A node of the backward phase that
  // is nobody's, a sum of gradients, waits for the node that reads it: see claim().
  void enter_backward(bool runs_users_code) {
    phase_ = Phase::kBackward;
    users_code_in_backward_ = runs_users_code;
  }
  // Whether hooks, or functions with a backward of their own, may have kept what is made there.
  bool users_code_in_backward() const { return users_code_in_backward_; }
  void set_backward_of(std::optional<ForwardPlace> forward) { backward_of_ = forward; }

  // The number of the forward operator whose autograd node has this sequence number, or -1.
  int call_at(uint64_t sequence) const;

  // A derivative of `forward` reads `tensor`. The sums that made it belong where the last of their
  // parts is made, the derivative of the earliest user of the value: where users and value lie in
  // different stages, one gradient goes from stage to stage and not one of each user. What has no
  // parts belongs to `forward`.
  void claim(const at::Tensor& tensor, const ForwardPlace& forward);

  // The same for the gradient of a parameter, which no backward node reads.
  void claim_gradient(const at::Tensor& parameter, const at::Tensor& gradient);

  // Told of every operator that the step enters and leaves: composite ones too, which record()
  // never sees. Not of what runs inside of a recorded one.
  void enter_op(EnclosingOp op);
  void leave_op(const std::vector<c10::IValue>& outputs);

  // For a run on shapes alone: the parameter that was read last, and whether the step is in an
  // operator that reads numbers only to check them.
  std::string near() const override;
  bool reads_for_checks() const override;

  // The batch, which is open while an operator runs and closed while the user's own code does.
  void watch(WatchedInputs* inputs) { watched_ = inputs; }

  // Counts what kernels hold besides what they make (Origin::workspace).
  void measure(MemoryMeter* memory) { memory_ = memory; }

  // Takes back what the recorded run wrote into tensors that outlive it: parameters, buffers, state
  // that the step closes over, the batch, and generators.
  void restore_written();
  // Whether an operator wrote into the memory of this tensor.
  bool writes(const at::Tensor& tensor) const;
  // The same tensors and generators, as they are now.
  void describe_written(RunEffects& effects) const;

  // A generator of the user's that an earlier recording of the step drew from.
  void expect_draws_from(const at::Generator& generator) { generators_.expect(generator); }

  // Told when the step and what it returned are gone.
  void end_of_step();

  // Asked at that moment. The tensors that the step made and somebody still holds, as text, in the
  // order in which they were made.
  std::vector<std::string> describe_kept() const;

  // The same moment: the tensors that the step closes over and somebody else holds.
  std::vector<ClosedOver> closed_over() const;
  // The same where only the memory is held, by a tensor that no operator saw.
  std::vector<HeldUnseen> held_unseen() const;

  // Something was seen that a replay would not do again, or not in the same way. The first reason
  // is kept.
  void cannot_be_replayed(const std::string& why);
  const std::string& unreplayable() const { return unreplayable_; }

  // `returned` is what will be read of the graph. The recorder is spent. Whatever else the step
  // made should be gone by now.
  Graph take_graph(const std::vector<ValueId>& returned = {});

 private:
  struct Place {  // where a strided tensor lies
    c10::StorageImpl* storage;
    TensorType type;
    bool operator<(const Place& other) const;
  };

  int64_t run_measured(const Kernel& kernel, const torch::jit::Stack& stack, size_t returns,
                       Node& node) const;
  void note_workspace(int64_t bytes);  // of the last node
  void start_call(Node& node);
  void place(Node& node);
  void add(Node node, const std::vector<c10::IValue>& outputs);
  void expect_contents(const at::Tensor& tensor);
  std::vector<Node> sizes_of(const Node& selection) const;
  void take_for_one_op(const EnclosingOp& op, const std::vector<c10::IValue>& outputs);
  bool reads_back(const Node& node) const;
  bool grows(const Node& node) const;
  bool varies(const Node& node) const;
  void spread_variation(const Node& node);
  Argument read(const c10::IValue& value);
  void settle_uninitialized(const Node& node);
  void note_made(const Node& node, int index);
  void check_made(ValueId root);
  std::optional<WeakStorage> storage_of_root(ValueId root) const;
  at::Tensor tensor_in(const WeakStorage& storage, ValueId root) const;
  void filled_by_op(ValueId id, int64_t elements);
  void filled_by_cpp(ValueId root);
  std::vector<Node> settle_temporaries();
  void save_written(const Node& node, const torch::jit::Stack& stack, size_t first);
  static std::optional<at::Generator> drawn_from(const Node& node);
  bool made_in_step(const at::Generator& generator) const;
  Result define(const c10::IValue& value);
  Result leave_out(const c10::IValue& value);
  bool is_unasked(const at::Tensor& tensor) const;
  ValueId define(const at::Tensor& tensor);
  ValueId find(const at::Tensor& tensor) const;
  ValueId root_of(const at::Tensor& tensor) const;
  void remember(const at::Tensor& tensor, ValueId id);
  void claim_value(ValueId id, const ForwardPlace& forward);
  ForwardPlace owner_of(ValueId storage) const;
  std::set<ValueId> roots_of_constants() const;
  std::string other_name_of(const at::Tensor& tensor) const;
  bool is_input(ValueId root) const;

  Graph graph_;
  const ForeignResults foreign_;
  std::string unreplayable_;
  WatchedInputs* watched_ = nullptr;
  MemoryMeter* memory_ = nullptr;
  Phase phase_ = Phase::kForward;
  bool users_code_in_backward_ = false;
  std::optional<ForwardPlace> backward_of_;
  std::vector<EnclosingOp> enclosing_ops_;  // that the step is in, outermost first

  int user_calls_ = 0;
  // By forward operator: the sequence number at which the one before it was left. What autograd
  // made from there on, also for a torch::autograd::Function around it, is its own.
  std::vector<uint64_t> first_sequences_;
  uint64_t left_at_;             // where the operator that was recorded last was left
  bool recorded_in_op_ = false;  // and whether the step is still in it

  std::vector<bool> varies_;   // by value: may differ from step to step
  std::vector<int> producer_;  // by value: index of its node, -1 for leaves
  std::set<int> unclaimed_;    // backward nodes whose TaskGraph is not known yet

  std::unordered_map<c10::TensorImpl*, ValueId> by_impl_;
  std::map<Place, ValueId> by_place_;
  std::unordered_map<c10::StorageImpl*, ValueId> roots_;
  std::vector<WeakTensor> impls_;
  std::vector<WeakStorage> storages_;
  std::vector<WeakStorage> unasked_;  // of results that a mask leaves out

  struct Uninitialized {
    int node = -1;
    at::Tensor tensor;
    int64_t filled = 0;    // bytes, by operators
    bool resized = false;  // larger than it was: what it held before may still be there
  };
  std::map<ValueId, Uninitialized> uninitialized_;  // by root
  struct Made {
    int node = -1;
    WeakStorage storage;
    uint64_t hash = 0;   // of what the operator left there
    bool fixed = false;  // it leaves the same in every step
  };
  std::map<ValueId, Made> made_;  // by root, until it is read
  std::set<int> dropped_;         // nodes whose result became a constant

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
  WatchedGenerators generators_;
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

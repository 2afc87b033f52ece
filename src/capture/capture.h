// Capture: the user's training step, run once under a recorder, becomes a Graph.
//
// The step runs for real on the given batch: forward, loss and backward. What comes out is every
// operator in order with its phase and TaskGraph. The run leaves no trace: buffers that it changed
// and the random generators are set back, gradients are not accumulated into the parameters.
#pragma once

#include <ATen/core/Generator.h>
#include <epl/step.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace epl {

class WatchedInputs;

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl>;
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
// A tensor of the user's, and the memory that it showed when the step was recorded.
struct ClosedOver {
  explicit ClosedOver(const at::Tensor& tensor);
  // Whether the tensor lives and shows the same memory in the same way: not where another one was
  // assigned to its variable, nor after set_data().
  bool is_as_recorded() const;

  WeakTensor tensor;
  const c10::StorageImpl* storage = nullptr;  // null where it is not strided
  TensorType type;
};

// Memory of the user's whose tensor no operator saw, since the step read it as x.data(). All that
// tells of another tensor in its variable is that fewer hold the memory.
struct HeldUnseen {
  explicit HeldUnseen(WeakStorage storage) : storage(std::move(storage)) {}
  void count() { holders = storage.use_count(); }
  bool is_as_counted() const { return storage.use_count() >= holders; }

  WeakStorage storage;
  size_t holders = 0;
};

// Sees what kernels allocate on this thread, where somebody counts that.
class MemoryMeter {
 public:
  virtual ~MemoryMeter() = default;
  // What is held most of what is allocated from now on, while `kernel` runs, besides the memory of
  // what it makes: `made` is asked for that when it has run.
  virtual int64_t bytes_besides(const std::function<void()>& kernel,
                                const std::function<std::vector<const void*>()>& made) = 0;
};

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

struct CaptureRequest {
  const StepFunction& step;
  const Batch& batch;              // copies of its own
  const NamedTensors& parameters;  // to be trained; those that need no gradient are state
  const NamedTensors& state;       // buffers and all other parameters
  // Whether the step function may hold on to tensors that it computed: see debug.kept_tensor.
  bool may_keep_tensors = false;
  // The gradient of the loss in the recorded run. The Graph does not depend on it; the effects of
  // the run, which are kept where it is given, do.
  std::optional<double> seed = std::nullopt;
  // Those that an earlier recording of the step drew from.
  std::vector<at::Generator> generators = {};
  // Where the batch lies, if it is watched.
  WatchedInputs* watched = nullptr;
  // Null: nobody counts what kernels allocate.
  MemoryMeter* memory = nullptr;
  // The seed has a loss scale in it: see check_backward_is_unseen().
  bool scales_loss = false;
};

// What a recorded run did besides being recorded. It leaves no trace; whoever wants it after all,
// as the run of a plain program, applies it instead of running the function once more.
struct RunEffects {
  std::vector<std::pair<at::Tensor, at::Tensor>> written;        // and what it held afterwards
  std::vector<std::pair<at::Generator, at::Tensor>> generators;  // and their states afterwards
  std::vector<at::Tensor> gradients;  // as CaptureRequest::parameters; undefined: none

  void apply() const;  // all but the gradients
};

struct Capture {
  Graph graph;
  double loss = 0;  // of the recorded run: a replay on the same batch must give it again
  std::vector<at::Tensor> metric_values;  // of the recorded run, as Graph::metrics
  // The tensors that the step closes over. Where one is not as recorded, the recording is out of
  // date.
  std::vector<ClosedOver> closed_over;
  std::vector<HeldUnseen> held_unseen;
  // The leaves that its backward() reaches, trained or not: of those, the plain loop makes a
  // grad().
  std::vector<WeakTensor> reached;
  RunEffects effects;  // empty unless asked for
  // Why a replay would not be right; empty where nothing speaks against it.
  std::string unreplayable;
};

Capture capture_step(const CaptureRequest& request);

// Throws epl::Error where this is no loss that can be trained by.
void check_loss(const at::Tensor& loss);

// The loss is about to be scaled. Throws epl::Error where backward runs the user's own code, which
// would see gradients times the scale.
void check_backward_is_unseen(const at::Tensor& loss);

}  // namespace epl

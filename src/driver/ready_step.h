// A step that was recorded and compiled for one shape of batch, bound to the devices of this
// worker.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "capture/capture.h"
#include "capture/two_sizes.h"
#include "driver/compile.h"
#include "driver/local_replicas.h"
#include "driver/model.h"
#include "runtime/executor.h"
#include "runtime/gradient_exchange.h"

namespace epl {

// What one device computed in one step, micro batch by micro batch.
struct DeviceRun {
  struct Metric {
    std::string collection;
    std::vector<at::Tensor> parts;
  };

  std::vector<double> losses;
  std::map<std::string, Metric> metrics;
  int micro_batch = 0;  // where it is, or where it stopped
};

class ReadyStep {
 public:
  ReadyStep(CompiledStep step, LocalReplicas& replicas, const Capture& capture, TwoSizes sizes,
            const std::vector<Channel>& channels, ExchangeOptions options);

  const Plan& plan() const { return compiled_.plan; }
  const Program& program() const { return plan().programs[0]; }
  const CompiledStep& compiled() const { return compiled_; }
  GradientExchange& exchange() { return *exchange_; }
  double recorded_loss() const { return recorded_loss_; }
  const TwoSizes& sizes() const { return sizes_; }  // empty where micro batches are not cut

  // A variable that the step function reads holds another tensor than when it was recorded.
  bool out_of_date() const;

  // Binds anew what lies elsewhere than it did. Returns whether anything did.
  bool rebind_if_moved();
  // Whether the user's tensors still have the types of the recording: not after net->to(kDouble),
  // or where a parameter was replaced by one of another shape.
  bool leaves_are_as_recorded() const;

  // On the thread of `device`: its program up to the update.
  void run(int device, const std::vector<Batch>& micro_batches, double seed, DeviceRun& result);

  // State that the step writes (running statistics) is the user's own on device 0 and a copy on the
  // others: handed out before the run; afterwards floating-point state is the mean of all.
  void hand_out_state();
  void average_state(Communicator* workers);

  const at::Tensor& gradient(int device, size_t index) const {
    return executors_[static_cast<size_t>(device)]->tensor(program().gradients[index].slot);
  }
  std::vector<at::Tensor> gradients_of(int device) const;
  const at::Tensor& parameter_of(size_t gradient) const;

  // For each update instruction: the optimizers and their parts of the gradients.
  struct Part {
    size_t optimizer;
    std::vector<ParameterGradient> gradients;  // with what all devices of this worker have
    std::vector<ParameterGradient> summed;     // where those of device 0 hold the sum
    std::vector<int> indices;                  // of Program::gradients
  };
  // `had_gradient`: parameters that some step gave one. Where this step gives none they get zeros.
  void bind_updates(Model& model, std::set<c10::TensorImpl*>& had_gradient);
  std::vector<std::vector<Part>>& updates() { return updates_; }
  // Gradients that operators make anew in each run, sparse ones among them, come into their parts.
  void refresh_late_gradients();

  bool replayed = false;  // and compared with the recorded loss
  int sample = 0;         // the micro batch of this worker that was recorded
  int64_t last_used = 0;  // in which step

 private:
  std::vector<at::Tensor> leaves_for(int device);
  void bind_coasting(Model& model, std::set<c10::TensorImpl*>& had_gradient);

  CompiledStep compiled_;
  LocalReplicas& replicas_;
  // Devices other than 0: a copy of each leaf in Program::written_leaves.
  std::vector<std::vector<at::Tensor>> own_state_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::unique_ptr<GradientExchange> exchange_;
  const double recorded_loss_;
  const TwoSizes sizes_;
  const std::vector<WeakTensor> closed_over_;
  std::vector<std::vector<Part>> updates_;
};

}  // namespace epl

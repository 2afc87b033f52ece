// A step that was recorded and compiled for one shape of batch, bound to the devices of this
// worker.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "capture/capture.h"
#include "compile/compile.h"
#include "driver/stage_ways.h"
#include "driver/step_gradients.h"
#include "program/step_end.h"
#include "runtime/executor.h"
#include "runtime/gradient_exchange.h"
#include "runtime/interpreter.h"
#include "runtime/local_replicas.h"
#include "runtime/stage_mail.h"
#include "runtime/written_state.h"

namespace epl {

bool draws_random_numbers(const Graph& graph);

class ReadyStep {
 public:
  ReadyStep(CompiledStep step, LocalReplicas& replicas, const Capture& capture, StageWays& ways,
            const Cluster& cluster, ExchangeOptions options);

  const Plan& plan() const { return compiled_.plan; }
  const CompiledStep& compiled() const { return compiled_; }
  const Placement& placement() const { return ways_.placement(); }
  const StageWays& ways() const { return ways_; }
  StepGradients& gradients() { return *gradients_; }
  const StepGradients& gradients() const { return *gradients_; }
  double recorded_loss() const { return recorded_loss_; }
  bool draws_random_numbers() const { return draws_random_numbers_; }

  // Of a device of this worker.
  Place place(int device) const { return placement().place(replicas_.first + device); }
  const Program& program(int device) const {
    return plan().programs[static_cast<size_t>(place(device).stage)];
  }

  // A variable that the step function reads holds another tensor, or other memory, than when it was
  // recorded.
  bool out_of_date() const;

  // Binds anew what lies elsewhere than it did. Returns whether anything did.
  bool rebind_if_moved();
  // Whether the user's tensors still have the types of the recording: not after net->to(kDouble),
  // or where a parameter was replaced by one of another shape.
  bool leaves_are_as_recorded() const;

  // Before and after all devices have run.
  void begin(int64_t step);
  void finish();
  void give_up() { ways_.renew_parts(); }  // where a device has failed
  // On the thread of `device`: its program up to the update. `micro_batches`: null where its stage
  // does not read the batch.
  void run(int device, const std::vector<Batch>* micro_batches, double seed, DeviceRun& result);

  // What ends the step on this worker.
  const std::vector<EndPhase>& end() const { return end_; }

  // Groups of gradients that set out only after the run do so now.
  void start_reductions();
  void wait_for_reductions();

  // State that the step writes (running statistics) is the user's own on the first device of its
  // stage and a copy on the others: handed out before the run, and brought together after it,
  // before the update.
  void hand_out_state();
  void merge_state(Communicator* workers);

  bool replayed = false;  // and compared with the recorded loss
  int sample = 0;         // the micro batch of this worker that was recorded
  int64_t last_used = 0;  // in which step

 private:
  std::vector<at::Tensor> leaves_for(int device);
  const at::Tensor& leaf(size_t stage, int index) const;
  bool owns_state(size_t stage, int index) const;
  WrittenState::Merge merge_of(size_t stage, int index) const;
  at::Tensor piece_of_state(size_t stage, int index, const at::Tensor& whole) const;
  Executor::GivenRows given_rows(int device) const;
  void make_groups();
  void check_state() const;
  std::vector<int> devices_of_stage(size_t stage) const;

  CompiledStep compiled_;
  LocalReplicas& replicas_;
  StageWays& ways_;
  // Devices other than the first of their stage: a copy of each leaf in Program::written_leaves.
  std::vector<std::vector<at::Tensor>> own_state_;
  // By stage and written leaf, where it decides how they are merged: what was there before the run.
  std::vector<std::vector<at::Tensor>> state_before_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::vector<std::unique_ptr<GradientExchange>> exchanges_;  // by stage; null where none is here
  std::unique_ptr<StageMail> mail_;                           // null where there is one stage
  std::vector<Interpreter> interpreters_;                     // by device
  std::unique_ptr<StepGradients> gradients_;
  const std::vector<EndPhase> end_;
  const double recorded_loss_;
  const bool draws_random_numbers_;
  const std::vector<ClosedOver> closed_over_;
  std::vector<HeldUnseen> held_unseen_;
};

}  // namespace epl

// A step by the user's own code and autograd: what runs where a recording cannot be replayed.
//
// Each device's micro batches go through the step function one after the other, from the same state
// and with the device's own random numbers, as if every device had run them at the same time. What
// comes out is what devices that replay a recording have as well: losses and metrics by device,
// gradients, and state of which the mean over devices is kept. Exchange, clipping and update are
// the same from there on.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "batch/micro_batches.h"
#include "capture/capture.h"
#include "comm/communicator.h"
#include "model/model.h"
#include "runtime/interpreter.h"
#include "runtime/local_replicas.h"

namespace epl {

struct PlainRunRequest {
  const DeviceBatches& batches;
  double seed = 1;           // the gradient of the loss of one micro batch
  bool scales_loss = false;  // it has a loss scale in it
  // Clips the gradients of each replica before they are reduced; null: nobody does.
  std::function<void(const std::vector<at::Tensor>& gradients)> clip_replica = {};
  int devices = 1;                  // of the whole job
  Communicator* workers = nullptr;  // null where there is one
  // Runs the function under the recorder, where somebody wants to know what it does; null: nobody.
  // None where this micro batch is not of interest.
  std::function<std::optional<Capture>(const Batch& batch, double seed)> observe = {};
  // The tensors besides the model's state that the function is known to write, more of them once it
  // was observed; null: none.
  std::function<NamedTensors()> written_outside = {};
};

class PlainRun {
 public:
  PlainRun(const Model& model, const StepFunction& function, LocalReplicas& replicas);
  // The gradients of the user's tensors are again what they were before.
  ~PlainRun();
  PlainRun(const PlainRun&) = delete;
  PlainRun& operator=(const PlainRun&) = delete;

  // Where it throws, parameters and buffers are as they were before.
  void run(const PlainRunRequest& request);

  const std::vector<DeviceRun>& runs() const { return runs_; }
  // As Model::parameters(), the sum over the devices of this worker; undefined where there is none.
  const std::vector<at::Tensor>& gradients() const { return sums_; }
  // What a parameter had in .grad() when the step began.
  const at::Tensor& users_gradient(size_t parameter) const { return users_gradients_[parameter]; }

  // Leaves the state of all devices brought together (written_state.h), and sums the gradients over
  // the workers. All workers call them.
  void merge_state(const PlainRunRequest& request);
  void reduce_gradients(Communicator* workers);

 private:
  void run_device(size_t device, const PlainRunRequest& request);
  void run_micro_batch(const Batch& batch, const PlainRunRequest& request, DeviceRun& run);
  void call(const Batch& batch, const PlainRunRequest& request, DeviceRun& run);
  void take(Capture capture, DeviceRun& run);
  void take_gradients(const PlainRunRequest& request);
  void remember_state(const PlainRunRequest& request);
  void remember_outside(const PlainRunRequest& request);
  void add_state();
  void restore_state();

  const Model& model_;
  const StepFunction& function_;
  LocalReplicas& replicas_;
  std::vector<at::Tensor> users_gradients_;  // as they were before
  // What the step may write: each device starts from what was before.
  struct State {
    std::string name;
    at::Tensor users;
    at::Tensor before;
    bool is_parameter = false;
    bool changed = false;               // by some device
    std::vector<at::Tensor> by_device;  // what each left
  };
  std::vector<State> state_;
  size_t devices_done_ = 0;
  std::vector<at::Tensor> sums_;
  std::vector<DeviceRun> runs_;
};

}  // namespace epl

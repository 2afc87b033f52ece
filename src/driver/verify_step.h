// debug.verify_steps: the plain LibTorch program beside a step, and how far the two are apart.
#pragma once

#include <epl/config.h>
#include <epl/trainer.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "driver/micro_batches.h"
#include "driver/model.h"
#include "driver/state_snapshot.h"

namespace epl {

// What one plain step gives. Made with the user's own objects, which are then set back: parameters,
// buffers, optimizer state, gradients, and what `state` holds. An optimizer of the user's own is
// set back only if it can be saved and loaded.
struct PlainStep {
  double loss = 0;                              // of this worker's rows
  std::map<std::string, at::Tensor> tensors;    // parameters and state after the update
  std::map<std::string, at::Tensor> gradients;  // after clipping
};

// How the plain program stands in for several devices: it computes what each of this worker's
// would, one after the other, from the same state and with the device's random numbers, and adds up
// the gradients.
struct PlainRequest {
  const DeviceBatches& batches;
  double seed = 1;
  TrainerOptions options;
  bool clips_locally = false;
  double local_scale = 1;  // a replica's gradient times this is the one that is clipped locally
  int slices = 1;          // devices here that share a replica
  std::function<at::Tensor(int device)> random_state;  // undefined: the program's own
  int devices = 1;                                     // of the whole job
  Communicator* workers = nullptr;
};

PlainStep run_plain_step(const Model& model, const StepFunction& step, const PlainRequest& request,
                         const StateSnapshot& state);

// Compares with what EPL gave. Returns a line for the log that names the worst parameter and
// gradient; throws epl::Error where one is further off than debug.verify_tolerance.
std::string compare_with_plain(const PlainStep& plain, const Model& model,
                               const std::map<std::string, at::Tensor>& gradients, double loss,
                               int64_t step, const Config& config);

}  // namespace epl

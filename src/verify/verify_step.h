// debug.verify_steps: the plain LibTorch program beside a step, and how far the two are apart.
#pragma once

#include <epl/config.h>
#include <epl/step.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "batch/micro_batches.h"
#include "comm/communicator.h"
#include "model/model.h"
#include "runtime/clip.h"
#include "state/state_snapshot.h"

namespace epl {

// What one plain step gives. Made with the user's own objects, which are then set back: parameters,
// buffers, optimizer state, gradients, and what `state` holds.
struct PlainStep {
  double loss = 0;                              // of this worker's rows, or of all where undivided
  std::map<std::string, at::Tensor> tensors;    // parameters and state after the update
  std::map<std::string, at::Tensor> gradients;  // after clipping
  // Optimizers of the user's own, of which nobody else knows how to set them back: they are not
  // run, and their parameters are not in `tensors`. Their gradients are compared all the same.
  std::vector<std::string> left_out;
  std::string divided;  // why the batch was cut as EPL cuts it; empty where it was not
  // EPL cuts operators that compute in a lower precision: each part of a sum is rounded to it.
  bool rounds_otherwise = false;
  int parts = 1;  // into which EPL cuts it, or what is summed over it
};

// The plain program is the undivided one: one call of the step function on all rows of the job.
//
// Where EPL differs from that by intention (docs/exactness.md) it stands in for several devices:
// it computes what each of this worker's would, one after the other, from the same state and with
// the device's random numbers, and adds up the gradients.
struct PlainRequest {
  const DeviceBatches& batches;
  Batch whole = {};          // all rows of the job; read where `divided` is empty
  std::string divided = {};  // why not
  double seed = 1;
  double loss_scale = 1;  // on top of the seed; gradients are divided by it
  ClipOptions clip = {};
  bool clips_locally = false;
  double local_scale = 1;  // a replica's gradient times this is the one that is clipped locally
  int slices = 1;          // devices here that share a replica
  std::function<at::Tensor(int device)> random_state = {};  // undefined: the program's own
  int devices = 1;                                          // of the whole job
  Communicator* workers = nullptr;
};

PlainStep run_plain_step(const Model& model, const StepFunction& step, const PlainRequest& request,
                         const StateSnapshot& state);

// The rows of this worker in their order, put together again; of all workers where there are
// several. They have copies of their own. Nothing where micro batches do not fit together.
std::optional<Batch> whole_batch(const DeviceBatches& batches, int slices, Communicator* workers);

// Compares with what EPL gave. Returns a line for the log that names the worst parameter and
// gradient; throws epl::Error where one is further off than debug.verify_tolerance, or ten times
// that where only EPL cuts rows or operators: its sums have another order.
std::string compare_with_plain(const PlainStep& plain, const Model& model,
                               const std::map<std::string, at::Tensor>& gradients, double loss,
                               int64_t step, const Config& config);

}  // namespace epl

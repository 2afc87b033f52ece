// What is asked of a trainer beside its steps: the function runs under a recorder, between the
// steps of all trainers, on the memory of the first device, and leaves the model as it was.
#pragma once

#include <optional>

#include "job/job.h"
#include "model/unchanged_model.h"
#include "runtime/device_memory.h"

namespace epl {

// Gives what `ask` gives.
template <typename Ask>
auto beside_steps(Job& job, const Model& model, const Ask& ask) {
  const Job::StepTurn turn(job);
  const UnchangedModel unchanged(model);
  std::optional<DeviceMemory::Use> use;
  if (!DeviceMemory::in_use_on_this_thread()) use.emplace(job.team().memory(0));
  return ask();
}

}  // namespace epl

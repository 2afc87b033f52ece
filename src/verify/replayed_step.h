// A step that EPL replays, with the plain program beside it (debug.verify_steps).
//
//   std::optional<PlainStep> plain = run_beside(step, batches, snapshot);
//   ... EPL runs the step
//   if (plain) compare(step, *plain, loss);
//
// Why a step is by intention not the undivided one, and what the plain program has to do to stand
// in for several devices then, is read from its Plan; verify_step.h does it.
#pragma once

#include <epl/config.h>
#include <epl/step.h>

#include <optional>

#include "batch/micro_batches.h"
#include "comm/communicator.h"
#include "compile/compile.h"
#include "model/model.h"
#include "runtime/bound_step.h"
#include "runtime/clip.h"
#include "runtime/local_replicas.h"
#include "state/state_snapshot.h"
#include "verify/verify_step.h"

namespace epl {

struct ReplayedStep {
  const Model& model;
  const StepFunction& function;
  const Config& config;
  const ClipOptions& clip;
  LocalReplicas& replicas;
  Communicator* workers;  // null where there is one
  const CompiledStep& compiled;
  const BoundStep& bound;
  int64_t number;
  double loss_scale = 1;
};

// Runs the plain program on the same rows and sets all back that it changed; `before` is what a run
// of the step changes. None where the two draw random numbers that cannot be the same: in a
// pipeline, and where operators are cut, each device draws its own.
std::optional<PlainStep> run_beside(const ReplayedStep& step, const DeviceBatches& batches,
                                    const StateSnapshot& before);

// After the step, whose loss is `loss`: a line in the log, or an epl::Error (compare_with_plain).
void compare(const ReplayedStep& step, const PlainStep& plain, double loss);

}  // namespace epl

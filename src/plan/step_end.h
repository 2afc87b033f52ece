// Appends the end of a step to the programs of a plan (program/step_end.h says what that is).
#pragma once

#include <functional>

#include "program/program.h"

namespace epl {

struct StepEndOptions {
  int apply_groups = 1;  // the update runs in so many groups, one after another
  // What says it of a program, where it is not the same for all.
  std::function<int(const Program&)> apply_groups_of = {};
  bool clips_each_replica = false;
  bool clips_reduced = false;  // or asks for their norm
  bool scales_loss = false;    // looks whether gradients are finite
  enum class OnBadLoss : uint8_t { kIgnored, kChecked } loss = OnBadLoss::kChecked;
  // Of programs that lie on several workers: which parameters come to those that do not update
  // them.
  enum class Gather : uint8_t { kOneWorker, kRead, kAll } gather = Gather::kOneWorker;
  bool gathers_from_owners = false;  // workers of a role update different parameters (plan/zero.h)
};

// Reductions that stand among the runs stay there where they may set out early; else they come
// behind the clipping of each replica.
void add_step_end(const StepEndOptions& options, bool reduces_early, Plan& plan);

}  // namespace epl

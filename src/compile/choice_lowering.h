// ChoiceLowering: from what the stages of a step have chosen to run again to its graphs and Plan.
//
//   const ChoiceLowering choices(packed, lower);
//   Lowered made = choices.run(stages, schedule);
//
// Recompute adds what runs again, UnpackMasks takes out what the chooser was offered and did not
// take, BringForward puts clones that fill a bubble in front of backward.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "compile/recompute_stages.h"
#include "plan/lower.h"

namespace epl {

using LowerStep = std::function<Plan(const CompiledStep&)>;

struct Lowered {
  CompiledStep step;
  Plan plan;
};

using Stages = std::vector<std::unique_ptr<Stage>>;

class ChoiceLowering {
 public:
  // `packed`: the step before any choice, with masks as truth values (passes/pack_masks.h).
  ChoiceLowering(CompiledStep packed, const LowerStep& lower)
      : packed_(std::move(packed)), lower_(lower) {}

  const CompiledStep& packed() const { return packed_; }

  Lowered run_kept() const;  // with nothing that runs again
  Lowered run(const Stages& stages, const Schedule& schedule) const;

  // The most that a chunk of the stage has of what may come early (Stage::early).
  size_t early_at_most(const Stage& stage, const Lowered& made) const;

 private:
  std::vector<size_t> early_clones(const Stage& stage, size_t role, const CompiledStep& step,
                                   const Schedule& schedule) const;
  std::map<int, std::vector<size_t>> clones_in(const Stage& stage, size_t role,
                                               const CompiledStep& step,
                                               const Schedule& schedule) const;

  const CompiledStep packed_;
  const LowerStep& lower_;
};

}  // namespace epl

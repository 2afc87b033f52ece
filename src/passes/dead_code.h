// Removes nodes that nothing returned depends on: what autograd saved for nothing, metrics that
// nobody asked for, gradients of frozen parameters.
//
// Needs   nothing.
// Leaves  nodes that the loss, a metric or a gradient reads, directly or not; nodes that write
//         state which outlives the step; nodes that check what the step read back, or that only
//         check and throw; nodes that draw random numbers, so that the generator stays where the
//         plain program would have it.
// Keeps   the order of the nodes.
#pragma once

#include "ir/pass.h"

namespace epl {

class DeadCode final : public Pass {
 public:
  std::string name() const override { return "DeadCode"; }
  bool run(Graph& graph) override;
};

}  // namespace epl

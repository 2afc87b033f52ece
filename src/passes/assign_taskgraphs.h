// Gives each node the TaskGraph of its stage, where EPL itself chose at which operators a step is
// cut (auto.auto_parallel).
//
//   %3 = aten::mm(%0, %2) {forward}     of call 1               {forward 0}
//   %4 = aten::sin(%3) {forward}        of call 2   cut at 3    {forward 0}
//   %6 = aten::mm(%4, %5) {forward}     of call 4      ->       {forward 1}
//   %8 = aten::mm(%7, %5) {backward}    of call 4               {backward 1}
//   %9 = aten::cos(%3) {backward}       of call 2               {backward 0}
//
// A cut is the number of the first forward operator (Origin::call) of a stage. A backward node has
// the number of the forward operator that it belongs to, a sum of gradients that of the first user
// of its value, so each lies where its forward does: what scopes at the same places would give.
//
// Needs   a Graph as it was recorded, without TaskGraphs.
// Leaves  one TaskGraph more than there are cuts, without cuts none; outside of them only what
//         belongs to no forward operator of the step. Throws epl::Error where a cut lies behind
//         the last operator.
// Keeps   nodes, values and their order.
#pragma once

#include <epl/strategy.h>

#include <utility>
#include <vector>

#include "ir/pass.h"

namespace epl {

// The TaskGraphs that cuts make: one more than there are cuts, without cuts none.
std::vector<Strategy> chosen_taskgraphs(const std::vector<int>& cuts);

class AssignTaskGraphs final : public Pass {
 public:
  explicit AssignTaskGraphs(std::vector<int> cuts) : cuts_(std::move(cuts)) {}  // ascending
  std::string name() const override { return "AssignTaskGraphs"; }
  bool run(Graph& graph) override;

 private:
  const std::vector<int> cuts_;
};

}  // namespace epl

#include "compile/choice_lowering.h"

#include <algorithm>
#include <map>
#include <set>

#include "passes/bring_forward.h"
#include "passes/recompute.h"
#include "passes/unpack_masks.h"

namespace epl {
namespace {

void run_pass(std::unique_ptr<Pass> pass, Graph& graph) {
  PassList passes;
  passes.push_back(std::move(pass));
  run_passes(graph, passes);
}

void unpack_masks(CompiledStep& step) {
  run_pass(std::make_unique<UnpackMasks>(), step.graph);
  for (Graph& part : step.parts) {
    if (!part.leaves.empty()) run_pass(std::make_unique<UnpackMasks>(), part);
  }
  for (auto& [devices, graph] : step.other) run_pass(std::make_unique<UnpackMasks>(), graph);
}

// Runs a pass on each graph of the step, with the nodes that the stages name in it.
template <typename PassOfNodes, typename NodesOf>
void rewrite(CompiledStep& step, const Stages& stages, const NodesOf& nodes_of) {
  std::map<Graph*, std::set<size_t>> nodes;
  for (const auto& stage : stages) {
    for (size_t role : stage->roles.roles) {
      // One of `step`, which the caller may change.
      Graph& graph = const_cast<Graph&>(step.graph_of(role));
      const std::vector<size_t> named = nodes_of(*stage, role);
      nodes[&graph].insert(named.begin(), named.end());
    }
  }
  for (const auto& [graph, named] : nodes) {
    if (named.empty()) continue;
    run_pass(std::make_unique<PassOfNodes>(std::vector<size_t>(named.begin(), named.end())),
             *graph);
  }
}

}  // namespace

Lowered ChoiceLowering::run_kept() const {
  Lowered made{packed_, {}};
  unpack_masks(made.step);
  made.plan = lower_(made.step);
  return made;
}

Lowered ChoiceLowering::run(const Stages& stages, const Schedule& schedule) const {
  Lowered made{packed_, {}};
  rewrite<Recompute>(made.step, stages,
                     [](const Stage& stage, size_t) { return stage.nodes_again(); });
  unpack_masks(made.step);
  rewrite<BringForward>(made.step, stages, [&](const Stage& stage, size_t role) {
    return early_clones(stage, role, made.step, schedule);
  });
  made.plan = lower_(made.step);
  return made;
}

size_t ChoiceLowering::early_at_most(const Stage& stage, const Lowered& made) const {
  size_t most = 0;
  for (size_t role : stage.roles.roles) {
    for (const auto& [chunk, clones] : clones_in(stage, role, made.step, made.plan.schedule)) {
      most = std::max(most, clones.size());
    }
  }
  return most;
}

std::vector<size_t> ChoiceLowering::early_clones(const Stage& stage, size_t role,
                                                 const CompiledStep& step,
                                                 const Schedule& schedule) const {
  std::vector<size_t> early;
  if (stage.early == 0) return early;
  for (const auto& [chunk, clones] : clones_in(stage, role, step, schedule)) {
    const auto count = static_cast<int64_t>(std::min(stage.early, clones.size()));
    early.insert(early.end(), clones.begin(), clones.begin() + count);
  }
  return early;
}

std::map<int, std::vector<size_t>> ChoiceLowering::clones_in(const Stage& stage, size_t role,
                                                             const CompiledStep& step,
                                                             const Schedule& schedule) const {
  const ValueId first_new = packed_.graph_of(role).value_count();
  return clones_behind_a_receive(step.graph_of(role), first_new, packed_.recorded_for(1), schedule,
                                 stage.roles.stage);
}

}  // namespace epl

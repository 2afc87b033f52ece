#include "passes/assign_taskgraphs.h"

#include <algorithm>

#include "base/check.h"

namespace epl {
namespace {

Strategy chosen_stage(size_t number) {
  return replicate(1, concat("stage_", number),
                   SourceLocation{"the cut that auto.auto_parallel chose", 0});
}

int stage_of_call(int call, const std::vector<int>& cuts) {
  if (call < 0) return -1;
  return static_cast<int>(std::upper_bound(cuts.begin(), cuts.end(), call) - cuts.begin());
}

// A step may take another way than the one that the cuts were chosen for.
void check_reaches_last_cut(const Graph& graph, const std::vector<int>& cuts) {
  int last = -1;
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::kForward) last = std::max(last, node.origin.call);
  }
  EPL_CHECK(cuts.back() <= last,
            concat("the step was to be cut into ", cuts.size() + 1, " stages before its operators ",
                   join(cuts, ", "), ", and has ", last + 1, " operators"),
            "auto.auto_parallel", "a step that calls the same operators each time");
}

}  // namespace

std::vector<Strategy> chosen_taskgraphs(const std::vector<int>& cuts) {
  std::vector<Strategy> stages;
  for (size_t stage = 0; !cuts.empty() && stage <= cuts.size(); ++stage) {
    stages.push_back(chosen_stage(stage));
  }
  return stages;
}

bool AssignTaskGraphs::run(Graph& graph) {
  EPL_ASSERT(graph.taskgraphs.empty(), "a step that EPL cuts has no strategies of its own");
  if (cuts_.empty()) return false;
  check_reaches_last_cut(graph, cuts_);
  graph.taskgraphs = chosen_taskgraphs(cuts_);
  for (Node& node : graph.nodes) node.taskgraph = stage_of_call(node.origin.call, cuts_);
  return true;
}

}  // namespace epl

#include "passes/assign_taskgraphs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/check.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "tests/models/steps.h"

namespace epl {
namespace {

// x -> mm -> sin -> mm -> sum and back; the gradient of a value from before the step comes last.
Graph two_products() {
  Graph graph = parse_graph(R"(graph
  %0: f32[4,4] = input 0
  %1: f32[] = seed
  %2: f32[4,4] = parameter "first"
  %3: f32[4,4] = parameter "second"
  %4: f32[4,4] = aten::mm(%0, %2) {forward}
  %5: f32[4,4] = aten::sin(%4) {forward}
  %6: f32[4,4] = aten::mm(%5, %3) {forward}
  %7: f32[] = aten::sum(%6, none) {forward}
  %8: f32[4,4] = aten::mm(%6, %3) {backward}
  %9: f32[4,4] = aten::cos(%4) {backward}
  %10: f32[4,4] = aten::add.Tensor(%8, %9, 1) {backward}
  %11: f32[4,4] = aten::neg(%10) {backward}
  return loss %7, gradient "first" %10, gradient "second" %11)");
  const std::vector<int> calls = {0, 2, 3, 4, 3, 2, 2, -1};  // 1 was an empty tensor
  for (size_t i = 0; i < calls.size(); ++i) graph.nodes[i].origin.call = calls[i];
  return graph;
}

// The TaskGraph of each node, in order.
std::string taskgraphs(const std::vector<int>& cuts) {
  Graph graph = two_products();
  EXPECT_EQ(AssignTaskGraphs(cuts).run(graph), !cuts.empty());
  verify_graph(graph, "AssignTaskGraphs");
  std::vector<int> found;
  for (const Node& node : graph.nodes) found.push_back(node.taskgraph);
  return join(found, " ");
}

TEST(AssignTaskGraphs, PutsBackwardNodesWhereTheirForwardLies) {
  EXPECT_EQ(taskgraphs({3}), "0 0 1 1 1 0 0 -1");
  EXPECT_EQ(taskgraphs({2, 3, 4}), "0 1 2 3 2 1 1 -1");
}

TEST(AssignTaskGraphs, CutsBeforeTheNextNodeWhereTheOperatorIsNone) {
  EXPECT_EQ(taskgraphs({1}), "0 1 1 1 1 1 1 -1");
}

TEST(AssignTaskGraphs, WithoutCutsChangesNothing) {
  EXPECT_EQ(taskgraphs({}), "-1 -1 -1 -1 -1 -1 -1 -1");
}

TEST(AssignTaskGraphs, NamesItsStagesAndWhoAskedForThem) {
  Graph graph = two_products();
  AssignTaskGraphs({2, 3}).run(graph);
  ASSERT_EQ(graph.taskgraphs.size(), 3);
  EXPECT_EQ(graph.taskgraphs[2].asked_by(),
            "epl::replicate(1, \"stage_2\") at the cut that auto.auto_parallel chose");
}

TEST(AssignTaskGraphs, RefusesACutBehindTheLastOperator) {
  Graph graph = two_products();
  try {
    AssignTaskGraphs({2, 5}).run(graph);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "epl: the step was to be cut into 3 stages before its operators 2, 5, and has 5 "
                 "operators\n"
                 "  asked by: auto.auto_parallel\n"
                 "  try:      a step that calls the same operators each time");
  }
}

// The numbers of the forward operators of a recording.
std::vector<int> calls_of(const Graph& graph) {
  std::vector<int> calls;
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::kForward) calls.push_back(node.origin.call);
  }
  std::sort(calls.begin(), calls.end());
  calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
  return calls;
}

std::vector<int> some_of(std::vector<int> calls, size_t count, std::mt19937& dice) {
  std::shuffle(calls.begin() + 1, calls.end(), dice);
  std::vector<int> cuts(calls.begin() + 1, calls.begin() + 1 + static_cast<std::ptrdiff_t>(count));
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

std::string with_who_asked(const Graph& graph) {
  std::string text = print_graph(graph);
  for (const Strategy& strategy : graph.taskgraphs) text += strategy.asked_by() + "\n";
  for (const Node& node : graph.nodes) text += concat(node.origin.call, " ");
  return text;
}

TEST(AssignTaskGraphs, IsLikeARecordingWithCutsForEveryModel) {
  std::vector<models::ModelStep> steps = models::all_steps();
  for (auto& step : models::example_steps()) steps.push_back(std::move(step));
  std::mt19937 dice(14);
  for (const models::ModelStep& step : steps) {
    const Graph recorded = step.capture();
    for (size_t count : {1, 1, 1, 2, 2, 3, 4, 5}) {
      const std::vector<int> cuts = some_of(calls_of(recorded), count, dice);
      SCOPED_TRACE(concat(step.name, " cut at ", join(cuts, ", ")));
      Graph cut = recorded;
      AssignTaskGraphs(cuts).run(cut);
      EXPECT_EQ(with_who_asked(cut), with_who_asked(step.capture(cuts)));
    }
  }
}

}  // namespace
}  // namespace epl

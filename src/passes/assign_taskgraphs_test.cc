#include "passes/assign_taskgraphs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/assign_chunks.h"
#include "passes/purify.h"
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

// The first operators of so many stages, each with as many operators as the others.
std::vector<int> even_cuts(const Graph& graph, int stages) {
  std::vector<int> calls;
  for (const Node& node : graph.nodes) {
    if (node.phase == Phase::kForward) calls.push_back(node.origin.call);
  }
  std::sort(calls.begin(), calls.end());
  calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
  std::vector<int> cuts;
  for (int stage = 1; stage < stages; ++stage) {
    cuts.push_back(calls[calls.size() * static_cast<size_t>(stage) / static_cast<size_t>(stages)]);
  }
  return cuts;
}

// AssignChunks goes by what nodes read: it would give a node that lies in another stage than its
// forward, or a sum that lies before one of its parts, a chunk behind the last stage, or refuse it.
TEST(AssignTaskGraphs, LetsValuesGoForwardAndGradientsBackInEveryModel) {
  std::vector<models::ModelStep> steps = models::all_steps();
  for (auto& step : models::example_steps()) steps.push_back(std::move(step));
  for (const models::ModelStep& step : steps) {
    for (int stages : {2, 3, 5}) {
      SCOPED_TRACE(concat(step.name, " in ", stages, " stages"));
      Graph graph = step.capture();
      AssignTaskGraphs(even_cuts(graph, stages)).run(graph);
      Purify().run(graph);
      AssignChunks().run(graph);
      EXPECT_EQ(chunk_count(graph), stages);
      for (const Node& node : graph.nodes) EXPECT_EQ(node.chunk, node.taskgraph) << op_name(node);
    }
  }
}

}  // namespace
}  // namespace epl

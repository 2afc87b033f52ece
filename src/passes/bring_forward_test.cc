#include "passes/bring_forward.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "ir/verify.h"

namespace epl {
namespace {

// Two chunks; backward of the first makes %10 and %11 again.
Graph graph_with_clones() {
  Graph graph = parse_graph(R"(graph
  %0: f32[4] = input 0
  %1: f32[4] = parameter "w"
  %2: f32[] = seed
  %3: f32[4] = aten::mul.Tensor(%0, %1) {forward 0}
  %4: f32[4] = aten::tanh(%3) {forward 0}
  %5: f32[4] = aten::tanh(%4) {forward 1}
  %6: f32[] = aten::sum(%5, none) {forward 1}
  %7: f32[4] = aten::tanh_backward(%2, %5) {backward 1}
  %8: f32[4] = aten::neg(%7) {backward 0}
  %10: f32[4] = aten::mul.Tensor(%0, %1) {backward 0}
  %11: f32[4] = aten::tanh(%10) {backward 0}
  %9: f32[4] = aten::tanh_backward(%8, %11) {backward 0}
  return loss %6, gradient "w" %9)");
  for (Node& node : graph.nodes) {
    node.chunk = node.taskgraph;
    node.taskgraph = -1;  // the text declares none
  }
  return graph;
}

TEST(BringForward, PutsNodesInFrontOfBackwardOfTheirChunk) {
  Graph graph = graph_with_clones();
  EXPECT_TRUE(BringForward({6, 7}).run(graph));
  verify_graph(graph, "BringForward");
  std::vector<std::string> names;
  for (size_t i = 4; i < graph.nodes.size(); ++i) names.push_back(op_name(graph.nodes[i]));
  EXPECT_EQ(names, (std::vector<std::string>{"aten::tanh_backward", "aten::mul.Tensor",
                                             "aten::tanh", "aten::neg", "aten::tanh_backward"}));
}

TEST(BringForward, KeepsTheOrderOfTheOthers) {
  Graph graph = graph_with_clones();
  EXPECT_TRUE(BringForward({6}).run(graph));
  verify_graph(graph, "BringForward");
  EXPECT_EQ(op_name(graph.nodes[5]), "aten::mul.Tensor");
  EXPECT_EQ(op_name(graph.nodes[6]), "aten::neg");
  EXPECT_EQ(op_name(graph.nodes[7]), "aten::tanh");
}

TEST(BringForward, ChangesNothingWhereTheyAreInFront) {
  Graph graph = graph_with_clones();
  BringForward({6, 7}).run(graph);
  const std::string before = print_graph(graph);
  EXPECT_FALSE(BringForward({5, 6}).run(graph));
  EXPECT_EQ(print_graph(graph), before);
}

}  // namespace
}  // namespace epl

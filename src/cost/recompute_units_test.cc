#include "cost/recompute_units.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "ir/text.h"

namespace epl {
namespace {

// The operators that may run again, in order.
std::string repeatable(const RecomputeRequest& request) {
  std::vector<std::string> names;
  for (const auto& operation : recompute_model(request).operations) {
    if (operation.repeatable) names.push_back(op_name(request.graph.nodes[operation.node]));
  }
  return join(names, " ");
}

const char* const kDropout = R"(graph
  %0: f32[4] = input 0
  %1: f32[4] = parameter "w"
  %2: f32[] = seed
  %3: f32[4] = aten::mul.Tensor(%0, %1) {forward}
  %4: f32[4] = aten::bernoulli.p(%3, 0.5, none) {forward}
  %5: f32[4] = aten::mul.Tensor(%3, %4) {forward}
  %6: f32[4] = aten::tanh(%5) {forward}
  %7: f32[] = aten::sum(%6, none) {forward}
  %8: f32[4] = aten::mul.Tensor(%6, %4) {backward}
  return loss %7, gradient "w" %8)";

TEST(RecomputeUnits, AreWhatDrawsNothing) {
  const Graph graph = parse_graph(kDropout);
  EXPECT_EQ(repeatable({graph}), "aten::mul.Tensor aten::mul.Tensor aten::tanh aten::sum");
}

TEST(RecomputeUnits, AreNotWhatIsMarked) {
  Graph graph = parse_graph(kDropout);
  graph.nodes[2].origin.marked = true;
  RecomputeRequest request{graph};
  EXPECT_EQ(repeatable(request), "aten::mul.Tensor aten::mul.Tensor aten::tanh aten::sum");
  request.keeps_marked = true;
  EXPECT_EQ(repeatable(request), "aten::mul.Tensor aten::tanh aten::sum");
}

// The buffer holds something else when backward comes.
TEST(RecomputeUnits, AreNotWhatReadsStateThatTheStepWrites) {
  const Graph graph = parse_graph(R"(graph
  %0: f32[4] = input 0
  %1: f32[4] = parameter "w"
  %2: f32[] = seed
  %3: f32[4] = state "mean"
  %4: f32[4] = aten::mul.Tensor(%0, %3) {forward}
  %5: f32[4] = aten::mul.Tensor(%4, %1) {forward}
  %6: f32[4] @%3 = aten::copy_(%3, %5, false) {forward}
  %7: f32[] = aten::sum(%5, none) {forward}
  %8: f32[4] = aten::mul.Tensor(%4, %2) {backward}
  return loss %7, gradient "w" %8)");
  EXPECT_EQ(repeatable({graph}), "aten::mul.Tensor aten::sum");
}

TEST(RecomputeUnits, EndWithTheLastTaskGraphThatIsAskedFor) {
  Graph graph = parse_graph(kDropout);
  graph.nodes[0].taskgraph = 0;
  graph.nodes[3].taskgraph = 1;  // the loss behind it stands in none
  RecomputeRequest request{graph};
  request.end_taskgraph = 0;
  EXPECT_EQ(repeatable(request), "aten::mul.Tensor aten::mul.Tensor");
}

// A view takes no memory, and a result lies where an argument dies.
TEST(RecomputeUnits, TakeTheBytesThatThePlanGivesThem) {
  const Graph graph = parse_graph(R"(graph
  %0: f32[4,16] = input 0
  %1: f32[4,16] = parameter "w"
  %2: f32[] = seed
  %3: f32[4,16] = aten::mul.Tensor(%0, %1) {forward}
  %4: f32[4,16] = aten::tanh(%3) {forward}
  %5: f32[16,4]{1,16} @%4 = aten::t(%4) {forward}
  %6: f32[] = aten::sum(%5, none) {forward}
  %7: f32[4,16] = aten::mul.Tensor(%4, %2) {backward}
  return loss %6, gradient "w" %7)");
  const RecomputeModel model = recompute_model({graph});
  EXPECT_EQ(model.operations.size(), 4);
  // tanh lies where its argument lay, and so does the gradient; the loss beside it.
  EXPECT_EQ(RecomputeMemory(model).measure(Again(4, false)).peak, 256 + 64);
}

}  // namespace
}  // namespace epl

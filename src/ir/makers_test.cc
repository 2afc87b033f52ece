#include "ir/makers.h"

#include <gtest/gtest.h>

#include "ir/text.h"

namespace epl {
namespace {

TEST(Makers, AreTheNodesThatMakeValuesAndNoneOfLeaves) {
  Graph graph = parse_graph(R"(graph
  %0: f32[4] = input 0
  %9: f32[] = seed
  %1: f32[4] = aten::neg(%0) {forward}
  [%2: f32[2] @%1, %3: f32[2]+2 @%1] = aten::split.Tensor(%1, 2, 0) {forward}
  return loss %9)");
  const Makers makers(graph);
  EXPECT_EQ(makers.of(0), nullptr);
  EXPECT_EQ(makers.of(1), &graph.nodes[0]);
  EXPECT_EQ(makers.index_of(2), 1U);
  EXPECT_EQ(makers.index_of(3), 1U);
  EXPECT_EQ(makers.index_of(9), std::nullopt);
  EXPECT_EQ(makers.index_of(kNoValue), std::nullopt);
}

TEST(Makers, KnowNoValueThatCameLater) {
  Graph graph;
  const Makers makers(graph);
  EXPECT_EQ(makers.of(graph.add_value(TensorType())), nullptr);
}

}  // namespace
}  // namespace epl

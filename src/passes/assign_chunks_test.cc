#include "passes/assign_chunks.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "ir/text.h"

namespace epl {
namespace {

const char* const kTwoScopes = R"(graph
  taskgraph 0 replicate(1, "a")
  taskgraph 1 replicate(1, "b")
  %0: f32[4] = input 0
  %1: f32[] = seed
  %2: f32[4] = parameter "w"
  %3: f32[4] = parameter "v"
)";

// The chunk of each node, one digit each, in order.
std::string chunks(const std::string& nodes) {
  Graph graph = parse_graph(kTwoScopes + nodes);
  EXPECT_TRUE(AssignChunks().run(graph));
  std::string text;
  for (const auto& node : graph.nodes) text += concat(node.chunk);
  // It runs again behind other passes and must not change its mind.
  AssignChunks().run(graph);
  std::string again;
  for (const auto& node : graph.nodes) again += concat(node.chunk);
  EXPECT_EQ(text, again);
  return text;
}

TEST(AssignChunks, AScopeIsAChunkAndBackwardFollowsItsForward) {
  EXPECT_EQ(chunks(R"(
  %4: f32[4] = aten::mul.Tensor(%0, %2) {forward 0}
  %5: f32[4] = aten::mul.Tensor(%4, %3) {forward 1}
  %6: f32[] = aten::sum(%5, none) {forward 1}
  %7: f32[4]{0} @%1 = aten::expand(%1, [4], false) {backward 1}
  %8: f32[4] = aten::mul.Tensor(%7, %4) {backward 1}
  %9: f32[4] = aten::mul.Tensor(%7, %3) {backward 1}
  %10: f32[4] = aten::mul.Tensor(%9, %0) {backward 0}
  return loss %6, gradient "w" %10, gradient "v" %8)"),
            "0111110");
}

TEST(AssignChunks, CodeOutsideOfScopesJoinsItsLatestInput) {
  EXPECT_EQ(chunks(R"(
  %4: f32[4] = aten::mul.Tensor(%0, %2) {forward 0}
  %5: f32[4] = aten::relu(%4) {forward}
  %6: f32[4] = aten::mul.Tensor(%4, %3) {forward 1}
  %7: f32[4] = aten::mul.Tensor(%5, %6) {forward}
  %8: f32[] = aten::sum(%7, none) {forward}
  return loss %8)"),
            "00111");
}

TEST(AssignChunks, WhatReadsNeitherActivationNorScopeJoinsItsFirstReader) {
  EXPECT_EQ(chunks(R"(
  %4: f32[4] = aten::relu(%2) {forward}
  %5: f32[4] = aten::neg(%4) {forward}
  %6: b8[4] = aten::gt.Scalar(%0, 0) {forward}
  %7: f32[4] = aten::mul.Tensor(%0, %2) {forward 0}
  %8: f32[4] = aten::mul.Tensor(%7, %5) {forward 1}
  %9: f32[4] = aten::masked_fill.Scalar(%8, %6, 0) {forward 1}
  %10: f32[] = aten::sum(%9, none) {forward}
  return loss %10)"),
            "1110111");
}

TEST(AssignChunks, BackwardOutsideOfScopesJoinsItsForward) {
  // The loss stands in no scope; its derivative is computed where it was.
  EXPECT_EQ(chunks(R"(
  %4: f32[4] = aten::mul.Tensor(%0, %2) {forward 0}
  %5: f32[4] = aten::mul.Tensor(%4, %3) {forward 1}
  %6: f32[] = aten::sum(%5, none) {forward}
  %7: f32[4]{0} @%1 = aten::expand(%1, [4], false) {backward}
  %8: f32[4] = aten::mul.Tensor(%7, %3) {backward 1}
  %9: f32[4] = aten::mul.Tensor(%8, %0) {backward 0}
  return loss %6, gradient "w" %9)"),
            "011110");
}

// With two TaskGraphs the chunks of the first are 0 and 2.
TEST(AssignChunks, AScopeThatIsEnteredAgainGoesRound) {
  EXPECT_EQ(chunks(R"(
  %4: f32[4] = aten::mul.Tensor(%0, %2) {forward 0}
  %5: f32[4] = aten::mul.Tensor(%4, %3) {forward 1}
  %6: f32[4] = aten::mul.Tensor(%5, %2) {forward 0}
  %7: f32[] = aten::sum(%6, none) {forward 0}
  %8: f32[4]{0} @%1 = aten::expand(%1, [4], false) {backward 0}
  %9: f32[4] = aten::mul.Tensor(%8, %2) {backward 0}
  %10: f32[4] = aten::mul.Tensor(%8, %5) {backward 0}
  %11: f32[4] = aten::mul.Tensor(%9, %4) {backward 1}
  %12: f32[4] = aten::mul.Tensor(%9, %3) {backward 1}
  %13: f32[4] = aten::mul.Tensor(%12, %0) {backward 0}
  return loss %7, gradient "w" %10, gradient "v" %11, gradient "w" %13)"),
            "0122222110");
}

// The transposed weight of the second round is a value of no chunk before it; that it is saved for
// backward says nothing of where backward runs.
TEST(AssignChunks, ViewsOfParametersGoWithTheirReader) {
  EXPECT_EQ(chunks(R"(
  %4: f32[4] = aten::mul.Tensor(%0, %2) {forward 0}
  %5: f32[4] = aten::mul.Tensor(%4, %3) {forward 1}
  %6: f32[4] @%2 = aten::view(%2, [4]) {forward 0}
  %7: f32[4] = aten::mul.Tensor(%5, %6) {forward 0}
  %8: f32[] = aten::sum(%7, none) {forward 0}
  %9: f32[4]{0} @%1 = aten::expand(%1, [4], false) {backward 0}
  %10: f32[4] = aten::mul.Tensor(%9, %6) {backward 0}
  %11: f32[4] = aten::mul.Tensor(%10, %4) {backward 1}
  return loss %8, gradient "v" %11)"),
            "01222221");
}

TEST(AssignChunks, ASkipGoesBackToTheChunkThatMadeIt) {
  Graph graph = parse_graph(std::string(kTwoScopes) + R"(
  %4: f32[4] = aten::relu(%0) {forward 0}
  %5: f32[4] = aten::relu(%4) {forward 1}
  %6: f32[4] = aten::relu(%5) {forward 0}
  %7: f32[4] = aten::add.Tensor(%6, %4, 1) {forward 1}
  %8: f32[] = aten::sum(%7, none) {forward 1}
  %9: f32[4]{0} @%1 = aten::expand(%1, [4], false) {backward 1}
  %10: f32[4] = aten::mul.Tensor(%9, %2) {backward 0}
  return loss %8, gradient "w" %10)");
  // The derivative of the first relu, which reads a gradient of chunk 3.
  for (size_t i = 0; i < graph.nodes.size(); ++i) graph.nodes[i].origin.call = static_cast<int>(i);
  graph.nodes.back().origin.call = 0;
  AssignChunks().run(graph);
  EXPECT_EQ(graph.nodes.back().chunk, 0);
  EXPECT_EQ(chunk_count(graph), 4);
}

TEST(AssignChunks, TheNumberOfChunksIsAMultipleOfTheScopes) {
  Graph graph = parse_graph(std::string(kTwoScopes) + R"(
  %4: f32[] = aten::sum(%0, none) {forward 0}
  return loss %4)");
  AssignChunks().run(graph);
  EXPECT_EQ(chunk_count(graph), 2);
}

}  // namespace
}  // namespace epl

#include "passes/tied_gradients.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "ir/makers.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/assign_chunks.h"
#include "passes/dead_code.h"

namespace epl {
namespace {

const char* const kHead = R"(graph
  taskgraph 0 replicate(1, "a")
  taskgraph 1 replicate(1, "b")
  %0: f32[4] = input 0
  %1: f32[] = seed
  %2: f32[4] = parameter "w"
  %3: f32[4] = aten::mul.Tensor(%0, %2) {forward 0}
  %4: f32[4] = aten::mul.Tensor(%3, %2) {forward 1}
  %5: f32[] = aten::sum(%4, none) {forward 1}
  %6: f32[4]{0} @%1 = aten::expand(%1, [4], false) {backward 1}
  %7: f32[4] = aten::mul.Tensor(%6, %3) {backward 1}
  %8: f32[4] = aten::mul.Tensor(%6, %2) {backward 1}
  %9: f32[4] = aten::mul.Tensor(%8, %0) {backward 0}
)";

// What it leaves of the head's backward nodes and of `tail`, each with its chunk; unread nodes go.
std::string after(const std::string& tail, bool changes = true) {
  Graph graph = parse_graph(kHead + tail);
  AssignChunks().run(graph);
  EXPECT_EQ(TiedGradients().run(graph), changes);
  verify_graph(graph, "TiedGradients");
  DeadCode().run(graph);
  AssignChunks().run(graph);
  std::string text = "\n";
  for (const auto& node : graph.nodes) {
    if (node.phase == Phase::kForward) continue;
    text += concat(node.chunk, "  ", print_node(graph, node), "\n");
  }
  const std::string all = print_graph(graph);
  return text + all.substr(all.find("return"));
}

TEST(TiedGradients, EachChunkKeepsTheSumOfItsOwnUses) {
  EXPECT_EQ(after(R"(
  %10: f32[4] = aten::add.Tensor(%7, %9, 1) {backward}
  return loss %5, gradient "w" %10)"),
            R"(
1  %6: f32[4]{0} @%1 = aten::expand(%1, [4], false) {backward 1 chunk 1}
1  %7: f32[4] = aten::mul.Tensor(%6, %3) {backward 1 chunk 1}
1  %8: f32[4] = aten::mul.Tensor(%6, %2) {backward 1 chunk 1}
0  %9: f32[4] = aten::mul.Tensor(%8, %0) {backward 0}
return loss %5, gradient "w" %9, gradient "w" %7
)");
}

TEST(TiedGradients, TermsOfOneChunkAreAddedThere) {
  EXPECT_EQ(after(R"(
  %10: f32[4] = aten::add.Tensor(%7, %9, 1) {backward}
  %11: f32[4] = aten::neg(%6) {backward 1}
  %12: f32[4] = aten::add.Tensor(%10, %11, 1) {backward}
  return loss %5, gradient "w" %12)"),
            R"(
1  %6: f32[4]{0} @%1 = aten::expand(%1, [4], false) {backward 1 chunk 1}
1  %7: f32[4] = aten::mul.Tensor(%6, %3) {backward 1 chunk 1}
1  %8: f32[4] = aten::mul.Tensor(%6, %2) {backward 1 chunk 1}
0  %9: f32[4] = aten::mul.Tensor(%8, %0) {backward 0}
1  %11: f32[4] = aten::neg(%6) {backward 1 chunk 1}
1  %13: f32[4] = aten::add.Tensor(%7, %11, 1) {backward 1 chunk 1}
return loss %5, gradient "w" %9, gradient "w" %13
)");
}

TEST(TiedGradients, SumsWithinAChunkAreLeftAlone) {
  const std::string tail = R"(
  %10: f32[4] = aten::add.Tensor(%7, %8, 1) {backward 1}
  return loss %5, gradient "w" %10)";
  EXPECT_NE(after(tail, false).find("gradient \"w\" %10"), std::string::npos);
}

// loss = x w w + w: the last term's gradient is the seed, which no node makes.
TEST(TiedGradients, TheSeedIsATermOfTheChunkOfTheLoss) {
  Graph graph = parse_graph(R"(graph
  taskgraph 0 replicate(1, "a")
  taskgraph 1 replicate(1, "b")
  %0: f32[] = input 0
  %1: f32[] = seed
  %2: f32[] = parameter "w"
  %3: f32[] = aten::mul.Tensor(%0, %2) {forward 0}
  %4: f32[] = aten::mul.Tensor(%3, %2) {forward 1}
  %5: f32[] = aten::add.Tensor(%4, %2, 1) {forward 1}
  %6: f32[] = aten::mul.Tensor(%1, %3) {backward 1}
  %7: f32[] = aten::add.Tensor(%1, %6, 1) {backward 1}
  %8: f32[] = aten::mul.Tensor(%1, %2) {backward 1}
  %9: f32[] = aten::mul.Tensor(%8, %0) {backward 0}
  %10: f32[] = aten::add.Tensor(%7, %9, 1) {backward 0}
  return loss %5, gradient "w" %10)");
  AssignChunks().run(graph);
  EXPECT_TRUE(TiedGradients().run(graph));
  verify_graph(graph, "TiedGradients");
  ASSERT_EQ(graph.gradients.size(), 2);
  const Makers makers(graph);
  EXPECT_EQ(graph.gradients[0].value, 9);
  const Node* const sum = makers.of(graph.gradients[1].value);
  EXPECT_EQ(print_node(graph, *sum),
            "%11: f32[] = aten::add.Tensor(%1, %6, 1) {backward 1 chunk 1}");
}

// Two terms without a maker: the sum stands before all of backward, in the chunk of the loss.
TEST(TiedGradients, TwoSeedsAreAddedToo) {
  Graph graph = parse_graph(R"(graph
  taskgraph 0 replicate(1, "a")
  taskgraph 1 replicate(1, "b")
  %0: f32[] = input 0
  %1: f32[] = seed
  %2: f32[] = parameter "w"
  %3: f32[] = aten::mul.Tensor(%0, %2) {forward 0}
  %4: f32[] = aten::add.Tensor(%3, %2, 1) {forward 1}
  %5: f32[] = aten::add.Tensor(%4, %2, 1) {forward 1}
  %6: f32[] = aten::add.Tensor(%1, %1, 1) {backward 1}
  %7: f32[] = aten::mul.Tensor(%1, %0) {backward 0}
  %8: f32[] = aten::add.Tensor(%6, %7, 1) {backward 0}
  return loss %5, gradient "w" %8)");
  AssignChunks().run(graph);
  EXPECT_TRUE(TiedGradients().run(graph));
  verify_graph(graph, "TiedGradients");
  AssignChunks().run(graph);
  ASSERT_EQ(graph.gradients.size(), 2);
  EXPECT_EQ(graph.gradients[0].value, 7);
  const Node* const sum = Makers(graph).of(graph.gradients[1].value);
  EXPECT_EQ(print_node(graph, *sum),
            "%9: f32[] = aten::add.Tensor(%1, %1, 1) {backward 1 chunk 1}");
}

// Neither a difference nor a sum that broadcasts can be taken apart.
TEST(TiedGradients, OnlyPlainSumsAreTakenApart) {
  EXPECT_NE(after(R"(
  %10: f32[4] = aten::add.Tensor(%7, %9, -1) {backward}
  return loss %5, gradient "w" %10)",
                  false)
                .find("gradient \"w\" %10"),
            std::string::npos);
  EXPECT_NE(after(R"(
  %10: f32[] = aten::sum(%7, none) {backward 1}
  %11: f32[4] = aten::add.Tensor(%9, %10, 1) {backward}
  return loss %5, gradient "w" %11)",
                  false)
                .find("gradient \"w\" %11"),
            std::string::npos);
}

}  // namespace
}  // namespace epl

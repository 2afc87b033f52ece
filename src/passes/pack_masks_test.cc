#include "passes/pack_masks.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "ir/verify.h"
#include "passes/recompute.h"
#include "passes/unpack_masks.h"

namespace epl {
namespace {

std::string text_of(const Graph& graph) { return "\n" + print_graph(graph); }

Graph packed(const std::string& text, bool changes = true) {
  Graph graph = parse_graph(text);
  EXPECT_EQ(PackMasks().run(graph), changes);
  verify_graph(graph, "PackMasks");
  return graph;
}

void unpack(Graph& graph) {
  UnpackMasks().run(graph);
  verify_graph(graph, "UnpackMasks");
}

const char* const kDropout = R"(graph
  %0: f32[4,8] = input 0
  %1: f32[4,8] = parameter "w"
  %2: f32[] = seed
  %3: f32[4,8] = aten::mul.Tensor(%0, %1) {forward}
  %4: f32[4,8] = aten::empty_like(%3, none, none, none, none, 0) {forward}
  %5: f32[4,8] = aten::bernoulli.p(%4, 0.9, none) {forward}
  %6: f32[4,8] = aten::div.Scalar(%5, 0.9) {forward}
  %7: f32[4,8] = aten::mul.Tensor(%3, %6) {forward}
  %8: f32[] = aten::sum(%7, none) {forward}
  %9: f32[4,8]{0,0} @%2 = aten::expand(%2, [4, 8], false) {backward}
  %10: f32[4,8] = aten::mul.Tensor(%9, %6) {backward}
  %11: f32[4,8] = aten::mul.Tensor(%10, %0) {backward}
  return loss %8, gradient "w" %11)";

TEST(PackMasks, LetsReadersSeeTruthValues) {
  EXPECT_EQ(text_of(packed(kDropout)), R"(
graph
  %0: f32[4,8] = input 0
  %1: f32[4,8] = parameter "w"
  %2: f32[] = seed
  %3: f32[4,8] = aten::mul.Tensor(%0, %1) {forward}
  %4: f32[4,8] = aten::empty_like(%3, none, none, none, none, 0) {forward}
  %5: f32[4,8] = aten::bernoulli.p(%4, 0.9, none) {forward}
  %12: b8[4,8] = aten::_to_copy(%5, 11, none, none, none, false, none) {forward}
  %13: f32[4,8] = aten::_to_copy(%12, 6, none, none, none, false, none) {forward}
  %6: f32[4,8] = aten::div.Scalar(%13, 0.9) {forward}
  %7: f32[4,8] = aten::mul.Tensor(%3, %6) {forward}
  %8: f32[] = aten::sum(%7, none) {forward}
  %9: f32[4,8]{0,0} @%2 = aten::expand(%2, [4, 8], false) {backward}
  %10: f32[4,8] = aten::mul.Tensor(%9, %6) {backward}
  %11: f32[4,8] = aten::mul.Tensor(%10, %0) {backward}
  return loss %8, gradient "w" %11
)");
}

TEST(UnpackMasks, LeavesWhatWasThereWhereNothingRunsAgain) {
  Graph graph = packed(kDropout);
  unpack(graph);
  EXPECT_EQ(text_of(graph), text_of(parse_graph(kDropout)));
}

// Forward reads what was drawn; backward makes it again of a byte an element.
TEST(UnpackMasks, LeavesTruthValuesForBackward) {
  Graph graph = packed(kDropout);
  Recompute({4, 5}).run(graph);  // the second cast, and the division
  unpack(graph);
  EXPECT_EQ(text_of(graph), R"(
graph
  %0: f32[4,8] = input 0
  %1: f32[4,8] = parameter "w"
  %2: f32[] = seed
  %3: f32[4,8] = aten::mul.Tensor(%0, %1) {forward}
  %4: f32[4,8] = aten::empty_like(%3, none, none, none, none, 0) {forward}
  %5: f32[4,8] = aten::bernoulli.p(%4, 0.9, none) {forward}
  %12: b8[4,8] = aten::_to_copy(%5, 11, none, none, none, false, none) {forward}
  %6: f32[4,8] = aten::div.Scalar(%5, 0.9) {forward}
  %7: f32[4,8] = aten::mul.Tensor(%3, %6) {forward}
  %8: f32[] = aten::sum(%7, none) {forward}
  %9: f32[4,8]{0,0} @%2 = aten::expand(%2, [4, 8], false) {backward}
  %14: f32[4,8] = aten::_to_copy(%12, 6, none, none, none, false, none) {backward}
  %15: f32[4,8] = aten::div.Scalar(%14, 0.9) {backward}
  %10: f32[4,8] = aten::mul.Tensor(%9, %15) {backward}
  %11: f32[4,8] = aten::mul.Tensor(%10, %0) {backward}
  return loss %8, gradient "w" %11
)");
}

// A mask that broadcasts, which backward reads by a view of it.
TEST(PackMasks, FollowsViews) {
  const std::string text = R"(graph
  %0: f32[4,8] = input 0
  %2: f32[] = seed
  %4: f32[8] = parameter "p"
  %5: f32[8] = aten::bernoulli(%4, none) {forward}
  %6: f32[4,8]{0,1} @%5 = aten::expand(%5, [4, 8], false) {forward}
  %7: f32[4,8] = aten::mul.Tensor(%0, %6) {forward}
  %8: f32[] = aten::sum(%7, none) {forward}
  %10: f32[4,8] = aten::mul.Tensor(%2, %6) {backward}
  %11: f32[8] = aten::sum.dim_IntList(%10, [0], false, none) {backward}
  return loss %8, gradient "p" %11)";
  Graph graph = packed(text);
  EXPECT_NE(text_of(graph).find("%6: f32[4,8]{0,1} @%13 = aten::expand(%13"), std::string::npos)
      << text_of(graph);
  unpack(graph);
  EXPECT_EQ(text_of(graph), text_of(parse_graph(text)));
}

TEST(PackMasks, LeavesMasksThatForwardAloneReads) {
  packed(R"(graph
  %0: f32[4] = input 0
  %1: f32[4] = parameter "w"
  %2: f32[] = seed
  %3: f32[4] = aten::bernoulli.p(%0, 0.5, none) {forward}
  %4: f32[4] = aten::add.Tensor(%1, %3, 1) {forward}
  %5: f32[] = aten::sum(%4, none) {forward}
  %6: f32[4]{0} @%2 = aten::expand(%2, [4], false) {backward}
  return loss %5, gradient "w" %6)",
         false);
}

// Noise of other values is kept as it is.
TEST(PackMasks, LeavesOtherRandomNumbers) {
  packed(R"(graph
  %0: f32[4] = input 0
  %1: f32[4] = parameter "w"
  %2: f32[] = seed
  %3: f32[4] = aten::uniform(%0, 0., 1., none) {forward}
  %4: f32[4] = aten::mul.Tensor(%1, %3) {forward}
  %5: f32[] = aten::sum(%4, none) {forward}
  %6: f32[4] = aten::mul.Tensor(%2, %3) {backward}
  return loss %5, gradient "w" %6)",
         false);
}

// A chunk that is handed a mask is handed what was drawn: what goes between stages stays.
TEST(PackMasks, ReachesTheReadersOfItsOwnChunk) {
  Graph graph = parse_graph(R"(graph
  %0: f32[4] = input 0
  %1: f32[4] = parameter "w"
  %2: f32[] = seed
  %3: f32[4] = aten::bernoulli.p(%0, 0.5, none) {forward}
  %4: f32[4] = aten::mul.Tensor(%1, %3) {forward}
  %5: f32[4] = aten::mul.Tensor(%4, %3) {forward}
  %6: f32[] = aten::sum(%5, none) {forward}
  %7: f32[4] = aten::mul.Tensor(%2, %3) {backward}
  %8: f32[4] = aten::mul.Tensor(%7, %3) {backward}
  return loss %6, gradient "w" %8)");
  for (size_t i : {2, 3, 4}) graph.nodes[i].chunk = 1;
  EXPECT_TRUE(PackMasks().run(graph));
  const auto reads = [&](size_t node, size_t argument) {
    return graph.nodes[node].arguments[argument].values[0];
  };
  EXPECT_NE(reads(3, 1), 3);  // %4, behind the two casts
  EXPECT_EQ(reads(4, 1), 3);  // %5, of the other chunk
  EXPECT_EQ(reads(6, 1), 3);  // %7, likewise
  EXPECT_NE(reads(7, 1), 3);  // %8
}

}  // namespace
}  // namespace epl

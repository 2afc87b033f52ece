#include "passes/recompute.h"

#include <gmock/gmock.h>

#include "ir/text.h"
#include "ir/verify.h"

namespace epl {
namespace {

std::string after(const std::string& text, std::vector<size_t> nodes, bool changes = true) {
  Graph graph = parse_graph(text);
  EXPECT_EQ(Recompute(std::move(nodes)).run(graph), changes);
  verify_graph(graph, "Recompute");
  return "\n" + print_graph(graph);
}

TEST(Recompute, StandsBeforeItsFirstReaderInBackward) {
  EXPECT_EQ(after(R"(graph
  %0: f32[4] = input 0
  %1: f32[4] = parameter "w"
  %2: f32[] = seed
  %3: f32[4] = aten::mul.Tensor(%0, %1) {forward}
  %4: f32[4] = aten::tanh(%3) {forward}
  %5: f32[] = aten::sum(%4, none) {forward}
  %6: f32[4] = aten::mul.Tensor(%0, %2) {backward}
  %7: f32[4] = aten::tanh_backward(%6, %4) {backward}
  %8: f32[4] = aten::mul.Tensor(%7, %4) {backward}
  return loss %5, gradient "w" %8)",
                  {1}),
            R"(
graph
  %0: f32[4] = input 0
  %1: f32[4] = parameter "w"
  %2: f32[] = seed
  %3: f32[4] = aten::mul.Tensor(%0, %1) {forward}
  %4: f32[4] = aten::tanh(%3) {forward}
  %5: f32[] = aten::sum(%4, none) {forward}
  %6: f32[4] = aten::mul.Tensor(%0, %2) {backward}
  %9: f32[4] = aten::tanh(%3) {backward}
  %7: f32[4] = aten::tanh_backward(%6, %9) {backward}
  %8: f32[4] = aten::mul.Tensor(%7, %9) {backward}
  return loss %5, gradient "w" %8
)");
}

TEST(Recompute, MakesChainsInTheirOrder) {
  EXPECT_EQ(after(R"(graph
  %0: f32[4] = input 0
  %1: f32[4] = parameter "w"
  %2: f32[] = seed
  %3: f32[4] = aten::mul.Tensor(%0, %1) {forward}
  %4: f32[4] = aten::tanh(%3) {forward}
  %5: f32[] = aten::sum(%4, none) {forward}
  %7: f32[4] = aten::tanh_backward(%0, %4) {backward}
  %8: f32[4] = aten::mul.Tensor(%7, %3) {backward}
  return loss %5, gradient "w" %8)",
                  {0, 1}),
            R"(
graph
  %0: f32[4] = input 0
  %1: f32[4] = parameter "w"
  %2: f32[] = seed
  %3: f32[4] = aten::mul.Tensor(%0, %1) {forward}
  %4: f32[4] = aten::tanh(%3) {forward}
  %5: f32[] = aten::sum(%4, none) {forward}
  %9: f32[4] = aten::mul.Tensor(%0, %1) {backward}
  %10: f32[4] = aten::tanh(%9) {backward}
  %7: f32[4] = aten::tanh_backward(%0, %10) {backward}
  %8: f32[4] = aten::mul.Tensor(%7, %9) {backward}
  return loss %5, gradient "w" %8
)");
}

// Views of forward are cloned with what they show; one that backward makes shows the clone.
TEST(Recompute, ShowsTheCloneByItsViews) {
  EXPECT_EQ(after(R"(graph
  %0: f32[4,2] = input 0
  %1: f32[4,2] = parameter "w"
  %2: f32[] = seed
  %3: f32[4,2] = aten::mul.Tensor(%0, %1) {forward}
  %4: f32[2,4]{1,2} @%3 = aten::t(%3) {forward}
  %5: f32[] = aten::sum(%4, none) {forward}
  %6: f32[2,4]{1,2} = aten::mul.Tensor(%4, %2) {backward}
  %7: f32[2,4]{1,2} @%3 = aten::t(%3) {backward}
  %8: f32[4,2] = aten::mul.Tensor(%6, %7) {backward}
  return loss %5, gradient "w" %8)",
                  {0}),
            R"(
graph
  %0: f32[4,2] = input 0
  %1: f32[4,2] = parameter "w"
  %2: f32[] = seed
  %3: f32[4,2] = aten::mul.Tensor(%0, %1) {forward}
  %4: f32[2,4]{1,2} @%3 = aten::t(%3) {forward}
  %5: f32[] = aten::sum(%4, none) {forward}
  %9: f32[4,2] = aten::mul.Tensor(%0, %1) {backward}
  %10: f32[2,4]{1,2} @%9 = aten::t(%9) {backward}
  %6: f32[2,4]{1,2} = aten::mul.Tensor(%10, %2) {backward}
  %7: f32[2,4]{1,2} @%9 = aten::t(%9) {backward}
  %8: f32[4,2] = aten::mul.Tensor(%6, %7) {backward}
  return loss %5, gradient "w" %8
)");
}

TEST(Recompute, OfBatchNormLeavesItsStatisticsAlone) {
  EXPECT_THAT(after(R"(graph
  %0: f32[4,2] = input 0
  %1: f32[2] = parameter "w"
  %2: f32[2] = state "mean"
  %3: f32[2] = state "var"
  %9: f32[] = seed
  %4: f32[4,2], %5: f32[2], %6: f32[2] = aten::native_batch_norm(%0, %1, _, %2, %3, true, 0.1, 1e-05) {forward}
  %7: f32[] = aten::sum(%4, none) {forward}
  %8: f32[2] = aten::sum.dim_IntList(%4, [0], false, none) {backward}
  return loss %7, gradient "w" %8)",
                    {0}),
              testing::HasSubstr("aten::native_batch_norm(%0, %1, _, _, _, true, 0.1, 1e-05) "
                                 "{backward}"));
}

TEST(Recompute, LeavesWhatBackwardDoesNotRead) {
  after(R"(graph
  %0: f32[4] = input 0
  %1: f32[4] = parameter "w"
  %2: f32[] = seed
  %3: f32[4] = aten::mul.Tensor(%0, %1) {forward}
  %5: f32[] = aten::sum(%3, none) {forward}
  %6: f32[4] = aten::mul.Tensor(%0, %2) {backward}
  return loss %5, gradient "w" %6)",
        {0}, false);
}

// Another stage of a pipeline has received the value.
TEST(Recompute, IsReadInItsOwnChunkAlone) {
  Graph graph = parse_graph(R"(graph
  %0: f32[4] = input 0
  %1: f32[4] = parameter "w"
  %2: f32[] = seed
  %3: f32[4] = aten::mul.Tensor(%0, %1) {forward}
  %5: f32[] = aten::sum(%3, none) {forward}
  %6: f32[4] = aten::mul.Tensor(%3, %2) {backward}
  %7: f32[4] = aten::mul.Tensor(%6, %3) {backward}
  return loss %5, gradient "w" %7)");
  graph.nodes[1].chunk = 1;
  graph.nodes[2].chunk = 1;
  EXPECT_TRUE(Recompute({0}).run(graph));
  verify_graph(graph, "Recompute");
  EXPECT_THAT(print_graph(graph), testing::HasSubstr("%6: f32[4] = aten::mul.Tensor(%3, %2)"));
  EXPECT_THAT(print_graph(graph), testing::HasSubstr("%7: f32[4] = aten::mul.Tensor(%6, %8)"));
}

}  // namespace
}  // namespace epl

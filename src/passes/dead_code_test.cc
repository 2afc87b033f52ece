#include "passes/dead_code.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "ir/verify.h"
#include "passes/own_gradients.h"

namespace epl {
namespace {

template <typename AnyPass>
std::string after(const std::string& text, bool changes = true) {
  Graph graph = parse_graph(text);
  EXPECT_EQ(AnyPass().run(graph), changes);
  verify_graph(graph, AnyPass().name());
  return "\n" + print_graph(graph);
}

std::string same(const std::string& text) { return "\n" + print_graph(parse_graph(text)); }

TEST(DeadCode, DropsWhatNobodyReads) {
  EXPECT_EQ(after<DeadCode>(R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::exp(%0) {forward}
  %2: f32[4] = aten::relu(%0) {forward}
  return loss %9, metric all "y" %2)"),
            R"(
graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %2: f32[4] = aten::relu(%0) {forward}
  return loss %9, metric all "y" %2
)");
}

TEST(DeadCode, DropsAChainWhoseEndNobodyReads) {
  EXPECT_EQ(after<DeadCode>(R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::exp(%0) {forward}
  %2: f32[2] @%1 = aten::slice.Tensor(%1, 0, 0, 2, 1) {forward}
  %3: f32[2] = aten::exp(%2) {backward}
  return loss %9, metric all "y" %0)"),
            R"(
graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  return loss %9, metric all "y" %0
)");
}

TEST(DeadCode, KeepsWhatOnlyChecksAndThrows) {
  const std::string text = R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: b8[] = aten::all(%0) {forward}
  () = aten::_assert_async(%1) {forward}
  return loss %9, metric all "y" %0)";
  EXPECT_EQ(after<DeadCode>(text, /*changes=*/false), same(text));
}

// The values of a sparse tensor, shown twice: the second time they share memory with the first.
TEST(DeadCode, KeepsTheNodeThatNamesAStorage) {
  const std::string text = R"(graph
  %9: f32[] = seed
  %0: sparse f32[4,2] = input 0
  %1: f32[4,2] = aten::_values(%0) {forward}
  %2: f32[4,2] @%1 = aten::_values(%0) {forward}
  return loss %9, metric all "y" %2)";
  EXPECT_EQ(after<DeadCode>(text, /*changes=*/false), same(text));
}

TEST(DeadCode, KeepsWhatLossMetricsAndGradientsRead) {
  const std::string text = R"(graph
  %0: f32[4] = parameter "w"
  %1: f32[4] = aten::exp(%0) {forward}
  %2: f32[] = aten::sum(%1, none) {forward}
  %3: f32[4] = aten::relu(%0) {forward}
  %4: f32[4] = aten::neg(%0) {backward}
  return loss %2, metric global_mean_objects "x" %3, gradient "w" %4)";
  EXPECT_EQ(after<DeadCode>(text, /*changes=*/false), same(text));
}

TEST(DeadCode, KeepsANodeForOneOfItsResults) {
  const std::string text = R"(graph
  %9: f32[] = seed
  %0: f32[2,3] = input 0
  %1: f32[2], %2: i64[2] = aten::max.dim(%0, 1, false) {forward}
  return loss %9, metric all "y" %2)";
  EXPECT_EQ(after<DeadCode>(text, /*changes=*/false), same(text));
}

TEST(DeadCode, KeepsRandomNodesAndWhatTheyRead) {
  const std::string text = R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::exp(%0) {forward}
  %2: f32[4] = aten::bernoulli.p(%1, 0.5, none) {forward}
  %3: f32[4] = aten::randn_like(%0, none, none, none, none, none) {forward}
  return loss %9, metric all "y" %0)";
  EXPECT_EQ(after<DeadCode>(text, /*changes=*/false), same(text));
}

TEST(DeadCode, KeepsWritesOfState) {
  const std::string text = R"(graph
  %9: f32[] = seed
  %0: f32[4,3] = input 0
  %1: f32[3] = state "mean"
  %2: f32[3] = state "variance"
  %3: f32[4,3], %4: f32[3], %5: f32[3] = aten::native_batch_norm(%0, _, _, %1, %2, true, 0.1, 1e-05) {forward}
  %6: f32[3] = aten::mean.dim(%0, [0], false, none) {forward}
  %7: f32[3] @%1 = aten::add_.Tensor(%1, %6, 1) {forward}
  return loss %9, metric all "y" %0)";
  EXPECT_EQ(after<DeadCode>(text, /*changes=*/false), same(text));
}

TEST(DeadCode, DropsAReadOfRunningStatistics) {
  EXPECT_EQ(after<DeadCode>(R"(graph
  %9: f32[] = seed
  %0: f32[4,3] = input 0
  %1: f32[3] = state "mean"
  %2: f32[3] = state "variance"
  %3: f32[4,3], %4: f32[3], %5: f32[3] = aten::native_batch_norm(%0, _, _, %1, %2, false, 0.1, 1e-05) {forward}
  return loss %9, metric all "y" %0)"),
            R"(
graph
  %9: f32[] = seed
  %0: f32[4,3] = input 0
  %1: f32[3] = state "mean"
  %2: f32[3] = state "variance"
  return loss %9, metric all "y" %0
)");
}

// %1 is read after two of its writes were made through other values.
TEST(DeadCode, KeepsWritesThatALaterReaderOfTheStorageSees) {
  EXPECT_EQ(after<DeadCode>(R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::neg(%0) {forward}
  %2: f32[2] @%1 = aten::slice.Tensor(%1, 0, 0, 2, 1) {forward}
  %3: f32[2] @%1 = aten::relu_(%2) {forward}
  %4: f32[4] = aten::exp(%1) {forward}
  %5: f32[4] @%1 = aten::zero_(%1) {forward}
  return loss %9, metric all "y" %4)"),
            R"(
graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::neg(%0) {forward}
  %2: f32[2] @%1 = aten::slice.Tensor(%1, 0, 0, 2, 1) {forward}
  %3: f32[2] @%1 = aten::relu_(%2) {forward}
  %4: f32[4] = aten::exp(%1) {forward}
  return loss %9, metric all "y" %4
)");
}

TEST(DeadCode, KeepsWhatTheStepReadBack) {
  const std::string text = R"(graph
  %0: f32[] = input 0
  %1: f32[] = aten::exp(%0) {forward}
  () = aten::_local_scalar_dense(%1) {forward} expects 0.5
  return loss %0)";
  EXPECT_EQ(after<DeadCode>(text, /*changes=*/false), same(text));
}

TEST(DeadCode, DropsConstantsThatNobodyReads) {
  EXPECT_EQ(after<DeadCode>(R"(graph
  %0: f32[] = constant "a" 1.0
  %1: f32[4] = parameter "w"
  %2: f32[] = constant "b" 2.0
  %3: f32[4] = aten::mul.Tensor(%1, %0) {forward}
  %4: f32[] = aten::mul.Tensor(%2, %2) {forward}
  return loss %0, gradient "w" %1)"),
            R"(
graph
  %0: f32[] = constant "a" 1.0
  %1: f32[4] = parameter "w"
  return loss %0, gradient "w" %1
)");
}

TEST(DeadCode, MovesGradientsWithTheirParameters) {
  EXPECT_EQ(after<DeadCode>(R"(graph
  %0: f32[] = constant "a" 1.0
  %1: f32[4] = constant "b"
  %2: f32[4] = parameter "w"
  %3: f32[] = aten::sum(%2, none) {forward}
  %4: f32[] = aten::sum(%1, none) {forward}
  return loss %3, gradient "w" %2)"),
            R"(
graph
  %2: f32[4] = parameter "w"
  %3: f32[] = aten::sum(%2, none) {forward}
  return loss %3, gradient "w" %2
)");
}

TEST(DeadCode, KeepsInputsParametersAndState) {
  const std::string text = R"(graph
  %0: f32[] = input 0
  %1: f32[4] = input 1
  %2: f32[4] = parameter "w"
  %3: f32[4] = state "s"
  %4: f32[] = seed
  return loss %0)";
  EXPECT_EQ(after<DeadCode>(text, /*changes=*/false), same(text));
}

// The view of a constant lies in the storage that the first one names.
TEST(DeadCode, KeepsAConstantThatNamesAStorage) {
  const std::string text = R"(graph
  %0: f32[4] = constant "a"
  %1: f32[2]+2 @%0 = constant "b"
  %2: f32[2,1]+2 @%0 = aten::unsqueeze(%1, 1) {forward}
  %3: f32[] = aten::sum(%2, none) {forward}
  return loss %3)";
  EXPECT_EQ(after<DeadCode>(text, /*changes=*/false), same(text));
}

TEST(OwnGradients, LeavesGradientsThatStandAlone) {
  const std::string text = R"(graph
  %0: f32[4,2] = parameter "w"
  %1: f32[] = aten::sum(%0, none) {forward}
  %2: f32[2,4] = aten::ones([2, 4], 6, none, none, none) {backward}
  %3: f32[4,2]{1,4} @%2 = aten::t(%2) {backward}
  return loss %1, gradient "w" %3)";
  EXPECT_EQ(after<OwnGradients>(text, /*changes=*/false), same(text));
}

TEST(OwnGradients, CopiesAGradientThatTwoParametersShare) {
  EXPECT_EQ(after<OwnGradients>(R"(graph
  taskgraph 0 replicate(1, "")
  %0: f32[4] = parameter "a"
  %1: f32[2,2] = parameter "b"
  %2: f32[] = aten::sum(%0, none) {forward}
  %3: f32[4] = aten::exp(%0) {backward 0}
  %4: f32[2,2] @%3 = aten::view(%3, [2, 2]) {backward 0}
  return loss %2, gradient "a" %3, gradient "b" %4)"),
            R"(
graph
  taskgraph 0 replicate(1, "")
  %0: f32[4] = parameter "a"
  %1: f32[2,2] = parameter "b"
  %2: f32[] = aten::sum(%0, none) {forward}
  %3: f32[4] = aten::exp(%0) {backward 0}
  %4: f32[2,2] @%3 = aten::view(%3, [2, 2]) {backward 0}
  %5: f32[2,2] = aten::clone(%4, 0) {backward 0}
  return loss %2, gradient "a" %3, gradient "b" %5
)");
}

TEST(OwnGradients, CopiesAnExpandedGradient) {
  EXPECT_EQ(after<OwnGradients>(R"(graph
  %0: f32[4] = parameter "w"
  %1: f32[] = aten::sum(%0, none) {forward}
  %2: f32[] = aten::neg(%1) {backward}
  %3: f32[4]{0} @%2 = aten::expand(%2, [4], false) {backward}
  return loss %1, gradient "w" %3)"),
            R"(
graph
  %0: f32[4] = parameter "w"
  %1: f32[] = aten::sum(%0, none) {forward}
  %2: f32[] = aten::neg(%1) {backward}
  %3: f32[4]{0} @%2 = aten::expand(%2, [4], false) {backward}
  %4: f32[4] = aten::clone(%3, 0) {backward}
  return loss %1, gradient "w" %4
)");
}

TEST(OwnGradients, CopiesTheSeed) {
  EXPECT_EQ(after<OwnGradients>(R"(graph
  %0: f32[] = parameter "w"
  %1: f32[] = seed
  %2: f32[] = aten::exp(%0) {forward}
  return loss %2, gradient "w" %1)"),
            R"(
graph
  %0: f32[] = parameter "w"
  %1: f32[] = seed
  %2: f32[] = aten::exp(%0) {forward}
  %3: f32[] = aten::clone(%1, 0) {backward}
  return loss %2, gradient "w" %3
)");
}

TEST(OwnGradients, CopiesWhatIsLossOrMetricToo) {
  EXPECT_EQ(after<OwnGradients>(R"(graph
  %0: f32[] = parameter "a"
  %1: f32[] = parameter "b"
  %2: f32[] = aten::exp(%0) {forward}
  %3: f32[] = aten::exp(%1) {forward}
  return loss %2, metric global_mean_objects "m" %3, gradient "a" %2, gradient "b" %3)"),
            R"(
graph
  %0: f32[] = parameter "a"
  %1: f32[] = parameter "b"
  %2: f32[] = aten::exp(%0) {forward}
  %3: f32[] = aten::exp(%1) {forward}
  %4: f32[] = aten::clone(%2, 0) {backward}
  %5: f32[] = aten::clone(%3, 0) {backward}
  return loss %2, metric global_mean_objects "m" %3, gradient "a" %4, gradient "b" %5
)");
}

TEST(OwnGradients, LeavesSparseGradientsAlone) {
  const std::string text = R"(graph
  %0: f32[4,2] = parameter "w"
  %1: f32[] = aten::sum(%0, none) {forward}
  %2: sparse f32[4,2] = aten::to_sparse(%0) {backward}
  return loss %1, gradient "w" %2)";
  EXPECT_EQ(after<OwnGradients>(text, /*changes=*/false), same(text));
}

}  // namespace
}  // namespace epl

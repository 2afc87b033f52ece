#include "passes/purify.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "ir/verify.h"

namespace epl {
namespace {

// The statements of a graph after the pass, between "graph" and "return", and what is returned.
std::string purified(const std::string& text) {
  Graph graph = parse_graph(text);
  Purify().run(graph);
  verify_graph(graph, "Purify");
  return "\n" + print_graph(graph);
}

std::string same(const std::string& text) { return "\n" + print_graph(parse_graph(text)); }

TEST(Purify, LeavesAPureGraphAlone) {
  Graph graph = parse_graph(R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::relu(%0) {forward}
  return loss %9, metric all "y" %1)");
  const std::string before = print_graph(graph);
  EXPECT_FALSE(Purify().run(graph));
  EXPECT_EQ(print_graph(graph), before);
}

TEST(Purify, ReadsTheNewValueWhereTheOldOneWasWritten) {
  EXPECT_EQ(purified(R"(graph
  taskgraph 0 replicate(1, "")
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::neg(%0) {forward 0}
  %2: f32[4] @%1 = aten::relu_(%1) {forward 0}
  %3: f32[4] = aten::tanh(%1) {forward}
  %4: f32[4] = aten::tanh(%2) {forward}
  return loss %9, metric all "y" %1)"),
            R"(
graph
  taskgraph 0 replicate(1, "")
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::neg(%0) {forward 0}
  %10: f32[4] = aten::relu(%1) {forward 0}
  %3: f32[4] = aten::tanh(%10) {forward}
  %4: f32[4] = aten::tanh(%10) {forward}
  return loss %9, metric all "y" %10
)");
}

TEST(Purify, FollowsAChainOfWrites) {
  EXPECT_EQ(purified(R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::neg(%0) {forward}
  %2: f32[4] @%1 = aten::add_.Scalar(%1, 1, 1) {forward}
  %3: f32[4] @%1 = aten::mul_.Tensor(%2, %1) {forward}
  %4: f32[4] @%1 = aten::clamp_(%3, 0, none) {backward}
  return loss %9, metric all "y" %1)"),
            R"(
graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::neg(%0) {forward}
  %10: f32[4] = aten::add.Scalar(%1, 1, 1) {forward}
  %11: f32[4] = aten::mul.Tensor(%10, %10) {forward}
  %12: f32[4] = aten::clamp(%11, 0, none) {backward}
  return loss %9, metric all "y" %12
)");
}

TEST(Purify, KeepsWhatWasReadBeforeTheWrite) {
  EXPECT_EQ(purified(R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::neg(%0) {forward}
  %2: f32[4] = aten::exp(%1) {forward}
  %3: f32[4] @%1 = aten::relu_(%1) {forward}
  %4: f32[4] = aten::mul.Tensor(%2, %1) {backward}
  return loss %9, metric all "y" %4)"),
            R"(
graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::neg(%0) {forward}
  %2: f32[4] = aten::exp(%1) {forward}
  %10: f32[4] = aten::relu(%1) {forward}
  %4: f32[4] = aten::mul.Tensor(%2, %10) {backward}
  return loss %9, metric all "y" %4
)");
}

TEST(Purify, SeesAViewThroughItsWrittenBase) {
  EXPECT_EQ(purified(R"(graph
  %9: f32[] = seed
  %0: f32[4,2] = input 0
  %1: f32[4,2] = aten::neg(%0) {forward}
  %2: f32[4]{2}+1 @%1 = aten::select.int(%1, 1, 1) {forward}
  %3: f32[4,2] @%1 = aten::relu_(%1) {forward}
  %4: f32[4] = aten::exp(%2) {backward}
  %5: f32[4] = aten::exp(%2) {backward}
  return loss %9, metric all "y" %4)"),
            R"(
graph
  %9: f32[] = seed
  %0: f32[4,2] = input 0
  %1: f32[4,2] = aten::neg(%0) {forward}
  %2: f32[4]{2}+1 @%1 = aten::select.int(%1, 1, 1) {forward}
  %10: f32[4,2] = aten::relu(%1) {forward}
  %11: f32[4]{2}+1 @%10 = aten::as_strided(%10, [4], [2], 1) {backward}
  %4: f32[4] = aten::exp(%11) {backward}
  %5: f32[4] = aten::exp(%11) {backward}
  return loss %9, metric all "y" %4
)");
}

TEST(Purify, TakesViewsOfWhatWasWrittenFromTheNewValue) {
  EXPECT_EQ(purified(R"(graph
  %9: f32[] = seed
  %0: f32[4,2] = input 0
  %1: f32[4,2] = aten::neg(%0) {forward}
  %2: f32[4,2] @%1 = aten::relu_(%1) {forward}
  %3: f32[2,4]{1,2} @%1 = aten::t(%2) {forward}
  [%4: f32[4]{2} @%1, %5: f32[4]{2}+1 @%1] = aten::unbind.int(%3, 0) {forward}
  %6: f32[4] = aten::exp(%5) {forward}
  return loss %9, metric all "y" %6)"),
            R"(
graph
  %9: f32[] = seed
  %0: f32[4,2] = input 0
  %1: f32[4,2] = aten::neg(%0) {forward}
  %10: f32[4,2] = aten::relu(%1) {forward}
  %11: f32[2,4]{1,2} @%10 = aten::t(%10) {forward}
  [%12: f32[4]{2} @%10, %13: f32[4]{2}+1 @%10] = aten::unbind.int(%11, 0) {forward}
  %6: f32[4] = aten::exp(%13) {forward}
  return loss %9, metric all "y" %6
)");
}

TEST(Purify, PutsAPartThatWasWrittenBackIntoTheWhole) {
  EXPECT_EQ(purified(R"(graph
  %9: f32[] = seed
  %0: f32[4,2] = input 0
  %1: f32[4,2] = aten::neg(%0) {forward}
  %2: f32[4]{2}+1 @%1 = aten::select.int(%1, 1, 1) {forward}
  %3: f32[4]{2}+1 @%1 = aten::relu_(%2) {forward}
  %4: f32[4,2] = aten::exp(%1) {backward}
  return loss %9, metric all "y" %1)"),
            R"(
graph
  %9: f32[] = seed
  %0: f32[4,2] = input 0
  %1: f32[4,2] = aten::neg(%0) {forward}
  %2: f32[4]{2}+1 @%1 = aten::select.int(%1, 1, 1) {forward}
  %10: f32[4] = aten::relu(%2) {forward}
  %11: f32[4,2] = aten::as_strided_scatter(%1, %10, [4], [2], 1) {backward}
  %4: f32[4,2] = aten::exp(%11) {backward}
  return loss %9, metric all "y" %11
)");
}

TEST(Purify, PutsPartsTogetherInTheOrderOfTheirWrites) {
  EXPECT_EQ(purified(R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::neg(%0) {forward}
  %2: f32[3] @%1 = aten::slice.Tensor(%1, 0, 0, 3, 1) {forward}
  %3: f32[3]+1 @%1 = aten::slice.Tensor(%1, 0, 1, 4, 1) {forward}
  %4: f32[3] @%1 = aten::relu_(%2) {forward}
  %5: f32[3]+1 @%1 = aten::exp_(%3) {forward}
  %6: f32[4] = aten::tanh(%1) {forward}
  return loss %9, metric all "y" %6)"),
            R"(
graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::neg(%0) {forward}
  %2: f32[3] @%1 = aten::slice.Tensor(%1, 0, 0, 3, 1) {forward}
  %3: f32[3]+1 @%1 = aten::slice.Tensor(%1, 0, 1, 4, 1) {forward}
  %10: f32[3] = aten::relu(%2) {forward}
  %11: f32[4] = aten::as_strided_scatter(%1, %10, [3], [1], 0) {forward}
  %12: f32[3]+1 @%11 = aten::as_strided(%11, [3], [1], 1) {forward}
  %13: f32[3] = aten::exp(%12) {forward}
  %14: f32[4] = aten::as_strided_scatter(%11, %13, [3], [1], 1) {forward}
  %6: f32[4] = aten::tanh(%14) {forward}
  return loss %9, metric all "y" %6
)");
}

// As LSTM does with its gates.
TEST(Purify, NeedsNoWholeForChunksThatDoNotOverlap) {
  EXPECT_EQ(purified(R"(graph
  %9: f32[] = seed
  %0: f32[3,4] = input 0
  %1: f32[3,4] = aten::neg(%0) {forward}
  [%2: f32[3,2]{4,1} @%1, %3: f32[3,2]{4,1}+2 @%1] = aten::split.Tensor(%1, 2, 1) {forward}
  %4: f32[3,2]{4,1} @%1 = aten::sigmoid_(%2) {forward}
  %5: f32[3,2]{4,1}+2 @%1 = aten::tanh_(%3) {forward}
  %6: f32[3,2] = aten::mul.Tensor(%2, %5) {forward}
  return loss %9, metric all "y" %6)"),
            R"(
graph
  %9: f32[] = seed
  %0: f32[3,4] = input 0
  %1: f32[3,4] = aten::neg(%0) {forward}
  [%2: f32[3,2]{4,1} @%1, %3: f32[3,2]{4,1}+2 @%1] = aten::split.Tensor(%1, 2, 1) {forward}
  %10: f32[3,2] = aten::sigmoid(%2) {forward}
  %11: f32[3,2] = aten::tanh(%3) {forward}
  %6: f32[3,2] = aten::mul.Tensor(%10, %11) {forward}
  return loss %9, metric all "y" %6
)");
}

TEST(Purify, LeavesWritesOfStateInPlace) {
  const std::string text = R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = state "mean"
  %2: f32[2]+2 @%1 = aten::slice.Tensor(%1, 0, 2, 4, 1) {forward}
  %3: f32[2]+2 @%1 = aten::mul_.Scalar(%2, 0.5) {forward}
  %4: f32[4] = parameter "w"
  %5: f32[4] @%4 = aten::clamp_(%4, 0, none) {forward}
  %6: f32[4] = constant "table"
  %7: f32[4] @%6 = aten::add_.Tensor(%6, %0, 1) {forward}
  return loss %9, metric all "y" %7)";
  EXPECT_EQ(purified(text), same(text));
}

TEST(Purify, LeavesRunningStatisticsInPlace) {
  const std::string text = R"(graph
  %9: f32[] = seed
  %0: f32[4,3] = input 0
  %1: f32[3] = state "mean"
  %2: f32[3] = state "variance"
  %3: f32[4,3], %4: f32[3], %5: f32[3] = aten::native_batch_norm(%0, _, _, %1, %2, true, 0.1, 1e-05) {forward}
  return loss %9, metric all "y" %3)";
  EXPECT_EQ(purified(text), same(text));
}

TEST(Purify, WritesAnInputIntoANewValue) {
  EXPECT_EQ(purified(R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] @%0 = aten::relu_(%0) {forward}
  %2: f32[4] = aten::exp(%0) {forward}
  return loss %9, metric all "y" %2)"),
            R"(
graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %10: f32[4] = aten::relu(%0) {forward}
  %2: f32[4] = aten::exp(%10) {forward}
  return loss %9, metric all "y" %2
)");
}

TEST(Purify, FillsAnEmptyTensor) {
  EXPECT_EQ(purified(R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::empty.memory_format([4], 6, none, none, false, none) {forward}
  %2: f32[4] @%1 = aten::bernoulli_.float(%1, 0.5, none) {forward}
  %3: f32[4] @%1 = aten::copy_(%1, %0, false) {forward}
  %4: f32[4] = aten::exp(%1) {forward}
  return loss %9, metric all "y" %4)"),
            R"(
graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::empty.memory_format([4], 6, none, none, false, none) {forward}
  %10: f32[4] = aten::bernoulli.p(%1, 0.5, none) {forward}
  %11: f32[4] = aten::copy(%10, %0, false) {forward}
  %4: f32[4] = aten::exp(%11) {forward}
  return loss %9, metric all "y" %4
)");
}

TEST(Purify, WritesOutArgumentsIntoANewValue) {
  EXPECT_EQ(purified(R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::neg(%0) {forward}
  %2: f32[4] @%1 = aten::add.out(%0, %1, 1, %1) {forward}
  %3: f32[4] = aten::exp(%1) {forward}
  return loss %9, metric all "y" %3)"),
            R"(
graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::neg(%0) {forward}
  %10: f32[4] = aten::add.Tensor(%0, %1, 1) {forward}
  %3: f32[4] = aten::exp(%10) {forward}
  return loss %9, metric all "y" %3
)");
}

// LibTorch gives an empty out= the shape of the result: the value written is larger than the one
// that was handed over.
TEST(Purify, LeavesAnOutArgumentThatGrowsInPlace) {
  const std::string text = R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[0] = aten::zeros([0], 6, none, none, none) {forward}
  %2: f32[4] @%1 = aten::add.out(%0, %0, 1, %1) {forward}
  %3: f32[4] = aten::exp(%2) {forward}
  return loss %9, metric all "y" %3)";
  EXPECT_EQ(purified(text), same(text));
}

TEST(Purify, LeavesAResizedTensorInPlace) {
  const std::string text = R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::neg(%0) {forward}
  %2: f32[2] @%1 = aten::resize_(%1, [2], none) {forward}
  %3: f32[2] @%1 = aten::relu_(%2) {forward}
  return loss %9, metric all "y" %3)";
  EXPECT_EQ(purified(text), same(text));
}

// add_ rounds to f16; add would give f32.
TEST(Purify, LeavesAWriteInPlaceThatPromotionWouldWiden) {
  const std::string text = R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f16[4] = aten::zeros([4], 5, none, none, none) {forward}
  %2: f16[4] @%1 = aten::add_.Tensor(%1, %0, 1) {forward}
  %3: f16[4] @%1 = aten::relu_(%2) {forward}
  return loss %9, metric all "y" %3)";
  EXPECT_EQ(purified(text), same(text));
}

TEST(Purify, TakesWhatPromotionDoesNotWiden) {
  EXPECT_EQ(purified(R"(graph
  %9: f32[] = seed
  %0: i64[4] = input 0
  %1: f64[] = input 1
  %2: f32[4] = aten::zeros([4], 6, none, none, none) {forward}
  %3: f32[4] @%2 = aten::add_.Tensor(%2, %0, 1) {forward}
  %4: f32[4] @%2 = aten::mul_.Tensor(%2, %1) {forward}
  return loss %9, metric all "y" %4)"),
            R"(
graph
  %9: f32[] = seed
  %0: i64[4] = input 0
  %1: f64[] = input 1
  %2: f32[4] = aten::zeros([4], 6, none, none, none) {forward}
  %10: f32[4] = aten::add.Tensor(%2, %0, 1) {forward}
  %11: f32[4] = aten::mul.Tensor(%10, %1) {forward}
  return loss %9, metric all "y" %11
)");
}

// Two single numbers promote as tensors do.
TEST(Purify, LeavesASingleNumberInPlaceThatPromotionWouldWiden) {
  const std::string text = R"(graph
  %0: f64[] = input 0
  %1: f32[] = aten::zeros([], 6, none, none, none) {forward}
  %2: f32[] @%1 = aten::add_.Tensor(%1, %0, 1) {forward}
  return loss %2)";
  EXPECT_EQ(purified(text), same(text));
}

// lt_ writes 0 and 1 into f32; lt would give truth values.
TEST(Purify, LeavesAComparisonInPlace) {
  const std::string text = R"(graph
  %9: f32[] = seed
  %0: f32[4] = input 0
  %1: f32[4] = aten::neg(%0) {forward}
  %2: f32[4] @%1 = aten::lt_.Scalar(%1, 0) {forward}
  return loss %9, metric all "y" %2)";
  EXPECT_EQ(purified(text), same(text));
}

// normal_ draws element by element where a tensor has gaps, else in blocks of 16.
TEST(Purify, LeavesRandomNumbersInPlaceWhereTheTensorHasGaps) {
  const std::string text = R"(graph
  %9: f32[] = seed
  %0: f32[4,8] = input 0
  %1: f32[4,8] = aten::neg(%0) {forward}
  %2: f32[4,4]{8,1} @%1 = aten::slice.Tensor(%1, 1, 0, 4, 1) {forward}
  %3: f32[4,4]{8,1} @%1 = aten::normal_(%2, 0.0, 1.0, none) {forward}
  return loss %9, metric all "y" %1)";
  EXPECT_EQ(purified(text), same(text));
}

TEST(Purify, LeavesStoragesInPlaceThatAreSeenAsAnotherType) {
  const std::string text = R"(graph
  %9: f32[] = seed
  %0: c64[4] = input 0
  %1: c64[4] = aten::neg(%0) {forward}
  %2: f32[4,2] @%1 = aten::view_as_real(%1) {forward}
  %3: c64[4] @%1 = aten::mul_.Tensor(%1, %0) {forward}
  %4: f32[4,2] = aten::exp(%2) {forward}
  return loss %9, metric all "y" %4)";
  EXPECT_EQ(purified(text), same(text));
}

TEST(Purify, LeavesStoragesInPlaceThatAreSeenFromTheMiddleByAsStrided) {
  const std::string text = R"(graph
  %9: f32[] = seed
  %0: f32[8] = input 0
  %1: f32[8] = aten::neg(%0) {forward}
  %2: f32[4]+4 @%1 = aten::slice.Tensor(%1, 0, 4, 8, 1) {forward}
  %3: f32[4]+4 @%1 = aten::relu_(%2) {forward}
  %4: f32[2]+4 @%1 = aten::as_strided(%3, [2], [1], none) {forward}
  return loss %9, metric all "y" %4)";
  EXPECT_EQ(purified(text), same(text));
}

TEST(Purify, ChangesTheViewWhereOnlyTheViewChanges) {
  EXPECT_EQ(purified(R"(graph
  %9: f32[] = seed
  %0: f32[4,2] = input 0
  %1: f32[4,2] = aten::neg(%0) {forward}
  %2: f32[2,4]{1,2} @%1 = aten::transpose_(%1, 0, 1) {forward}
  %3: f32[2,4]{1,2} @%1 = aten::relu_(%2) {forward}
  %4: f32[2,4]{1,2} = aten::exp(%3) {forward}
  return loss %9, metric all "y" %4)"),
            R"(
graph
  %9: f32[] = seed
  %0: f32[4,2] = input 0
  %1: f32[4,2] = aten::neg(%0) {forward}
  %2: f32[2,4]{1,2} @%1 = aten::transpose.int(%1, 0, 1) {forward}
  %10: f32[2,4]{1,2} = aten::relu(%2) {forward}
  %4: f32[2,4]{1,2} = aten::exp(%10) {forward}
  return loss %9, metric all "y" %4
)");
}

// Also where what lies there cannot be made pure; a parameter of the user's stays as he left it.
TEST(Purify, ChangesTheViewOfWhatDependsOnItsPlace) {
  const std::string rest = R"((%1, 1) {forward}
  %3: f32[4,2] @%1 = aten::as_strided(%2, [4, 2], [2, 1], none) {forward}
  return loss %9, metric all "y" %3)";
  const std::string made = R"(graph
  %9: f32[] = seed
  %0: f32[4,2] = input 0
  %1: f32[4,2] = aten::neg(%0) {forward}
  %2: f32[4,1,2] @%1 = aten::)";
  EXPECT_EQ(purified(made + "unsqueeze_" + rest), same(made + "unsqueeze" + rest));
  const std::string kept = R"(graph
  %9: f32[] = seed
  %1: f32[4,2] = state "shown"
  %2: f32[4,1,2] @%1 = aten::unsqueeze_)";
  EXPECT_EQ(purified(kept + rest), same(kept + rest));
}

TEST(Purify, ReturnsWhatWasWrittenLast) {
  EXPECT_EQ(purified(R"(graph
  %0: f32[4] = parameter "w"
  %1: f32[4] = aten::neg(%0) {forward}
  %2: f32[] = aten::sum(%1, none) {forward}
  %3: f32[4] @%1 = aten::zero_(%1) {forward}
  return loss %2, metric global_mean_objects "x" %1, gradient "w" %3)"),
            R"(
graph
  %0: f32[4] = parameter "w"
  %1: f32[4] = aten::neg(%0) {forward}
  %2: f32[] = aten::sum(%1, none) {forward}
  %4: f32[4] = aten::zero(%1) {forward}
  return loss %2, metric global_mean_objects "x" %4, gradient "w" %4
)");
}

struct Pair {
  const char* a;
  const char* b;
  bool overlap;
};

TensorType type(const std::string& text) {
  return parse_graph("%0: " + text + " = input 0\nreturn loss %0").value(0).type;
}

TEST(MayOverlap, IsExactForPlacesOfOneShape) {
  const Pair table[] = {
      {"f32[4]", "f32[4]", true},
      {"f32[4]", "f32[4]+4", false},                // one after another
      {"f32[4]", "f32[4]+3", true},                 // the last is the first
      {"f32[4]{2}", "f32[4]{2}+1", false},          // interleaved
      {"f32[4]{2}", "f32[4]{2}+2", true},           // interleaved, but on the same elements
      {"f32[4]{2}", "f32[4]{2}+7", false},          // beyond the last
      {"f32[3,2]{8,1}", "f32[3,2]{8,1}+2", false},  // columns of one matrix
      {"f32[3,2]{8,1}", "f32[3,2]{8,1}+6", false},
      {"f32[3,2]{8,1}", "f32[3,2]{8,1}+1", true},
      {"f32[3,2]{8,1}", "f32[3,2]{8,1}+8", true},  // rows 1 and 2 are rows 0 and 1
      {"f32[3,2]{8,1}", "f32[3,2]{8,1}+7", true},  // column 7 and the next row's column 0
      {"f32[3,2]{8,1}", "f32[3,2]{8,1}+15", true},
      {"f32[3,2]{8,1}", "f32[3,2]{8,1}+14", false},
      {"f32[2,3]{1,8}", "f32[2,3]{1,8}+2", false},  // the same, transposed
      {"f32[2,2,2]{16,4,1}", "f32[2,2,2]{16,4,1}+2", false},
      {"f32[2,2,2]{16,4,1}", "f32[2,2,2]{16,4,1}+8", false},
      {"f32[2,2,2]{16,4,1}", "f32[2,2,2]{16,4,1}+4", true},
      {"f32[2,2,2]{16,4,1}", "f32[2,2,2]{16,4,1}+13", true},
      {"f32[1,2]{9,1}", "f32[1,2]{9,1}+2", false},
      {"f32[]+3", "f32[]+3", true},
      {"f32[]+3", "f32[]+4", false},
      {"f32[0]", "f32[0]", false},
  };
  for (const auto& row : table) {
    EXPECT_EQ(may_overlap(type(row.a), type(row.b)), row.overlap) << row.a << " and " << row.b;
    EXPECT_EQ(may_overlap(type(row.b), type(row.a)), row.overlap) << row.b << " and " << row.a;
  }
}

TEST(MayOverlap, ErrsOnTheSideOfYesForOtherShapes) {
  const Pair table[] = {
      {"f32[4,8]", "f32[8]+8", true},              // a row of it
      {"f32[2]", "f32[4]+2", false},               // apart
      {"f32[4]{2}", "f32[3]{2}+1", true},          // interleaved: not looked at closely
      {"f32[4,2]{2,2}", "f32[4,2]{2,2}+1", true},  // overlaps itself: not looked at closely
      {"f32[4]", "f64[2]+2", false},               // in bytes they are apart
      {"f32[4]", "f64[2]+1", true},
      {"f32[4,0]", "f32[4]", false},
  };
  for (const auto& row : table) {
    EXPECT_EQ(may_overlap(type(row.a), type(row.b)), row.overlap) << row.a << " and " << row.b;
    EXPECT_EQ(may_overlap(type(row.b), type(row.a)), row.overlap) << row.b << " and " << row.a;
  }
}

// Against all elements, for every place of up to two dims in a small storage.
TEST(MayOverlap, NeverMissesACommonElement) {
  std::vector<TensorType> places;
  for (int64_t rows : {1, 2, 3}) {
    for (int64_t columns : {1, 2}) {
      for (int64_t row_stride : {0, 1, 2, 3, 4}) {
        for (int64_t column_stride : {1, 2, 5}) {
          for (int64_t offset : {0, 1, 2, 3, 5, 7}) {
            TensorType place;
            place.sizes = {rows, columns};
            place.strides = {row_stride, column_stride};
            place.offset = offset;
            places.push_back(place);
          }
        }
      }
    }
  }
  const auto elements = [](const TensorType& place) {
    std::set<int64_t> result;
    for (int64_t i = 0; i < place.sizes[0]; ++i) {
      for (int64_t j = 0; j < place.sizes[1]; ++j) {
        result.insert(place.offset + i * place.strides[0] + j * place.strides[1]);
      }
    }
    return result;
  };
  for (const auto& a : places) {
    const auto in_a = elements(a);
    for (const auto& b : places) {
      bool common = false;
      for (int64_t element : elements(b)) common |= in_a.count(element) != 0;
      ASSERT_LE(common, may_overlap(a, b)) << print_type(a) << " and " << print_type(b);
    }
  }
}

}  // namespace
}  // namespace epl

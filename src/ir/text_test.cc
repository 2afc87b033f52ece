#include "ir/text.h"

#include <gtest/gtest.h>

#include "ir/test_describe.h"
#include "tests/models/steps.h"

namespace epl {
namespace {

// A graph of one statement before a loss.
std::string around(const std::string& statements) {
  return "graph\n  %0: f32[] = input 0\n" + statements + "  return loss %0\n";
}

struct Sample {
  const char* name;
  std::string text;
};

const Sample kSamples[] = {
    {"Leaves",
     "graph\n"
     "  %0: f32[4,8] = input 0\n"
     "  %1: i64[4] = input 1\n"
     "  %2: f32[] = seed\n"
     "  %3: f32[8,8] = parameter \"fc.weight\"\n"
     "  %4: f32[8] = state \"bn.running_mean\"\n"
     "  %5: f32[3] = constant \"constant.5\"\n"
     "  return loss %2\n"},
    {"NamesWithQuotesBackslashesAndNewLines",
     "graph\n"
     "  taskgraph 0 replicate(1, \"\\\"a\\\" \\\\ b\\n\")\n"
     "  %0: f32[] = state \"say \\\"x\\\"\\nand y\"\n"
     "  return loss %0, metric global_mean_objects \"\\\\\" %0\n"},
    {"ConstantsOfOneElement", around("  %1: f32[] = constant \"a\" 0.5\n"
                                     "  %2: f64[] = constant \"b\" 0.1 number\n"
                                     "  %3: i64[] = constant \"c\" 9007199254740993 number\n"
                                     "  %4: b8[] = constant \"d\" true number\n"
                                     "  %5: f32[1,1] = constant \"e\" -inf\n"
                                     "  %6: f32[1] = constant \"f\" nan\n"
                                     "  %7: bf16[] = constant \"g\" 1.0002555517425873e+30\n"
                                     "  %8: c64[] = constant \"h\" complex(1.0, -2.0)\n"
                                     "  %9: u8[] = constant \"i\" 255\n")},
    {"TypesAndPlaces", around("  %1: f32[8,4]{1,8} = input 1\n"
                              "  %2: f16[4,2]{8,1}+3 = input 2\n"
                              "  %3: i32[0,4] = input 3\n"
                              "  %4: i8[0,4]{0,0}+2 = input 4\n"
                              "  %5: sparse f32[5,2] = input 5\n"
                              "  %6: c128[1]{7} = input 6\n"
                              "  %7: f32[4,8]{-8,1}+24 = input 7\n"
                              "  %8: sparse_csr f32[5,2] = input 8\n"
                              "  %9: mkldnn f32[5,2] = input 9\n"
                              "  %10: QInt8[5] = input 10\n")},
    {"SharedStorages", around("  %1: f32[8,4] = parameter \"w\"\n"
                              "  %2: f32[4] @%1 = state \"row\"\n"
                              "  %3: f32[4,8]{1,4} @%1 = aten::t(%1) {forward}\n"
                              "  %4: f32[4] @%1 = aten::select.int(%1, 0, 0) {forward}\n"
                              "  %5: f32[8,4] @%1 = aten::relu_(%1) {forward}\n")},
    {"ValuesWithGapsInTheirNumbers", around("  %7: f32[] = aten::relu(%0) {forward}\n"
                                            "  %3: f32[] = aten::neg(%7) {forward}\n")},
    {"PhasesAndTaskGraphs",
     "graph\n"
     "  taskgraph 0 replicate(1, \"\")\n"
     "  taskgraph 1 split(8, \"classifier\")\n"
     "  %0: f32[] = input 0\n"
     "  %1: f32[] = aten::relu(%0) {forward 0}\n"
     "  %2: f32[] = aten::relu(%1) {backward 1}\n"
     "  %3: f32[] = aten::relu(%2) {backward}\n"
     "  return loss %0\n"},
    {"Chunks",
     "graph\n"
     "  taskgraph 0 replicate(1, \"\")\n"
     "  %0: f32[] = input 0\n"
     "  %1: f32[] = aten::relu(%0) {forward 0 chunk 2}\n"
     "  %2: f32[] = aten::relu(%1) {backward chunk 1} expects 0.5\n"
     "  return loss %0\n"},
    {"Pieces", around("  %1: f32[4,8] = parameter \"w\" [4:8 of 8 in dim 0]\n"
                      "  %2: f32[0,8] = state \"s\" [8:8 of 8 in dim 0]\n"
                      "  %3: f32[2] = input 1 [0:2 of 4 in dim 0]\n"
                      "  %4: f32[1] = constant \"c\" 0.5 [1:2 of 2 in dim 0]\n"
                      "  %5: f32[3] = constant \"d\" [0:3 of 4 in dim 0]\n")},
    {"IndicesAndNamesWhereNobodyLooksForThem", around("  %1: f32[] = seed index 3 named \"seed\"\n"
                                                      "  %2: f32[] = input 1 named \"x\"\n"
                                                      "  %3: f32[] = parameter \"w\" index 1\n"
                                                      "  %4: f32[3] = constant \"c\" index 2\n")},
    {"ParametersOfOneName",
     "graph\n"
     "  %0: f32[] = parameter \"w\"\n"
     "  %1: f32[] = parameter \"w\"\n"
     "  return loss %0, gradient \"w\" %1, gradient leaf 1 %0\n"},
    {"CollectionsThatAreNoWords",
     "graph\n"
     "  %0: f32[] = input 0\n"
     "  return loss %0, metric \"of all\" \"a\" %0, metric \"\" \"b\" %0\n"},
    {"Generators", around("  %1: f32[] = aten::rand.generator([], generator, none, none, none, "
                          "none) {forward}\n")},
    {"SeveralResults",
     around("  %1: f32[2,3] = input 1\n"
            "  %2: f32[2], %3: i64[2] = aten::max.dim(%1, 1, false) {forward}\n"
            "  %4: f32[2,3], _, %6: f32[2,1] = aten::native_layer_norm(%1, [3], _, _, 1e-05) "
            "{forward}\n")},
    {"ListsOfResults", around("  %1: f32[4] = input 1\n"
                              "  [%2: f32[2] @%1, %3: f32[2]+2 @%1] = aten::split.Tensor(%1, 2, 0) "
                              "{forward}\n"
                              "  [] = aten::unbind.int(%1, 0) {forward}\n")},
    {"ResultsThatAreNoTensors", around("  () = aten::equal(%0, %0) {forward}\n"
                                       "  () = aten::is_same_size(%0, %0) {backward}\n")},
    {"WhatWasReadBack", around("  () = aten::_local_scalar_dense(%0) {forward} expects 0.5\n"
                               "  () = aten::_local_scalar_dense(%0) {forward} expects 3\n"
                               "  () = aten::equal(%0, %0) {backward} expects true\n")},
    {"OperatorsWithoutResults", around("  () = aten::_foreach_zero_([%0]) {forward}\n")},
    {"ListsOfTensors", around("  %1: i64[2] = input 1\n"
                              "  %2: f32[0] = aten::cat([%0, %0], 0) {forward}\n"
                              "  %3: f32[2] = aten::index.Tensor(%2, [_, %1]) {forward}\n"
                              "  %4: f32[2] = aten::index.Tensor(%2, []) {forward}\n")},
    {"UndefinedTensors",
     around("  %1: f32[1,2,3] = input 1\n"
            "  %2: f32[1,2,3] = aten::native_group_norm(%1, _, _, 1, 2, 3, 1, 1e-05) {forward}\n")},
    {"Constants",
     around("  %1: f32[2] = aten::full([2], 0.5, 6, none, device(\"cpu\"), false) {forward}\n"
            "  %2: f32[2] = aten::full([2], 1, 6, 0, none, none) {forward}\n"
            "  %3: f32[2] = aten::full([], true, none, none, none, none) {forward}\n"
            "  %4: f32[2] = aten::full([], inf, none, none, none, none) {forward}\n"
            "  %5: f32[2] = aten::full([], nan, none, none, none, none) {forward}\n"
            "  %6: f32[2] = aten::full([], complex(0.0, -inf), none, none, none, none) {forward}\n"
            "  %7: f32[2] = aten::gelu(%0, \"tanh\") {forward}\n"
            "  %8: f32[2] = aten::upsample_nearest2d.vec(%0, none, [2.0, 0.5]) {forward}\n"
            "  %9: f32[2] = aten::_foreach_add.ScalarList([%0], [1, 2.5]) {forward}\n"
            "  %10: f32[2] = aten::convolution(%0, %0, _, [1], [0], [1], false, [0], -1) "
            "{forward}\n"
            "  %11: f32[2], %12: f32[2], _ = aten::convolution_backward(%0, %0, %0, none, [1], "
            "[0], [1], false, [0], 1, [true, true, false]) {backward}\n")},
    {"Returns",
     "graph\n"
     "  %0: f32[4] = parameter \"a\"\n"
     "  %1: f32[4] = parameter \"b\"\n"
     "  %2: f32[] = aten::sum(%0, none) {forward}\n"
     "  return loss %2, metric global_mean_objects \"accuracy\" %2, metric global_sum_objects "
     "\"count of all\" %2, gradient \"b\" %0, gradient \"a\" %1\n"},
};

class GraphText : public testing::TestWithParam<Sample> {};

TEST_P(GraphText, PrintsWhatItParsed) {
  const Graph graph = parse_graph(GetParam().text);
  EXPECT_EQ(print_graph(graph), GetParam().text);
  EXPECT_EQ(describe(parse_graph(print_graph(graph))), describe(graph));
}

INSTANTIATE_TEST_SUITE_P(Of, GraphText, testing::ValuesIn(kSamples),
                         [](const auto& sample) { return sample.param.name; });

TEST(GraphText, OfEveryModelParsesToTheCapturedGraph) {
  for (const auto& step : models::all_steps()) {
    SCOPED_TRACE(step.name);
    const Graph captured = step.capture();
    const std::string text = print_graph(captured);
    const Graph parsed = parse_graph(text);
    EXPECT_EQ(print_graph(parsed), text);
    EXPECT_EQ(describe(parsed), describe(captured));
  }
}

TEST(GraphText, MayBeIndentedAndSpacedFreely) {
  EXPECT_EQ(
      print_graph(parse_graph("%0:f32[ 2 , 1 ]=input 0\n\n"
                              "   %1 : f32[ 1 ] @ %0 = aten::select.int( %0,0 , 0 ){forward}\n"
                              "return   loss %1")),
      "graph\n"
      "  %0: f32[2,1] = input 0\n"
      "  %1: f32[1] @%0 = aten::select.int(%0, 0, 0) {forward}\n"
      "  return loss %1\n");
}

}  // namespace
}  // namespace epl

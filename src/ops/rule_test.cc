#include "ops/rule.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "config/libtorch.h"
#include "ir/text.h"

namespace epl {
namespace {

// A graph of leaves ("f32[4,8]", ...) and one node.
Graph graph_of(const std::vector<std::string>& leaves, const std::string& node) {
  std::string text = "graph\n";
  for (size_t i = 0; i < leaves.size(); ++i) {
    text += concat("  %", i, ": ", leaves[i], " = input ", i, "\n");
  }
  return parse_graph(concat(text, "  ", node, " {forward}\n  return loss %0\n"));
}

std::string layouts(const std::vector<Layout>& list) {
  std::vector<std::string> words;
  for (const Layout layout : list) words.push_back(layout.str());
  return join(words, " ");
}

// A line for each cut: "m: S(0) R -> S(0)"; "sum" for partial sums.
std::string cuts(const Graph& graph, int parts) {
  std::vector<std::string> lines;
  for (const Cut& cut : cuts_of(graph, graph.nodes[0], parts)) {
    lines.push_back(concat(cut.letter == 0 ? "sum" : std::string(1, cut.letter), ": ",
                           layouts(cut.inputs), " -> ", layouts(cut.outputs)));
  }
  return join(lines, "\n");
}

TEST(CutsOf, AMatrixProduct) {
  const Graph graph = graph_of({"f32[4,6]", "f32[6,8]"}, "%2: f32[4,8] = aten::mm(%0, %1)");
  EXPECT_EQ(cuts(graph, 2),
            "m: S(0) R -> S(0)\n"
            "k: S(1) S(0) -> P\n"
            "n: R S(1) -> S(1)\n"
            "sum: P R -> P\n"
            "sum: R P -> P");
  // Four rows are too few for five devices.
  EXPECT_EQ(cuts(graph, 5),
            "k: S(1) S(0) -> P\n"
            "n: R S(1) -> S(1)\n"
            "sum: P R -> P\n"
            "sum: R P -> P");
  EXPECT_EQ(cuts(graph, 1), "");
}

TEST(CutsOf, ASquareIsNotLinear) {
  const Graph graph = graph_of({"f32[4]"}, "%1: f32[4] = aten::mul.Tensor(%0, %0)");
  EXPECT_EQ(cuts(graph, 2), "a: S(0) S(0) -> S(0)");
}

// The kernel makes it all the same, with a dimension more than the weights have.
TEST(CutsOf, AConvolutionThatIsNotAskedForTheGradientOfItsWeights) {
  const Graph graph =
      graph_of({"f32[3,6,3]", "f32[3,4,4]", "f32[6,4,2]"},
               "_, %3: f32[6,4,1,2], %4: f32[6] = aten::convolution_backward(%0, %1, %2, [6], [1], "
               "[0], [1], false, [0], 1, [false, false, true])");
  EXPECT_EQ(cuts(graph, 2),
            "n: S(0) S(0) R -> P P\n"
            "o: S(1) R S(0) -> S(0) S(0)\n"
            "c: R S(1) S(1) -> S(1) R\n"
            "sum: P R R -> P P");
}

TEST(CutsOf, ASumOfTensorsTakesPartialSumsTogether) {
  const Graph graph =
      graph_of({"f32[4,6]", "f32[6]"}, "%2: f32[4,6] = aten::add.Tensor(%0, %1, 1)");
  EXPECT_EQ(cuts(graph, 2),
            "a: S(0) R -> S(0)\n"
            "b: S(1) S(0) -> S(1)\n"
            "sum: P P -> P");
}

TEST(CutsOf, ANumberIsNotAddedToPartialSums) {
  const Graph graph = graph_of({"f32[4]", "f32[]"}, "%2: f32[4] = aten::add.Tensor(%0, %1, 1)");
  EXPECT_EQ(cuts(graph, 2), "a: S(0) R -> S(0)");
}

TEST(CutsOf, WholeNumbersAreNotSumsOfFractions) {
  const Graph graph =
      graph_of({"f32[4]"}, "%1: i64[4] = aten::_to_copy(%0, 4, none, none, none, false, none)");
  EXPECT_EQ(cuts(graph, 2), "a: S(0) -> S(0)");
}

TEST(CutsOf, TheBiasOfALinearLayer) {
  const Graph graph =
      graph_of({"f32[8]", "f32[4,6]", "f32[6,8]"}, "%3: f32[4,8] = aten::addmm(%0, %1, %2, 1, 1)");
  EXPECT_EQ(cuts(graph, 2),
            "n: S(0) R S(1) -> S(1)\n"
            "m: R S(0) R -> S(0)\n"
            "k: R S(1) S(0) -> P");
}

TEST(CutsOf, AViewByWholeHeads) {
  const Graph three = graph_of({"f32[5,12]"}, "%1: f32[5,3,4] @%0 = aten::view(%0, [5, 3, 4])");
  EXPECT_EQ(cuts(three, 3),
            "a: S(0) -> S(0)\n"
            "b: S(1) -> S(1)\n"
            "sum: P -> P");
  // Six columns would be one and a half heads.
  EXPECT_EQ(cuts(three, 2),
            "a: S(0) -> S(0)\n"
            "sum: P -> P");
}

TEST(CutsOf, AViewThatMergesTakesTheOuterDimension) {
  const Graph graph = graph_of({"f32[4,6,8]"}, "%1: f32[24,8] @%0 = aten::view(%0, [24, 8])");
  EXPECT_EQ(cuts(graph, 2),
            "a: S(0) -> S(0)\n"
            "b: S(2) -> S(1)\n"
            "sum: P -> P");
}

TEST(CutsOf, ASoftmaxCrossEntropyOverClasses) {
  const Graph softmax = graph_of({"f32[4,9]"}, "%1: f32[4,9] = aten::_log_softmax(%0, 1, false)");
  EXPECT_EQ(cuts(softmax, 3),
            "a: S(0) -> S(0)\n"
            "b: S(1) -> S(1)");
  const Graph loss =
      graph_of({"f32[4,9]", "i64[4]"},
               "%2: f32[], %3: f32[] = aten::nll_loss_forward(%0, %1, none, 1, -100)");
  EXPECT_EQ(cuts(loss, 3),
            "n: S(0) S(0) -> P R\n"
            "c: S(1) R -> P R");
}

TEST(CutsOf, GradientsOfALayerNormAreSumsOverRows) {
  const Graph graph = graph_of(
      {"f32[4,6]", "f32[4,6]", "f32[4,1]", "f32[4,1]", "f32[6]", "f32[6]"},
      "%6: f32[4,6], %7: f32[6], %8: f32[6] = aten::native_layer_norm_backward(%0, %1, [6], %2, "
      "%3, %4, %5, [true, true, true])");
  EXPECT_EQ(cuts(graph, 2),
            "a: S(0) S(0) S(0) S(0) R R -> S(0) P P\n"
            "sum: P R R R R R -> P P P");
}

TEST(CutsOf, AnArgmaxIsTheSameOnAllDevices) {
  const Graph graph = graph_of({"f32[4,9]"}, "%1: i64[4] = aten::argmax(%0, 1, false)");
  EXPECT_EQ(cuts(graph, 3),
            "a: S(0) -> S(0)\n"
            "b: S(1) -> R");
}

TEST(CutsOf, GroupsOfChannelsStayTogether) {
  const std::string node =
      "%3: f32[2,6,5], %4: f32[2,3], %5: f32[2,3] = aten::native_group_norm(%0, %1, %2, 2, 6, 5, "
      "3, 1e-05)";
  const Graph graph = graph_of({"f32[2,6,5]", "f32[6]", "f32[6]"}, node);
  EXPECT_EQ(cuts(graph, 3), "c: S(1) S(0) S(0) -> S(1) S(1) S(1)");
  EXPECT_EQ(cuts(graph, 2), "n: S(0) R R -> S(0) S(0) S(0)");
}

TEST(CutsOf, RandomNumbersAreNotPartialSums) {
  const Graph graph = graph_of({"f32[4,6]"}, "%1: f32[4,6] = aten::bernoulli.p(%0, 0.5, none)");
  EXPECT_EQ(cuts(graph, 2),
            "a: S(0) -> S(0)\n"
            "b: S(1) -> S(1)");
}

TEST(CutsOf, ComplexNumbersAreNotPartialSums) {
  const Graph graph = graph_of({"c64[4,6]", "c64[6,8]"}, "%2: c64[4,8] = aten::mm(%0, %1)");
  EXPECT_EQ(cuts(graph, 2),
            "m: S(0) R -> S(0)\n"
            "n: R S(1) -> S(1)");
}

TEST(CutsOf, AConvolutionInGroupsOfSeveralChannels) {
  const Graph graph =
      graph_of({"f32[3,4,5]", "f32[6,2,3]"},
               "%2: f32[3,6,3] = aten::convolution(%0, %1, none, [1], [0], [1], false, [0], 2)");
  EXPECT_EQ(cuts(graph, 2),
            "n: S(0) R -> S(0)\n"
            "sum: P R -> P\n"
            "sum: R P -> P");
}

// Columns of one right side, as many as there are matrices, are no matrices.
TEST(CutsOf, OneRightSideForSeveralMatrices) {
  const std::string node =
      "%2: f32[4,4,3], %3: f32[4,4,4], %4: i32[4,4], %5: i32[4] = aten::_linalg_solve_ex(%0, %1, "
      "true, false)";
  EXPECT_EQ(cuts(graph_of({"f32[4,4,4]", "f32[4,3]"}, node), 2), "");
  EXPECT_EQ(cuts(graph_of({"f32[4,4,4]", "f32[4,4,3]"}, node), 2),
            "a: S(0) S(0) -> S(0) S(0) S(0) S(0)");
}

// The sum of each bag, whose numbers every device goes through.
TEST(CutsOf, GradientsOfBags) {
  const Graph graph = graph_of({"f32[4,8]", "i64[9]", "i64[9]", "i64[4]", "i64[4]"},
                               "%5: f32[7,8] = aten::_embedding_bag_dense_backward(%0, %1, %2, %3, "
                               "%4, 7, false, 0, none, -1)");
  EXPECT_EQ(cuts(graph, 2),
            "b: S(0) R R S(0) R -> P\n"
            "D: S(1) R R R R -> S(1)\n"
            "I: R S(0) S(0) R R -> P\n"
            "sum: P R R R R -> P");
}

TEST(CutsOf, AnOperatorWithoutARowHasNone) {
  const Graph graph = graph_of({"f32[4,4]"}, "%1: f32[4,4] = aten::inverse(%0)");
  EXPECT_EQ(find_rule(graph.nodes[0].op), nullptr);
  EXPECT_EQ(pattern_of(graph, graph.nodes[0]), std::nullopt);
  EXPECT_EQ(cuts(graph, 2), "");
}

// --- what a device runs -----------------------------------------------------------------------

// The nodes of device `part` for the cut along `letter`.
std::string emitted(const Graph& graph, char letter, int parts, int part) {
  for (const Cut& cut : cuts_of(graph, graph.nodes[0], parts)) {
    if (cut.letter != letter) continue;
    Graph local;
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < graph.leaves.size(); ++i) {
      TensorType type = graph.value(graph.leaves[i].value).type;
      type.sizes = local_sizes(type.sizes, cut.inputs[i], parts, part);
      type.strides = contiguous_strides(type.sizes);
      inputs.push_back(local.add_value(type));
    }
    Emitter to(local);
    emit_local({graph, graph.nodes[0], cut, parts, part, inputs}, to);
    std::vector<std::string> lines;
    for (const Node& node : local.nodes) lines.push_back(print_node(local, node));
    return join(lines, "\n");
  }
  return "no such cut";
}

TEST(EmitLocal, ChangesSizesToThoseOfTheDevice) {
  const Graph graph = graph_of({"f32[5,12]"}, "%1: f32[5,3,4] @%0 = aten::view(%0, [5, 3, 4])");
  EXPECT_EQ(emitted(graph, 'a', 2, 0), "%1: f32[3,3,4] @%0 = aten::view(%0, [3, 3, 4]) {forward}");
  EXPECT_EQ(emitted(graph, 'a', 2, 1), "%1: f32[2,3,4] @%0 = aten::view(%0, [2, 3, 4]) {forward}");
}

TEST(EmitLocal, AddsTheBiasOnOneDeviceOnly) {
  const Graph graph =
      graph_of({"f32[8]", "f32[4,6]", "f32[6,8]"}, "%3: f32[4,8] = aten::addmm(%0, %1, %2, 1, 1)");
  EXPECT_EQ(emitted(graph, 'k', 2, 0), "%3: f32[4,8] = aten::addmm(%0, %1, %2, 1, 1) {forward}");
  EXPECT_EQ(emitted(graph, 'k', 2, 1), "%3: f32[4,8] = aten::mm(%1, %2) {forward}");
}

TEST(EmitLocal, ExchangesTwoNumbersARowForASoftmaxOverClasses) {
  const Graph graph = graph_of({"f32[4,9]"}, "%1: f32[4,9] = aten::_log_softmax(%0, 1, false)");
  EXPECT_EQ(emitted(graph, 'b', 2, 0),
            "%1: f32[4,1] = aten::amax(%0, [1], true) {forward}\n"
            "%2: f32[4,1] = epl::all_reduce(%1, \"max\", \"part\") {forward}\n"
            "%3: f32[4,1] = epl_rows::sum_exp(%0, %2, 1) {forward}\n"
            "%4: f32[4,1] = epl::all_reduce(%3, \"sum\", \"part\") {forward}\n"
            "%5: f32[4,5] = epl_rows::log_softmax(%0, %2, %4) {forward}");
}

TEST(EmitLocal, KeepsTheOrderOfDimensionsInMemory) {
  const Graph graph = graph_of({"f32[4,6]{1,4}"}, "%1: f32[4,6]{1,4} = aten::relu(%0)");
  EXPECT_EQ(emitted(graph, 'b', 2, 0), "%1: f32[4,3]{1,4} = aten::relu(%0) {forward}");
}

// A value that came together from pieces is contiguous, however it lay when recorded.
TEST(EmitLocal, LaysOutWhatIsReadByPlacesInMemory) {
  const Graph graph =
      graph_of({"f32[4,6]{1,4}"}, "%1: f32[3] @%0 = aten::as_strided(%0, [3], [4], 1)");
  Cut whole;
  whole.inputs = {Layout::whole()};
  whole.outputs = {Layout::whole()};
  Graph local;
  TensorType contiguous;
  contiguous.sizes = {4, 6};
  contiguous.strides = {6, 1};
  const ValueId gathered = local.add_value(contiguous);
  Emitter to(local);
  emit_local({graph, graph.nodes[0], whole, 2, 0, {gathered}}, to);
  ASSERT_EQ(local.nodes.size(), 4U);
  EXPECT_EQ(print_node(local, local.nodes[1]), "%2: f32[6,4] = aten::clone(%1, 0) {forward}");
  EXPECT_EQ(print_node(local, local.nodes[2]),
            "%3: f32[4,6]{1,4} @%2 = aten::permute(%2, [1, 0]) {forward}");
  EXPECT_EQ(print_node(local, local.nodes[3]),
            "%4: f32[3]{4}+1 @%2 = aten::as_strided(%3, [3], [4], 1) {forward}");
}

#if EPL_TORCH_AT_LEAST(2, 5)
// A layer and its backward, cut along `letter` or, for 0, whole; how many layers device 0 runs.
int layers_run(char layer, char backward) {
  const Graph graph = parse_graph(
      "graph\n"
      "  %0: f32[7,6,4] = input 0\n"
      "  %1: f32[20,4] = input 1\n"
      "  %2: f32[20,5] = input 2\n"
      "  %3: f32[20] = input 3\n"
      "  %4: f32[6,5] = input 4\n"
      "  %5: f32[7,6,5], %6: f32[6,5], %7: f32[6,5], %8: u8[64] = "
      "aten::mkldnn_rnn_layer(%0, %1, %2, %3, %3, %4, %4, false, [], 2, 5, 1, true, false, false, "
      "true) {forward}\n"
      "  %9: f32[7,6,4], %10: f32[20,4], %11: f32[20,5], %12: f32[20], %13: f32[20], %14: "
      "f32[6,5], %15: f32[6,5] = aten::mkldnn_rnn_layer_backward(%0, %1, %2, %3, %3, %4, %4, %5, "
      "%6, %7, %5, _, _, false, 2, 5, 1, true, true, false, [], false, %8) {backward}\n"
      "  return loss %0\n");
  Graph local;
  Emitter to(local);
  ValueId workspace = kNoValue;
  for (const Node& node : graph.nodes) {
    const bool is_layer = op_name(node) == "aten::mkldnn_rnn_layer";
    Cut cut;
    for_each_input(node, [&](ValueId) { cut.inputs.emplace_back(); });
    for_each_output(node, [&](ValueId) { cut.outputs.emplace_back(); });
    for (const Cut& other : cuts_of(graph, node, 2)) {
      if (other.letter == (is_layer ? layer : backward)) cut = other;
    }
    std::vector<ValueId> inputs;
    for_each_input(node, [&](ValueId id) {
      TensorType type = graph.value(id).type;
      type.sizes = local_sizes(type.sizes, cut.inputs[inputs.size()], 2, 0);
      type.strides = contiguous_strides(type.sizes);
      inputs.push_back(id == 8 ? workspace : local.add_value(type));
    });
    const auto made = emit_local({graph, node, cut, 2, 0, inputs}, to);
    if (is_layer) workspace = made[3];
  }
  int layers = 0;
  for (const Node& node : local.nodes) layers += op_name(node) == "aten::mkldnn_rnn_layer" ? 1 : 0;
  return layers;
}

// What a layer leaves for its backward is of the rows that it ran on.
TEST(EmitLocal, RunsARecurrentLayerAgainWhereItsBackwardHasOtherRows) {
  EXPECT_EQ(layers_run('n', 'n'), 1);
  EXPECT_EQ(layers_run(0, 0), 1);
  EXPECT_EQ(layers_run('n', 0), 2);
  EXPECT_EQ(layers_run(0, 'n'), 2);
}
#endif

// No view joins rows of every second column, nor columns that lie one behind the other.
TEST(Emitter, CopiesWhatNoViewCanShow) {
  const std::vector<std::vector<int64_t>> lying = {{8, 2}, {1, 2}};
  for (const auto& strides : lying) {
    Graph local;
    TensorType type;
    type.sizes = {2, 3};
    type.strides = strides;
    const ValueId piece = local.add_value(type);
    const Graph graph = graph_of({"f32[2,3]"}, "%1: f32[6] @%0 = aten::view(%0, [6])");
    Node node = graph.nodes[0];
    node.arguments[0] = value_argument(piece);
    Emitter to(local);
    to.add(node, {{6}}, graph, graph.nodes[0]);
    ASSERT_EQ(local.nodes.size(), 2U);
    EXPECT_EQ(op_name(local.nodes[0]), "aten::clone");
    EXPECT_EQ(print_node(local, local.nodes[1]), "%2: f32[6] @%1 = aten::view(%1, [6]) {forward}");
  }
}

// LibTorch cannot run it without contents.
TEST(Emitter, KnowsWhatIsWrittenInPlaceByItsArgument) {
  const Graph graph = graph_of({"f32[6,4]", "i64[3]"},
                               "%2: f32[6,4] @%0 = aten::embedding_renorm_(%0, %1, 1.0, 2.0)");
  Graph local;
  const ValueId table = local.add_value(graph.value(0).type);
  const ValueId indices = local.add_value(graph.value(1).type);
  Cut whole;
  whole.inputs.resize(2);
  whole.outputs.resize(1);
  Emitter to(local);
  emit_local({graph, graph.nodes[0], whole, 2, 1, {table, indices}}, to);
  EXPECT_EQ(print_node(local, local.nodes[0]),
            "%2: f32[6,4] @%0 = aten::embedding_renorm_(%0, %1, 1.0, 2.0) {forward}");
}

TEST(Emitter, GivesNewNodesThePlaceOfTheOneTheyStandFor) {
  Graph graph = graph_of({"f32[2,3]"}, "%1: f32[2,3] = aten::relu(%0)");
  graph.nodes[0].phase = Phase::kBackward;
  graph.nodes[0].taskgraph = 3;
  graph.nodes[0].chunk = 2;
  graph.nodes[0].origin = {7, 6, 0.5};
  Emitter to(graph);
  to.stand_for(graph.nodes[0]);
  to.call("aten::neg", {value_argument(0)});
  const Node& made = graph.nodes[1];
  EXPECT_EQ(made.phase, Phase::kBackward);
  EXPECT_EQ(made.taskgraph, 3);
  EXPECT_EQ(made.chunk, 2);
  EXPECT_EQ(made.origin.call, 7);
  EXPECT_EQ(made.origin.user_call, 6);
  EXPECT_EQ(made.origin.seconds, 0);  // not counted twice
}

}  // namespace
}  // namespace epl

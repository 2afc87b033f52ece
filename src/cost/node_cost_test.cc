#include "cost/node_cost.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "config/libtorch.h"
#include "ir/text.h"
#include "ops/facts.h"
#include "tests/models/steps.h"

namespace epl {
namespace {

// The last node of a graph that is given without its first and last line.
struct LastNode {
  explicit LastNode(const std::string& lines, const std::string& returned)
      : graph(parse_graph("graph\n" + lines + "  return loss " + returned + "\n")) {}

  double flops() const { return estimated_flops(graph, graph.nodes.back()); }
  double seconds() const { return estimated_seconds(graph, graph.nodes.back()); }
  bool view() const { return is_view(graph, graph.nodes.back()); }

  Graph graph;
};

TEST(NodeCost, CountsProductsOfMatrices) {
  EXPECT_EQ(LastNode("  %0: f32[2,3] = input 0\n"
                     "  %1: f32[3,5] = input 1\n"
                     "  %2: f32[2,5] = aten::mm(%0, %1) {forward}\n",
                     "%2")
                .flops(),
            2 * 2 * 3 * 5);
  EXPECT_EQ(LastNode("  %0: f32[2,3] = input 0\n"
                     "  %1: f32[3,5] = input 1\n"
                     "  %2: f32[5] = input 2\n"
                     "  %3: f32[2,5] = aten::addmm(%2, %0, %1, 1, 1) {forward}\n",
                     "%3")
                .flops(),
            2 * 2 * 3 * 5);
  EXPECT_EQ(LastNode("  %0: f32[4,2,3] = input 0\n"
                     "  %1: f32[4,3,5] = input 1\n"
                     "  %2: f32[4,2,5] = aten::bmm(%0, %1) {forward}\n",
                     "%2")
                .flops(),
            2 * 4 * 2 * 3 * 5);
}

// In two groups: each element of the output meets two channels of a 3 x 3 window.
TEST(NodeCost, CountsProductsOfConvolutions) {
  const std::string leaves =
      "  %0: f32[2,4,8,8] = input 0\n"
      "  %1: f32[6,2,3,3] = input 1\n"
      "  %2: f32[2,6,6,6] = input 2\n";
  EXPECT_EQ(
      LastNode(leaves + "  %3: f32[2,6,6,6] = aten::convolution(%0, %1, _, [1, 1], [0, 0], [1, 1], "
                        "false, [0, 0], 2) {forward}\n",
               "%3")
          .flops(),
      2.0 * (2 * 6 * 6 * 6) * (2 * 3 * 3));
  EXPECT_EQ(
      LastNode(leaves + "  %3: f32[2,4,8,8], %4: f32[6,2,3,3], _ = aten::convolution_backward(%2, "
                        "%0, %1, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 2, [true, true, "
                        "false]) {backward}\n",
               "%3")
          .flops(),
      2 * 2.0 * (2 * 6 * 6 * 6) * (2 * 3 * 3));
}

TEST(NodeCost, OfATransposedConvolutionCountsTheElementsOfItsInput) {
  EXPECT_EQ(LastNode("  %0: f32[2,4,8,8] = input 0\n"
                     "  %1: f32[4,3,2,2] = input 1\n"
                     "  %2: f32[2,3,16,16] = aten::convolution(%0, %1, _, [2, 2], [0, 0], [1, 1], "
                     "true, [0, 0], 1) {forward}\n",
                     "%2")
                .flops(),
            2.0 * (2 * 4 * 8 * 8) * (3 * 2 * 2));
}

#if EPL_TORCH_AT_LEAST(2, 5)
// 3 queries and 5 keys of 2 heads, each of 4 elements: two products of all pairs forward, five
// backward.
LastNode attention(int64_t queries, bool causal) {
  const std::string is_causal = causal ? "true" : "false";
  const std::string sizes = concat("f32[1,2,", queries, ",4]");
  return LastNode("  %0: " + sizes + " = input 0\n" + "  %1: f32[1,2,5,4] = input 1\n" +
                      "  %2: " + sizes + ", %3: f32[1,2," + std::to_string(queries) + "] = " +
                      "aten::_scaled_dot_product_flash_attention_for_cpu(%0, %1, %1, 0., " +
                      is_causal + ", _, none) {forward}\n",
                  "%2");
}

TEST(NodeCost, CountsProductsOfAttention) {
  EXPECT_EQ(attention(3, false).flops(), 2 * 2 * (3 * 5) * 2 * 4);
  EXPECT_EQ(
      LastNode(
          "  %0: f32[1,2,3,4] = input 0\n"
          "  %1: f32[1,2,5,4] = input 1\n"
          "  %2: f32[1,2,3] = input 2\n"
          "  %3: f32[1,2,3,4], %4: f32[1,2,5,4], %5: f32[1,2,5,4] = "
          "aten::_scaled_dot_product_flash_attention_for_cpu_backward(%0, %0, %1, %1, %0, %2, 0., "
          "false, _, none) {backward}\n",
          "%3")
          .flops(),
      5 * 2 * (3 * 5) * 2 * 4);
}

TEST(NodeCost, OfCausalAttentionCountsTheKeysUpToAQuery) {
  EXPECT_EQ(attention(3, true).flops(), 2 * 2 * (1 + 2 + 3) * 2 * 4);
  EXPECT_EQ(attention(7, true).flops(), 2 * 2 * (1 + 2 + 3 + 4 + 5 + 5 + 5) * 2 * 4);
}
#endif

#if EPL_TORCH_AT_LEAST(2, 0)
// Of each of 7 * 3 inputs of 4 elements with a weight of 4 gates of 5, and of 5 states with
// another.
TEST(NodeCost, CountsProductsOfRecurrentLayers) {
  const std::string leaves =
      "  %0: f32[7,3,4] = input 0\n"
      "  %1: f32[20,4] = input 1\n"
      "  %2: f32[20,5] = input 2\n"
      "  %3: f32[20] = input 3\n"
      "  %4: f32[3,5] = input 4\n";
  const std::string layer =
      "  %5: f32[7,3,5], %6: f32[3,5], %7: f32[3,5], %8: u8[64] = "
      "aten::mkldnn_rnn_layer(%0, %1, %2, %3, %3, %4, %4, false, [], 2, 5, 1, "
      "true, false, false, true) {forward}\n";
  const std::string backward =
      "  %9: f32[7,3,4], %10: f32[20,4], %11: f32[20,5], %12: f32[20], %13: f32[20], %14: "
      "f32[3,5], "
      "%15: f32[3,5] = aten::mkldnn_rnn_layer_backward(%0, %1, %2, %3, %3, %4, %4, %5, %6, %7, %5, "
      "_, _, false, 2, 5, 1, true, true, false, [], false, %8) {backward}\n";
  const double once = 2.0 * (7 * 3) * (20 * 4 + 20 * 5);
  EXPECT_EQ(LastNode(leaves + layer, "%5").flops(), once);
  EXPECT_EQ(LastNode(leaves + layer + backward, "%9").flops(), 2 * once);
}
#endif

TEST(NodeCost, OfViewsAndEmptyMemoryIsNothing) {
  const LastNode view(
      "  %0: f32[2,3] = input 0\n"
      "  %1: f32[3,2]{1,3} @%0 = aten::t(%0) {forward}\n",
      "%1");
  EXPECT_TRUE(view.view());
  EXPECT_EQ(view.seconds(), 0);
  EXPECT_EQ(LastNode("  %0: f32[2,3] = input 0\n"
                     "  %1: f32[2,3] = aten::empty_like(%0, none, none, none, none, none) "
                     "{forward}\n",
                     "%1")
                .seconds(),
            0);
}

TEST(NodeCost, OfAWriteInPlaceIsNotThatOfAView) {
  const LastNode write(
      "  %0: f32[1000,3000] = input 0\n"
      "  %1: f32[1000,3000] @%0 = aten::relu_(%0) {forward}\n",
      "%1");
  EXPECT_FALSE(write.view());
  EXPECT_NEAR(write.seconds(), 12e6 / DeviceSpeed().bytes_per_second, 1e-5);
}

TEST(NodeCost, OfALookUpIsThatOfTheRowsItGives) {
  const std::string leaves =
      "  %0: f32[1000000,64] = input 0\n"
      "  %1: i64[10] = input 1\n";
  EXPECT_LT(
      LastNode(leaves + "  %2: f32[10,64] = aten::embedding(%0, %1, -1, false, false) {forward}\n",
               "%2")
          .seconds(),
      1e-5);
}

TEST(NodeCost, IsTheSlowerOfArithmeticAndTraffic) {
  // Many products an element: arithmetic. One: traffic.
  const LastNode square(
      "  %0: f32[1000,1000] = input 0\n"
      "  %1: f32[1000,1000] = aten::mm(%0, %0) {forward}\n",
      "%1");
  EXPECT_NEAR(square.seconds(), 2e9 / DeviceSpeed().flops_per_second, 1e-5);
  const LastNode outer(
      "  %0: f32[1000,1] = input 0\n"
      "  %1: f32[1,1000] = input 1\n"
      "  %2: f32[1000,1000] = aten::mm(%0, %1) {forward}\n",
      "%2");
  EXPECT_NEAR(outer.seconds(), 4e6 / DeviceSpeed().bytes_per_second, 1e-5);
}

Graph three_sums() {
  return parse_graph(R"(graph
  %0: f32[4] = input 0
  %1: f32[4] = aten::add.Tensor(%0, %0, 1) {forward}
  %2: f32[4] @%1 = aten::alias(%1) {forward}
  %3: f32[4] = aten::add.Tensor(%1, %2, 1) {forward}
  %4: f32[4] = aten::add.Tensor(%3, %1, 1) {forward}
  %5: f32[] = aten::sum(%4, none) {forward}
  return loss %5
)");
}

TEST(NodeCosts, AreEstimatedWhereNothingWasRecorded) {
  const Graph graph = three_sums();
  const NodeCosts costs = node_costs(graph);
  EXPECT_FALSE(costs.measured);
  EXPECT_EQ(costs.seconds[0], estimated_seconds(graph, graph.nodes[0]));
  EXPECT_EQ(costs.seconds[1], 0);
}

TEST(NodeCosts, OfOperatorsThatAreAlikeAreTheMedianOfTheirTimes) {
  Graph graph = three_sums();
  const double times[] = {5, 1, 900, 4, 2};  // the third was interrupted, the view costs nothing
  for (size_t i = 0; i < graph.nodes.size(); ++i) graph.nodes[i].origin.seconds = times[i];
  const NodeCosts costs = node_costs(graph);
  EXPECT_TRUE(costs.measured);
  EXPECT_EQ(costs.seconds, (std::vector<double>{5, 0, 5, 5, 2}));
  EXPECT_EQ(costs.total(), 17);
}

TEST(NodeCosts, OfNodesThatAPassAddedAreEstimated) {
  Graph graph = three_sums();
  graph.nodes[0].origin.seconds = 5;
  const NodeCosts costs = node_costs(graph);
  EXPECT_EQ(costs.seconds[2], 5);  // alike
  EXPECT_EQ(costs.seconds[4], estimated_seconds(graph, graph.nodes[4]));
}

TEST(TakeShorterTimes, KeepsTheShorterOneOfEachNode) {
  Graph graph = three_sums();
  Graph again = three_sums();
  graph.nodes[0].origin.seconds = 3;
  again.nodes[0].origin.seconds = 2;
  graph.nodes[2].origin.seconds = 3;
  again.nodes[2].origin.seconds = 4;
  EXPECT_TRUE(take_shorter_times(graph, again));
  EXPECT_EQ(graph.nodes[0].origin.seconds, 2);
  EXPECT_EQ(graph.nodes[2].origin.seconds, 3);
}

TEST(TakeShorterTimes, RefusesAnotherStep) {
  Graph graph = three_sums();
  graph.nodes[0].origin.seconds = 3;
  Graph again = three_sums();
  again.nodes.pop_back();
  EXPECT_FALSE(take_shorter_times(graph, again));
  again = three_sums();
  again.nodes[2].origin.call = 7;
  EXPECT_FALSE(take_shorter_times(graph, again));
  EXPECT_EQ(graph.nodes[0].origin.seconds, 3);
}

TEST(NodeCosts, AreThereForEveryOperatorOfEveryModel) {
  for (const models::ModelStep& step : models::all_steps()) {
    SCOPED_TRACE(step.name);
    const Graph graph = step.capture();
    const NodeCosts costs = node_costs(graph);
    EXPECT_TRUE(costs.measured);
    ASSERT_EQ(costs.seconds.size(), graph.nodes.size());
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      EXPECT_EQ(costs.seconds[i] > 0, !is_view(graph, node)) << print_node(graph, node);
      EXPECT_LT(estimated_seconds(graph, node), 1) << print_node(graph, node);
    }
  }
}

}  // namespace
}  // namespace epl

#include <epl/error.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "sharding/follow.h"
#include "sharding/test_graphs.h"

namespace epl {
namespace {

TEST(LocalGraph, HasThePiecesOfItsDeviceAndWhatMoves) {
  const Graph graph = linear_layers(64, {256, 1023, 256});
  const ShardingRequest request{graph, 2};
  const Sharding sharding = choose_layouts(request);
  EXPECT_EQ(print_graph(local_graph(request, sharding, 0)), R"(graph
  %0: f32[64,256] = input 0
  %1: f32[512,256] = parameter "w0" [0:512 of 1023 in dim 0]
  %2: f32[256,512]{1023,1} = parameter "w1" [0:512 of 1023 in dim 1]
  %3: f32[256,512]{1,256} @%1 = aten::t(%1) {forward}
  %4: f32[64,512] = aten::mm(%0, %3) {forward}
  %5: f32[64,512] = aten::tanh(%4) {forward}
  %6: f32[512,256]{1,1023} @%2 = aten::t(%2) {forward}
  %7: f32[64,256] = aten::mm(%5, %6) {forward}
  %8: f32[64,256] = epl::all_reduce(%7, "sum", "part") {forward}
  %9: f32[] = aten::sum(%8, none) {forward}
  %10: f32[64,256] = aten::ones_like(%8, none, none, none, none, none) {backward}
  %11: f32[256,64]{1,256} @%10 = aten::t(%10) {backward}
  %12: f32[256,512] = aten::mm(%11, %5) {backward}
  %13: f32[64,512] = aten::mm(%10, %2) {backward}
  %14: f32[64,512] = aten::tanh_backward(%13, %5) {backward}
  %15: f32[512,64]{1,512} @%14 = aten::t(%14) {backward}
  %16: f32[512,256] = aten::mm(%15, %0) {backward}
  return loss %9, gradient "w1" %12, gradient "w0" %16
)");
  // The other one lacks an element, and its pieces begin later.
  const std::string other = print_graph(local_graph(request, sharding, 1));
  EXPECT_EQ(other.substr(0, other.find("  %4:")), R"(graph
  %0: f32[64,256] = input 0
  %1: f32[511,256]+131072 = parameter "w0" [512:1023 of 1023 in dim 0]
  %2: f32[256,511]{1023,1}+512 = parameter "w1" [512:1023 of 1023 in dim 1]
  %3: f32[256,511]{1,256}+131072 @%1 = aten::t(%1) {forward}
)");
}

TEST(LocalGraph, IsAGraphForAnyNumberOfDevices) {
  for (int parts : {2, 3, 5, 8}) {
    const Graph graph = linear_layers(12, {10, 7, 9, 3});
    const ShardingRequest request{graph, parts};
    const Sharding sharding = choose_layouts(request);
    std::vector<std::string> moves;
    for (int part = 0; part < parts; ++part) {
      const Graph local = local_graph(request, sharding, part);
      verify_graph(local, "local_graph");
      ASSERT_EQ(local.leaves.size(), graph.leaves.size());
      ASSERT_EQ(local.gradients.size(), graph.gradients.size());
      std::string all;
      for (const auto& node : local.nodes) {
        if (op_name(node).rfind("epl::", 0) == 0) all += op_name(node) + " ";
      }
      moves.push_back(all);
      // All devices move the same things in the same order, or they would wait for ever.
      EXPECT_EQ(moves[0], all) << parts;
    }
  }
}

TEST(LocalGraph, CutsGradientsAsTheirParameters) {
  const Graph graph = linear_layers(64, {256, 1024, 256});
  const ShardingRequest request{graph, 4};
  const Sharding sharding = choose_layouts(request);
  for (int part = 0; part < 4; ++part) {
    const Graph local = local_graph(request, sharding, part);
    for (const auto& gradient : local.gradients) {
      const Leaf& leaf = local.leaves[static_cast<size_t>(gradient.parameter)];
      EXPECT_EQ(local.value(gradient.value).type.sizes, local.value(leaf.value).type.sizes);
      EXPECT_EQ(leaf.shard.piece.length, 256) << leaf.name;
      EXPECT_EQ(leaf.shard.whole, 1024) << leaf.name;
      EXPECT_EQ(leaf.shard.piece.begin, 256 * part) << leaf.name;
    }
  }
}

// --- parameters that lie somewhere already ------------------------------------------------------

TEST(ChooseLayouts, LeavesParametersWhereTheyLie) {
  const Graph graph = linear_layers(64, {256, 1023, 256});
  const std::vector<Layout> layouts = {Layout::whole(), Layout::cut(0), Layout::cut(1)};
  for (Layout first : layouts) {
    for (Layout second : layouts) {
      ShardingRequest request{graph, 2};
      request.homes = {std::nullopt, first, second};
      const Sharding sharding = choose_layouts(request);
      EXPECT_EQ(sharding.values[1], first);
      EXPECT_EQ(sharding.values[2], second);
      for (int part = 0; part < 2; ++part) {
        const Graph local = local_graph(request, sharding, part);
        verify_graph(local, "local_graph");
        for (const auto& gradient : local.gradients) {
          const Leaf& leaf = local.leaves[static_cast<size_t>(gradient.parameter)];
          EXPECT_EQ(local.value(gradient.value).type.sizes, local.value(leaf.value).type.sizes);
        }
      }
    }
  }
}

// The step that cut it used it otherwise.
TEST(ChooseLayouts, SaysThatAParameterCannotStay) {
  TestGraph test;
  const ValueId weight = test.parameter("w", {7});
  const ValueId sums = test.node("aten::cumsum", {weight}, 0, Phase::kForward, {int64_t{0}});
  test.graph.loss = test.node("aten::sum", {sums}, 1);
  test.gradient(weight, test.node("aten::ones_like", {sums}, 0, Phase::kBackward));
  ShardingRequest request{test.graph, 3};
  request.homes = {Layout::cut(0)};
  try {
    choose_layouts(request);
    FAIL() << "was possible";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "epl: batches of this shape cannot be trained on with the parameters as the step "
                 "before has cut them: aten::cumsum needs them otherwise\n"
                 "  try:      batches of this shape from the first step on, or all devices on one "
                 "worker");
  }
}

// --- the plan's sentences -----------------------------------------------------------------------

TEST(ChooseLayouts, SaysHowParametersLie) {
  const Graph graph = linear_layers(8, {2, 3, 2});
  const ShardingRequest two{graph, 2};
  EXPECT_EQ(join(choose_layouts(two).remarks, "\n"),
            "`w0` f32[3,2] is cut in dim 0: 2, 1\n"
            "`w1` f32[2,3] is cut in dim 1: 2, 1");
  const ShardingRequest four{graph, 4};
  EXPECT_EQ(join(choose_layouts(four).remarks, "\n"),
            "`w0` f32[3,2] is whole on every device: no dimension has 4 elements to be cut\n"
            "`w1` f32[2,3] is whole on every device: no dimension has 4 elements to be cut");
}

TEST(ChooseLayouts, SaysThatNothingIsCut) {
  TestGraph test;
  const ValueId weight = test.parameter("w", {2});
  test.graph.loss = test.node("aten::sum", {test.node("aten::erfinv", {weight}, 0)}, 1);
  ShardingRequest request{test.graph, 3};
  request.asked_by = "epl::split(3)";
  EXPECT_EQ(join(choose_layouts(request).remarks, "\n"),
            "`w` f32[2] is whole on every device: no dimension has 3 elements to be cut\n"
            "nothing can be cut over 3 devices: every device does all of it (epl::split(3))");
}

// --- experts ------------------------------------------------------------------------------------

TEST(NodesThatFollow, AreTheProductsWithTheExpertsAndWhatIsDoneToThem) {
  TestGraph test;
  const ValueId tokens = test.input({8, 6, 4});
  const ValueId gate = test.parameter("gate", {8, 6, 4});
  const ValueId up = test.parameter("up", {8, 4, 5});
  const ValueId down = test.parameter("down", {8, 5, 4});
  const ValueId gated = test.node("aten::mul.Tensor", {tokens, gate}, 0);  // not: before them
  const ValueId hidden = test.node("aten::bmm", {gated, up}, 1);
  const ValueId active = test.node("aten::tanh", {hidden}, 2);
  const ValueId answers = test.node("aten::bmm", {active, down}, 3);
  test.graph.loss = test.node("aten::sum", {answers}, 4);
  const ValueId back = test.node("aten::ones_like", {answers}, 4, Phase::kBackward);
  const ValueId turned =
      test.node("aten::transpose.int", {active}, 3, Phase::kBackward, {int64_t{1}, int64_t{2}});
  test.gradient(down, test.node("aten::bmm", {turned, back}, 3, Phase::kBackward));
  test.gradient(gate, test.node("aten::mul.Tensor", {tokens, tokens}, 0, Phase::kBackward));
  ShardingRequest request{test.graph, 2};
  request.made_cut = {false, false, true, true};
  const std::vector<bool> follows = nodes_that_follow(request);
  EXPECT_EQ(follows, (std::vector<bool>{false, true, true, true, true, true, true, true, false}));
  request.made_cut = {false, false, false, false};
  EXPECT_EQ(nodes_that_follow(request), std::vector<bool>(9, false));
}

}  // namespace
}  // namespace epl

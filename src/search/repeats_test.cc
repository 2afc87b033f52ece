#include "search/repeats.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "ir/text.h"
#include "passes/dead_code.h"
#include "passes/purify.h"
#include "tests/models/steps.h"
#include "tests/models/transformer.h"
#include "tests/models/vision.h"

namespace epl {
namespace {

using models::ModelStep;

Graph gpt_graph(int64_t layers, double dropout = 0, int64_t hidden = 8) {
  torch::manual_seed(1);
  auto net =
      std::make_shared<models::Gpt>(models::TransformerSize{11, hidden, layers, 2, 6, dropout});
  const ModelStep step{"gpt",
                       net,
                       [net](const Batch& batch) {
                         return torch::cross_entropy_loss(net->forward(batch[0]).flatten(0, 1),
                                                          batch[1].flatten());
                       },
                       {models::ids_below(11, {2, 5}), models::ids_below(11, {2, 5})}};
  return step.capture();
}

// Blocks lie side by side over all positions, and each position has its nodes once.
void expect_whole(const Repeats& repeats, const Graph& graph) {
  int place = 0;
  for (const Block& block : repeats.blocks) {
    EXPECT_EQ(block.begin, place);
    EXPECT_LT(block.begin, block.end);
    place = block.end;
  }
  EXPECT_EQ(place, static_cast<int>(repeats.positions.size()));
  std::set<int> nodes;
  for (const auto& of_position : repeats.positions) {
    nodes.insert(of_position.begin(), of_position.end());
  }
  EXPECT_EQ(nodes.size(), graph.nodes.size());
}

// What is said to be equal has the same operators and types, node by node, without the finder's
// own texts.
void expect_equal_blocks(const Repeats& repeats, const Graph& graph) {
  const auto describe = [&](const Block& block) {
    std::multiset<std::string> nodes;
    for (int position = block.begin; position < block.end; ++position) {
      for (const int node : repeats.positions[static_cast<size_t>(position)]) {
        std::string text = op_name(graph.nodes[static_cast<size_t>(node)]);
        for_each_output(graph.nodes[static_cast<size_t>(node)],
                        [&](ValueId id) { text += " " + print_type(graph.value(id).type); });
        nodes.insert(text);
      }
    }
    return nodes;
  };
  for (size_t i = 1; i < repeats.blocks.size(); ++i) {
    if (repeats.blocks[i].kind != repeats.blocks[i - 1].kind) continue;
    EXPECT_EQ(describe(repeats.blocks[i]), describe(repeats.blocks[i - 1]));
  }
}

int most_repeated(const Repeats& repeats) {
  int most = 0, run = 0;
  for (size_t i = 0; i < repeats.blocks.size(); ++i) {
    run = i > 0 && repeats.blocks[i].kind == repeats.blocks[i - 1].kind ? run + 1 : 1;
    most = std::max(most, run);
  }
  return most;
}

TEST(Repeats, AreTheLayersOfAGpt) {
  for (const double dropout : {0.0, 0.1}) {
    std::set<int> sizes;
    for (const int64_t layers : {2, 3, 4, 6, 12}) {
      const Graph graph = gpt_graph(layers, dropout);
      const Repeats repeats = find_repeats(graph);
      expect_whole(repeats, graph);
      expect_equal_blocks(repeats, graph);
      EXPECT_EQ(most_repeated(repeats), layers) << repeats.str();
      EXPECT_EQ(repeats.kinds, 3) << repeats.str();
      for (const Block& block : repeats.blocks) {
        if (block.kind == repeats.blocks[1].kind) sizes.insert(block.end - block.begin);
      }
    }
    EXPECT_EQ(sizes.size(), 1u);  // a layer is as long in every one of these models
  }
}

TEST(Repeats, CostWhatAFewLayersDo) {
  const Graph graph = gpt_graph(12);
  EXPECT_GT(find_repeats(graph).repeated(), 0.75);
}

// Layers of another width have other types; one layer in between with another constant is itself.
TEST(Repeats, LeaveAnOddLayerOut) {
  Graph graph = gpt_graph(12);
  const Repeats before = find_repeats(graph);
  ASSERT_GE(most_repeated(before), 11) << before.str();
  // Some number in the sixth of the equal blocks.
  int blocks = 0;
  int changed = 0;
  for (size_t i = 1; i < before.blocks.size(); ++i) {
    if (before.blocks[i].kind != before.blocks[i - 1].kind) continue;
    if (++blocks != 6) continue;
    for (int position = before.blocks[i].begin; position < before.blocks[i].end; ++position) {
      for (const int node : before.positions[static_cast<size_t>(position)]) {
        for (Argument& argument : graph.nodes[static_cast<size_t>(node)].arguments) {
          if (argument.kind != Argument::Kind::kConstant || !argument.constant.isDouble()) continue;
          argument.constant = argument.constant.toDouble() + 0.125;
          ++changed;
        }
      }
    }
  }
  ASSERT_GT(changed, 0);
  const Repeats after = find_repeats(graph);
  expect_whole(after, graph);
  EXPECT_LE(most_repeated(after), 6) << after.str();
  EXPECT_GE(most_repeated(after), 5) << after.str();
}

// The values that a block hands to the rest of the step belong to what it is.
TEST(Repeats, AreNotOfBlocksThatOthersReadOtherwise) {
  Graph graph = gpt_graph(6);
  const Repeats before = find_repeats(graph);
  const int equal = most_repeated(before);
  // A metric looks into the middle of one of the equal blocks.
  for (size_t i = 2; i < before.blocks.size(); ++i) {
    if (before.blocks[i].kind != before.blocks[i - 1].kind) continue;
    const int middle = (before.blocks[i].begin + before.blocks[i].end) / 2;
    const Node& node =
        graph.nodes[static_cast<size_t>(before.positions[static_cast<size_t>(middle)].front())];
    graph.metrics.push_back({"watched", "middle", node.results[0].values[0]});
    break;
  }
  ASSERT_EQ(graph.metrics.size(), 1u);
  EXPECT_LT(most_repeated(find_repeats(graph)), equal);
}

// As compile() makes it: an operator in place would show where the inputs of a block lie.
Repeats repeats_of_pure(const ModelStep& step) {
  Graph graph = step.capture();
  Purify().run(graph);
  DeadCode().run(graph);
  const Repeats repeats = find_repeats(graph);
  expect_whole(repeats, graph);
  expect_equal_blocks(repeats, graph);
  return repeats;
}

TEST(Repeats, AreTheBlocksOfABert) {
  torch::manual_seed(1);
  const Repeats repeats = repeats_of_pure(models::bert_step());
  EXPECT_EQ(most_repeated(repeats), 4) << repeats.str();
}

// Stages of 3, 4, 6 and 3 blocks, of which the first one makes images smaller: 2, 3, 5 and 2.
TEST(Repeats, AreWithinTheStagesOfAResNet) {
  torch::manual_seed(1);
  const Repeats repeats = repeats_of_pure(models::classifier(
      "resnet50", std::make_shared<models::ResNet50>(4, 3), torch::randn({2, 3, 64, 64}), 3));
  EXPECT_EQ(most_repeated(repeats), 5) << repeats.str();
}

TEST(Repeats, AreFewWhereAModelHasNone) {
  torch::manual_seed(1);
  for (const ModelStep& step : models::all_steps()) {
    const Graph graph = step.capture();
    const Repeats repeats = find_repeats(graph);
    expect_whole(repeats, graph);
    expect_equal_blocks(repeats, graph);
    if (step.name == "unet" || step.name == "lenet" || step.name == "vae") {
      EXPECT_EQ(repeats.kinds, 1) << step.name << ": " << repeats.str();
    }
    if (step.name == "resnet18") {
      EXPECT_LT(repeats.repeated(), 0.2) << repeats.str();  // two in its first stage at most
    }
    std::printf("%s: %s\n", step.name.c_str(), repeats.str().c_str());
  }
}

TEST(Repeats, AreFoundInADeepModel) {
  const Repeats repeats = find_repeats(gpt_graph(96));
  EXPECT_EQ(most_repeated(repeats), 96) << repeats.str();
  EXPECT_GT(repeats.repeated(), 0.95);
}

}  // namespace
}  // namespace epl

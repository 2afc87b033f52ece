// Graphs and plans of small models, as text, byte for byte.
//
// A change of these files is a change of what EPL makes of a step: look at the diff, and if it is
// meant, rewrite them by
//
//   EPL_UPDATE_GOLDEN=1 build/bin/test_golden
#include <epl/strategy.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "compile/compile.h"
#include "ir/test_describe.h"
#include "ir/text.h"
#include "program/parse.h"
#include "program/test_plan.h"
#include "program/text.h"
#include "program/verify.h"
#include "tests/golden/golden_file.h"
#include "tests/models/steps.h"
#include "tests/models/transformer.h"

namespace epl {
namespace {

using golden::expect_golden;
using models::ModelStep;

// Convolution, batch norm and a ReLU in place, twice; then a linear layer.
struct ConvNet : torch::nn::Module {
  ConvNet()
      : conv1(torch::nn::Conv2dOptions(2, 4, 3).padding(1).bias(false)),
        conv2(torch::nn::Conv2dOptions(4, 4, 3).padding(1).bias(false)),
        norm1(4),
        norm2(4),
        head(4, 3) {
    register_module("conv1", conv1);
    register_module("norm1", norm1);
    register_module("conv2", conv2);
    register_module("norm2", norm2);
    register_module("head", head);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = norm1(conv1(x)).relu_();
    x = (norm2(conv2(x)) + x).relu_();
    return head(x.mean({2, 3}));
  }

  torch::nn::Conv2d conv1, conv2;
  torch::nn::BatchNorm2d norm1, norm2;
  torch::nn::Linear head;
};

// Two stages, each in a scope of its own, with dropout.
struct Attention : torch::nn::Module {
  Attention() : block(models::BlockKind::kDecoderPreNorm, 8, 2, 0.1), head(8, 5) {
    register_module("block", block);
    register_module("head", head);
  }

  torch::Tensor forward(torch::Tensor x) {
    {
      const epl::With stage(epl::replicate(1, "block"));
      x = block(x);
    }
    const epl::With stage(epl::replicate(1, "head"));
    return head(x.mean(1));
  }

  models::Block block;
  torch::nn::Linear head;
};

// One step of an LSTM cell, whose gates are chunks of one matrix.
struct LstmStep : torch::nn::Module {
  LstmStep() : cell(3, 4) { register_module("cell", cell); }

  torch::Tensor forward(torch::Tensor x) {
    const torch::Tensor memory = torch::zeros({x.size(0), 4});  // made first by any compiler
    const torch::Tensor hidden = torch::zeros({x.size(0), 4});
    return std::get<0>(cell(x, std::make_tuple(hidden, memory)));
  }

  torch::nn::LSTMCell cell;
};

ModelStep make_step(const std::string& name) {
  torch::manual_seed(1);
  if (name == "mlp") return models::mlp_step();
  if (name == "conv_net") {
    return models::classifier(name, std::make_shared<ConvNet>(), torch::randn({2, 2, 4, 4}), 3);
  }
  if (name == "attention") {
    return models::classifier(name, std::make_shared<Attention>(), torch::randn({2, 3, 8}), 5);
  }
  return models::classifier(name, std::make_shared<LstmStep>(), torch::randn({2, 3}), 4);
}

void expect_same_graph(const Graph& graph) {
  const std::string text = print_graph(graph);
  const Graph parsed = parse_graph(text);
  EXPECT_EQ(print_graph(parsed), text);
  EXPECT_EQ(describe(parsed), describe(graph));
}

void expect_same_plan(const Plan& plan) {
  const std::string text = print_plan(plan);
  const Plan parsed = parse_plan(text);
  EXPECT_EQ(print_plan(parsed), text);
  EXPECT_EQ(test_plan::describe(parsed), test_plan::describe(plan));
  EXPECT_NO_THROW(verify_plan(parsed));
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, GraphAfterAllPassesIsAsItWas) {
  Graph graph = make_step(GetParam()).capture();
  const StepPasses passes = step_passes(Config(), {});
  run_passes(graph, passes.whole);
  run_passes(graph, passes.role);
  expect_golden(concat(GetParam(), ".graph"), print_graph(graph));
}

TEST_P(Golden, PlanIsAsItWas) {
  // Two micro batches show how gradients accumulate; once is enough.
  const Config config{{"pipeline.num_micro_batch", GetParam() == std::string("mlp") ? 2 : 1}};
  const CompiledStep step = compile(make_step(GetParam()).capture(), Cluster(), config);
  expect_golden(concat(GetParam(), ".plan"), print_plan(step.plan));
}

TEST_P(Golden, TextsAreReadBackAsTheyAre) {
  for (int micro_batches : {1, 2}) {
    const Config config{{"pipeline.num_micro_batch", micro_batches}};
    const CompiledStep step = compile(make_step(GetParam()).capture(), Cluster(), config);
    expect_same_graph(step.graph);
    expect_same_plan(step.plan);
  }
}

// One step whose parameters and states rest in a file.
TEST(Golden, OffloadedPlanIsAsItWas) {
  const ModelStep model = make_step("mlp");
  CompileOptions options;
  for (const auto& leaf : model.capture().leaves) {
    if (leaf.kind == Leaf::Kind::kParameter) options.offloaded.parameters[leaf.name] = 2;
  }
  const CompiledStep step = compile(model.capture(), Cluster(), Config(), options);
  expect_same_plan(step.plan);
  expect_golden("offload.plan", print_plan(step.plan));
}

TEST_P(Golden, RecordingsOfOneStepAreEqual) {
  const ModelStep step = make_step(GetParam());
  const std::string first = print_graph(step.capture());
  EXPECT_EQ(print_graph(step.capture()), first);
  EXPECT_EQ(print_graph(make_step(GetParam()).capture()), first);
}

TEST(Golden, TextsOfEveryModelAreReadBackAsTheyAre) {
  for (const auto& model : models::all_steps()) {
    SCOPED_TRACE(model.name);
    const CompiledStep step = compile(model.capture(), Cluster(), Config());
    expect_same_graph(step.graph);
    expect_same_plan(step.plan);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Golden, testing::Values("mlp", "conv_net", "attention", "lstm_cell"),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace epl

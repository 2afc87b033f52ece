// TaskGraphs: every operator, forward and backward, belongs to the scope that it came from.
#include <epl/epl.h>
#include <gtest/gtest.h>

#include "capture/test_capture.h"
#include "tests/models/transformer.h"
#include "tests/models/vision.h"

namespace epl {
namespace {

using torch::Tensor;

struct Weights : torch::nn::Module {
  Weights() {
    for (Tensor* weight : {&a, &b, &c}) {
      *weight = register_parameter(std::string(1, static_cast<char>('a' + parameters().size())),
                                   torch::ones({3}));
    }
  }
  Tensor a, b, c;
};

// "forward | backward" operators with their TaskGraphs.
std::string taskgraphs_of(const std::function<Tensor(Weights&, const Tensor&)>& step) {
  Weights net;
  const Graph graph =
      graph_of(net, [&](const Batch& batch) { return step(net, batch[0]); }, {torch::ones({3})});
  return ops_of(graph, Phase::kForward) + " | " + ops_of(graph, Phase::kBackward);
}

TEST(TaskGraphs, OfBackwardOperatorsAreThoseOfTheForwardOnes) {
  EXPECT_EQ(taskgraphs_of([](Weights& net, Tensor x) {
              {
                With scope(replicate(1));
                x = torch::sin(x * net.a);
              }
              {
                With scope(replicate(1));
                x = torch::cos(x * net.b);
              }
              {
                With scope(split(1));
                x = torch::tanh(x * net.c);
              }
              return x.sum();
            }),
            "mul.Tensor:0 sin:0 mul.Tensor:1 cos:1 mul.Tensor:2 tanh:2 sum | "
            "expand tanh_backward:2 mul.Tensor:2 mul.Tensor:2 sin:1 neg:1 mul.Tensor:1 "
            "mul.Tensor:1 mul.Tensor:1 cos:0 mul.Tensor:0 mul.Tensor:0");
}

TEST(TaskGraphs, AreNoneOutsideOfScopes) {
  EXPECT_EQ(taskgraphs_of([](Weights& net, Tensor x) {
              x = torch::sin(x * net.a);
              {
                With scope(replicate(1));
                x = torch::cos(x);
              }
              return torch::tanh(x).sum();
            }),
            "mul.Tensor sin cos:0 tanh sum | "
            "expand tanh_backward sin:0 neg:0 mul.Tensor:0 cos mul.Tensor mul.Tensor");
}

TEST(TaskGraphs, OfASumOfGradientsIsThatOfTheFirstUserOfTheValue) {
  EXPECT_EQ(taskgraphs_of([](Weights& net, Tensor x) {
              Tensor left, right;
              {
                With scope(replicate(1));
                x = torch::sin(x * net.a);
              }
              {
                With scope(replicate(1));
                left = torch::cos(x);
              }
              {
                With scope(replicate(1));
                right = torch::tanh(x);
                return (left + right).sum();
              }
            }),
            "mul.Tensor:0 sin:0 cos:1 tanh:2 add.Tensor:2 sum:2 | "
            "expand:2 tanh_backward:2 sin:1 neg:1 mul.Tensor:1 " +
                kAddGradient +
                ":1 cos:0 "
                "mul.Tensor:0 mul.Tensor:0");
}

// So that one gradient and not two go back to the stage before.
TEST(TaskGraphs, OfASumOfGradientsIsThatOfTheStageThatAllUsersLieIn) {
  EXPECT_EQ(taskgraphs_of([](Weights& net, Tensor x) {
              {
                With scope(replicate(1));
                x = torch::sin(x * net.a);
              }
              With scope(replicate(1));
              return (x * torch::cos(x)).sum();
            }),
            "mul.Tensor:0 sin:0 cos:1 mul.Tensor:1 sum:1 | "
            "expand:1 mul.Tensor:1 mul.Tensor:1 sin:1 neg:1 mul.Tensor:1 " +
                kAddGradient +
                ":1 cos:0 "
                "mul.Tensor:0 mul.Tensor:0");
}

TEST(TaskGraphs, OfASumOverTwoUsesOfAWeightIsThatOfItsFirstUse) {
  EXPECT_EQ(taskgraphs_of([](Weights& net, Tensor x) {
              {
                With scope(replicate(1));
                x = torch::sin(x * net.a);
              }
              {
                With scope(replicate(1));
                x = x * net.b;
              }
              {
                With scope(replicate(1));
                return (x * net.a).sum();
              }
            }),
            "mul.Tensor:0 sin:0 mul.Tensor:1 mul.Tensor:2 sum:2 | "
            "expand:2 mul.Tensor:2 mul.Tensor:2 mul.Tensor:1 mul.Tensor:1 cos:0 mul.Tensor:0 "
            "mul.Tensor:0 " +
                kAddGradient + ":0");
}

TEST(TaskGraphs, StartWithEachDefaultStrategy) {
  EXPECT_EQ(taskgraphs_of([](Weights& net, Tensor x) {
              set_default_strategy(replicate(1));
              x = torch::sin(x * net.a);
              {
                With scope(replicate(1));
                x = torch::tanh(x);
              }
              x = torch::exp(x);
              set_default_strategy(replicate(1));
              return torch::cos(x * net.b).sum();
            }),
            "mul.Tensor:0 sin:0 tanh:1 exp:0 mul.Tensor:2 cos:2 sum:2 | "
            "expand:2 sin:2 neg:2 mul.Tensor:2 mul.Tensor:2 mul.Tensor:2 mul.Tensor:0 "
            "tanh_backward:1 cos:0 mul.Tensor:0 mul.Tensor:0");
}

TEST(TaskGraphs, OfADefaultStrategyFromBeforeTheStepHoldAll) {
  set_default_strategy(replicate(1, "all"));
  EXPECT_EQ(taskgraphs_of([](Weights& net, Tensor x) { return (x * net.a).sin().sum(); }),
            "mul.Tensor:0 sin:0 sum:0 | "
            "expand:0 cos:0 mul.Tensor:0 mul.Tensor:0");
  init();  // forgets the default strategy
}

TEST(TaskGraphs, GoOnWhereANamedScopeIsEnteredAgain) {
  EXPECT_EQ(taskgraphs_of([](Weights& net, Tensor x) {
              for (int i = 0; i < 2; ++i) {
                {
                  With scope(replicate(1, "inner"));
                  x = torch::sin(x * net.a);
                }
                {
                  With scope(replicate(1, "outer"));
                  x = torch::tanh(x);
                }
              }
              return x.sum();
            }),
            "mul.Tensor:0 sin:0 tanh:1 mul.Tensor:0 sin:0 tanh:1 sum | "
            "expand tanh_backward:1 cos:0 mul.Tensor:0 mul.Tensor:0 mul.Tensor:0 "
            "tanh_backward:1 cos:0 mul.Tensor:0 mul.Tensor:0 " +
                kAddGradient + ":0");
}

TEST(TaskGraphs, OfAnAutogradFunctionAreThoseOfItsCall) {
  struct Twice : torch::autograd::Function<Twice> {
    static Tensor forward(torch::autograd::AutogradContext* context, Tensor x, std::string word) {
      context->saved_data["word"] = word;
      context->saved_data["factor"] = 2.0;
      return x * 2;
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
      EXPECT_EQ(context->saved_data["word"].toStringRef(), "twice");
      return {gradients[0].neg().neg() * context->saved_data["factor"].toDouble(), Tensor()};
    }
  };
  EXPECT_EQ(taskgraphs_of([](Weights& net, Tensor x) {
              x = x * net.a;
              {
                With scope(replicate(1));
                x = Twice::apply(x, "twice");
              }
              return x.sin().sum();
            }),
            "mul.Tensor mul.Scalar:0 sin sum | "
            "expand cos mul.Tensor neg:0 neg:0 mul.Scalar:0 mul.Tensor detach");
}

TEST(TaskGraphs, ArePrintedWithTheirStrategies) {
  Weights net;
  const Graph graph = graph_of(net,
                               [&](const Batch& batch) {
                                 Tensor x;
                                 {
                                   With scope(replicate(1, "body"));
                                   x = batch[0] * net.a;
                                 }
                                 With scope(split(1, "head"));
                                 return x.sum();
                               },
                               {torch::ones({3})});
  EXPECT_EQ(print_graph(graph).substr(0, 72),
            "graph\n  taskgraph 0 replicate(1, \"body\")\n  taskgraph 1 split(1, \"head\")\n");
}

// In a chain of stages the backward pass runs from the last to the first.
void expect_stages_in_order(const Graph& graph, int stages) {
  ASSERT_EQ(graph.taskgraphs.size(), stages);
  int last = 0;
  for (const Node& node : graph.nodes) {
    SCOPED_TRACE(print_node(graph, node));
    if (node.phase == Phase::kForward) {
      ASSERT_GE(node.taskgraph, last);
    } else {
      ASSERT_GE(node.taskgraph, 0);
      // A sum is made early, as soon as its last part is there.
      if (op_name(node) == "aten::add.Tensor") continue;
      ASSERT_LE(node.taskgraph, last);
    }
    last = node.taskgraph;
  }
  EXPECT_EQ(last, 0);
}

TEST(TaskGraphs, OfAConvolutionalNetInThreeStages) {
  torch::nn::Sequential one(torch::nn::Conv2d(3, 4, 3), torch::nn::BatchNorm2d(4),
                            torch::nn::ReLU(torch::nn::ReLUOptions(true)));
  torch::nn::Sequential two(torch::nn::Conv2d(4, 4, 3), torch::nn::BatchNorm2d(4),
                            torch::nn::MaxPool2d(2), torch::nn::Flatten());
  torch::nn::Sequential three(torch::nn::Linear(16, 5), torch::nn::Dropout(0.5));
  torch::nn::ModuleList net(one, two, three);
  const Graph graph =
      graph_of(*net,
               [&](const Batch& batch) {
                 Tensor x = batch[0];
                 {
                   With scope(replicate(1, "one"));
                   x = one->forward(x);
                 }
                 {
                   With scope(replicate(1, "two"));
                   x = two->forward(x);
                 }
                 With scope(replicate(1, "three"));
                 return torch::nn::functional::cross_entropy(three->forward(x), batch[1]);
               },
               {torch::randn({2, 3, 8, 8}), torch::zeros({2}, torch::kLong)});
  expect_stages_in_order(graph, 3);
}

TEST(TaskGraphs, OfATransformerInTwoStages) {
  const auto options = torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16);
  torch::nn::TransformerEncoderLayer first(options);
  torch::nn::TransformerEncoderLayer second(options);
  torch::nn::LSTM third(8, 4);
  torch::nn::ModuleList net(first, second, third);
  const Graph graph = graph_of(*net,
                               [&](const Batch& batch) {
                                 Tensor x = batch[0];
                                 {
                                   With scope(replicate(1));
                                   x = first(x);
                                 }
                                 {
                                   With scope(replicate(1));
                                   x = second(x);
                                 }
                                 With scope(replicate(1));
                                 return std::get<0>(third(x)).square().mean();
                               },
                               {torch::randn({5, 2, 8})});
  expect_stages_in_order(graph, 3);
}

}  // namespace
}  // namespace epl

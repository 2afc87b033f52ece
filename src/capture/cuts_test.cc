// Origin::call, the number of the forward operator that a node belongs to. Stages that EPL cuts by
// these numbers (passes/assign_taskgraphs.h) are those that scopes at the same places would give.
#include <epl/epl.h>
#include <gtest/gtest.h>

#include "capture/test_capture.h"
#include "passes/assign_taskgraphs.h"
#include "tests/models/transformer.h"

namespace epl {
namespace {

using torch::Tensor;
namespace F = torch::nn::functional;

// A model in parts, one behind the other; the last one gives the loss.
struct Parts {
  std::shared_ptr<torch::nn::Module> net;
  Batch batch;
  std::vector<std::function<Tensor(const Tensor&, const Batch&)>> parts;

  Tensor run(const Batch& batch, bool scoped) const {
    Tensor x = batch[0];
    for (size_t i = 0; i < parts.size(); ++i) {
      if (scoped) {
        const With scope(replicate(1, concat("stage_", i)));
        x = parts[i](x, batch);
      } else {
        x = parts[i](x, batch);
      }
    }
    return x;
  }

  Graph capture(bool scoped) const {
    const StepFunction step = [&](const Batch& batch) { return run(batch, scoped); };
    NamedTensors parameters;
    NamedTensors state;
    for (const auto& item : net->named_parameters()) {
      parameters.emplace_back(item.key(), item.value());
    }
    for (const auto& item : net->named_buffers()) state.emplace_back(item.key(), item.value());
    Graph graph = capture_step({step, batch, parameters, state}).graph;
    verify_graph(graph, "capture");
    return graph;
  }

  Graph cut(const std::vector<int>& cuts) const {
    Graph graph = capture(/*scoped=*/false);
    AssignTaskGraphs(cuts).run(graph);
    return graph;
  }
};

// The first forward operator of each TaskGraph but the first.
std::vector<int> cuts_of(const Graph& graph) {
  std::vector<int> cuts;
  int stage = 0;
  for (const Node& node : graph.nodes) {
    if (node.phase != Phase::kForward || node.taskgraph <= stage) continue;
    cuts.push_back(node.origin.call);
    ++stage;
  }
  return cuts;
}

void expect_cuts_to_be_like_scopes(const Parts& parts) {
  const Graph scoped = parts.capture(/*scoped=*/true);
  const std::vector<int> cuts = cuts_of(scoped);
  ASSERT_EQ(cuts.size() + 1, parts.parts.size());
  EXPECT_EQ(print_graph(parts.cut(cuts)), print_graph(scoped));
}

TEST(Cuts, AreLikeScopesInATransformer) {
  auto net = std::make_shared<models::Gpt>(models::TransformerSize{11, 8, 3, 2, 6, 0.1},
                                           models::Head::kTied);
  Parts parts{net,
              {torch::randint(11, {2, 5}), torch::randint(11, {2, 5})},
              {[net](const Tensor& ids, const Batch&) {
                 return net->blocks[0](net->tokens(ids) + net->positions.slice(0, 0, 5));
               },
               [net](const Tensor& x, const Batch&) { return net->blocks[1](x); },
               [net](const Tensor& x, const Batch& batch) {
                 const Tensor y = net->final_norm(net->blocks[2](x));
                 return models::token_loss(torch::linear(y, net->tokens->weight), batch[1]);
               }}};
  expect_cuts_to_be_like_scopes(parts);
}

TEST(Cuts, AreLikeScopesInAConvolutionalNetThatWritesInPlace) {
  torch::nn::Conv2d conv1(3, 4, 3), conv2(4, 4, 3);
  torch::nn::BatchNorm2d norm1(4), norm2(4);
  torch::nn::Linear head(64, 5);
  torch::nn::ModuleList net(conv1, norm1, conv2, norm2, head);
  Parts parts{net.ptr(),
              {torch::randn({2, 3, 8, 8}), torch::zeros({2}, torch::kLong)},
              {[=](const Tensor& x, const Batch&) mutable { return norm1(conv1(x)).relu_(); },
               [=](const Tensor& x, const Batch&) mutable { return norm2(conv2(x)).relu_(); },
               [=](const Tensor& x, const Batch& batch) mutable {
                 return F::cross_entropy(F::dropout(head(x.flatten(1))), batch[1]);
               }}};
  expect_cuts_to_be_like_scopes(parts);
}

TEST(Cuts, AreLikeScopesInALayeredLstm) {
  torch::nn::LSTM first(4, 6), second(6, 3);
  torch::nn::ModuleList net(first, second);
  Parts parts{
      net.ptr(),
      {torch::randn({5, 2, 4})},
      {[=](const Tensor& x, const Batch&) mutable { return std::get<0>(first(x)); },
       [=](const Tensor& x, const Batch&) mutable { return std::get<0>(second(x)).sum(); }}};
  expect_cuts_to_be_like_scopes(parts);
}

// Autograd makes its node for a write into a view after the operator has run.
TEST(Cuts, AreLikeScopesBehindAWriteIntoAView) {
  torch::nn::Linear first(4, 4), second(4, 4);
  torch::nn::ModuleList net(first, second);
  Parts parts{net.ptr(),
              {torch::randn({3, 4})},
              {[=](const Tensor& x, const Batch&) mutable {
                 const Tensor y = first(x);
                 y[0].mul_(2);
                 y.select(1, 2).relu_();
                 return y;
               },
               [=](const Tensor& x, const Batch&) mutable { return second(x).square().sum(); }}};
  expect_cuts_to_be_like_scopes(parts);
}

// Its autograd node exists before the first operator inside of it runs.
TEST(Cuts, AreLikeScopesBeforeAnAutogradFunction) {
  struct Twice : torch::autograd::Function<Twice> {
    static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) {
      return x * 2 + x.is_floating_point();
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   torch::autograd::variable_list gradients) {
      return {gradients[0] * 2};
    }
  };
  torch::nn::Linear first(4, 4), second(4, 4);
  torch::nn::ModuleList net(first, second);
  Parts parts{net.ptr(),
              {torch::randn({3, 4})},
              {[=](const Tensor& x, const Batch&) mutable { return first(x); },
               [=](const Tensor& x, const Batch&) mutable { return Twice::apply(x).sin(); },
               [=](const Tensor& x, const Batch&) mutable { return second(x).sum(); }}};
  expect_cuts_to_be_like_scopes(parts);
}

TEST(Cuts, AreLikeScopesAroundOperatorsWithoutAGradient) {
  torch::nn::Linear first(4, 4), second(4, 4);
  torch::nn::ModuleList net(first, second);
  Parts parts{net.ptr(),
              {torch::randn({3, 4})},
              {[=](const Tensor& x, const Batch&) mutable { return first(x); },
               [=](const Tensor& x, const Batch&) mutable {
                 const torch::NoGradGuard no_grad;
                 return x / x.detach().norm();
               },
               [=](const Tensor&, const Batch& batch) mutable {
                 return second(batch[0]).sum() + first(batch[0]).sum();
               }}};
  expect_cuts_to_be_like_scopes(parts);
}

// x -> linear -> sin -> linear -> sum, in which torch::linear() calls aten::t and aten::addmm.
struct TwoLinears {
  TwoLinears() {
    parts = {torch::nn::ModuleList(first, second).ptr(),
             {torch::randn({3, 4})},
             {[this](const Tensor& x, const Batch&) {
               return linear(second, linear(first, x).sin()).sum();
             }}};
  }
  static Tensor linear(const torch::nn::Linear& layer, const Tensor& x) {
    return torch::linear(x, layer->weight, layer->bias);
  }
  torch::nn::Linear first{4, 4}, second{4, 4};
  Parts parts;
};

TEST(Cuts, MayLieInsideOfACompositeOperator) {
  const TwoLinears model;
  const Graph graph = model.parts.cut({1, 4});
  EXPECT_EQ(ops_of(graph, Phase::kForward), "t:0 addmm:1 sin:1 t:1 addmm:2 sum:2");
  EXPECT_EQ(ops_of(graph, Phase::kBackward).substr(0, 35), "expand:2 t:2 mm:2 t:2 mm:2 t:2 sum.");
}

// "operator:call" of a phase.
std::string calls_of(const Graph& graph, Phase phase) {
  std::vector<std::string> words;
  for (const Node& node : graph.nodes) {
    if (node.phase != phase) continue;
    words.push_back(
        concat(op_name(node).substr(std::string("aten::").size()), ":", node.origin.call));
  }
  return join(words, " ");
}

TEST(Origin, OfBackwardOperatorsIsTheCallOfTheirForward) {
  const TwoLinears model;
  const Graph graph = model.parts.capture(/*scoped=*/false);
  EXPECT_EQ(calls_of(graph, Phase::kForward), "t:0 addmm:1 sin:2 t:3 addmm:4 sum:5");
  EXPECT_EQ(calls_of(graph, Phase::kBackward),
            "expand:5 t:4 mm:4 t:4 mm:4 t:4 sum.dim_IntList:4 view:4 t:3 cos:2 mul.Tensor:2 "
            "t:1 mm:1 t:1 sum.dim_IntList:1 view:1 t:0");
}

TEST(Origin, OfASumOfGradientsIsTheCallOfTheFirstUserOfTheValue) {
  torch::nn::Linear linear(torch::nn::LinearOptions(4, 4).bias(false));
  Parts parts{linear.ptr(), {torch::randn({3, 4})}, {[=](const Tensor& x, const Batch&) mutable {
                const Tensor y = linear(x).sin();
                return (linear(y) * y).sum();
              }}};
  const Graph graph = parts.capture(/*scoped=*/false);
  EXPECT_EQ(calls_of(graph, Phase::kForward), "t:0 mm:1 sin:2 t:3 mm:4 mul.Tensor:5 sum:6");
  EXPECT_EQ(calls_of(graph, Phase::kBackward),
            "expand:6 mul.Tensor:5 mul.Tensor:5 t:4 mm:4 t:4 t:4 mm:4 " + kAddGradient +
                ":4 t:3 cos:2 mul.Tensor:2 t:1 mm:1 t:1 t:0 add.Tensor:0");
}

TEST(Origin, NumbersOperatorsAlikeInEveryRecording) {
  auto net = std::make_shared<models::Bert>(models::TransformerSize{11, 8, 2, 2, 6});
  Parts parts{net,
              {torch::randint(11, {2, 6}), torch::randint(2, {2})},
              {[net](const Tensor& x, const Batch& batch) {
                // The empty tensor that C++ fills takes a number, but is no node.
                const Tensor weight = torch::tensor({1.0f, 2.0f});
                return F::cross_entropy(net->forward(x) * weight, batch[1]);
              }}};
  const Graph first = parts.capture(/*scoped=*/false);
  const Graph second = parts.capture(/*scoped=*/false);
  for (Phase phase : {Phase::kForward, Phase::kBackward}) {
    EXPECT_EQ(calls_of(first, phase), calls_of(second, phase));
    EXPECT_EQ(calls_of(first, phase).find(":-1"), std::string::npos);
  }
}

TEST(Origin, KnowsWhatTheUserCalled) {
  const TwoLinears model;
  std::vector<int> user_calls;
  for (const Node& node : model.parts.capture(/*scoped=*/false).nodes) {
    if (node.phase == Phase::kForward) user_calls.push_back(node.origin.user_call);
  }
  EXPECT_EQ(user_calls, (std::vector<int>{0, 0, 1, 2, 2, 3}));
}

TEST(Origin, KnowsHowLongEachOperatorTook) {
  torch::nn::Linear linear(400, 400);
  Parts parts{linear.ptr(),
              {torch::randn({400, 400})},
              {[=](const Tensor& x, const Batch&) mutable { return linear(x).sum(); }}};
  double views = 0;
  double products = 0;
  for (const Node& node : parts.capture(/*scoped=*/false).nodes) {
    EXPECT_GT(node.origin.seconds, 0);
    if (op_name(node) == "aten::t") views += node.origin.seconds;
    if (op_name(node) == "aten::mm" || op_name(node) == "aten::addmm") {
      products += node.origin.seconds;
    }
  }
  EXPECT_GT(products, views);  // 64 million products against four changes of a shape
}

}  // namespace
}  // namespace epl

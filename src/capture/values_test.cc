// Which tensor is which Value: saved tensors, constants, in-place results, memory without contents.
#include <epl/collection.h>
#include <epl/epl.h>
#include <gtest/gtest.h>

#include "capture/test_capture.h"
#include "config/test_environment.h"
#include "tests/models/recurrent.h"
#include "tests/models/transformer.h"
#include "tests/models/unusual.h"
#include "tests/models/vision.h"

namespace epl {
namespace {

using torch::Tensor;

Tensor ids(torch::IntArrayRef shape, int64_t count = 11) {
  return torch::randint(count, shape, torch::kLong);
}

template <typename Net, typename... Inputs>
Graph trained(const std::shared_ptr<Net>& net, Inputs... inputs) {
  return graph_of(*net,
                  [&](const Batch& batch) {
                    if constexpr (sizeof...(Inputs) == 1) {
                      return net->forward(batch[0]).square().mean();
                    } else {
                      return net->forward(batch[0], batch[1]).square().mean();
                    }
                  },
                  {inputs...});
}

// A weight and whatever the test makes of it.
struct Scaled : torch::nn::Module {
  Scaled() : weight(register_parameter("weight", torch::ones({3}))) {}
  Tensor weight;
};

struct Case {
  std::string name;
  std::function<Graph()> graph;
  // Of attention: the number that scales the queries of each layer, in LibTorch 1 a tensor.
  std::string constants;
};

std::ostream& operator<<(std::ostream& out, const Case& item) { return out << item.name; }

struct ConvNet : torch::nn::Module {
  ConvNet() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("head", head);
  }
  Tensor forward(Tensor x) {
    x = torch::max_pool2d(torch::relu(norm(conv(x))), 2);
    return torch::log_softmax(head(x.flatten(1)), 1);
  }
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(3, 4, 3).padding(1)};
  torch::nn::BatchNorm2d norm{4};
  torch::nn::Linear head{64, 5};
};

template <typename Module>
Case recurrent(const std::string& name, Module module) {
  return {name,
          [module]() mutable {
            return graph_of(*module,
                            [&](const Batch& batch) {
                              return std::get<0>(module->forward(batch[0])).square().mean();
                            },
                            {torch::randn({5, 2, 3})});
          },
          ""};
}

class Identity : public testing::TestWithParam<Case> {};

TEST_P(Identity, OfSavedTensorsIsThatOfTheForwardPass) {
  torch::manual_seed(1);
  EXPECT_EQ(constants_of(GetParam().graph()), EPL_TORCH_AT_LEAST(2, 0) ? "" : GetParam().constants);
}

using namespace models;  // NOLINT: the nets of the table
INSTANTIATE_TEST_SUITE_P(
    Nets, Identity,
    testing::Values(
        Case{"ConvolutionAndBatchNorm",
             [] {
               return trained(std::make_shared<ConvNet>(), torch::randn({2, 3, 8, 8}));
             },
             ""},
        Case{"ResNet18",
             [] {
               return trained(std::make_shared<ResNet18>(4), torch::randn({2, 3, 32, 32}));
             },
             ""},
        Case{
            "SelfAttention",
            [] {
              return trained(std::make_shared<EncoderClassifier>(11, 8, 2, 6, 3, 0.1), ids({2, 6}));
            },
            "f64[] f64[]"},
        Case{
            "CrossAttention",
            [] {
              return trained(std::make_shared<Translator>(11, 8, 1, 0.1), ids({2, 6}), ids({2, 4}));
            },
            "f64[] f64[] f64[]"},
        Case{"HandWrittenAttention",
             [] {
               return trained(std::make_shared<Gpt>(TransformerSize{11, 8, 1, 2, 6}), ids({2, 6}));
             },
             "f64[]"},
        recurrent("Lstm", torch::nn::LSTM(torch::nn::LSTMOptions(3, 4).num_layers(2).dropout(0.1))),
        recurrent("Gru", torch::nn::GRU(torch::nn::GRUOptions(3, 4).bidirectional(true))),
        recurrent("RnnTanh", torch::nn::RNN(torch::nn::RNNOptions(3, 4))),
        recurrent("RnnRelu",
                  torch::nn::RNN(torch::nn::RNNOptions(3, 4).nonlinearity(torch::kReLU))),
        Case{"CellsInALoop",
             [] {
               return trained(std::make_shared<CellLanguageModel>(11, 4), ids({2, 6}));
             },
             ""},
        Case{"AutogradFunctionOfTheUser",
             [] {
               return trained(std::make_shared<Quantised>(3, 4, 2), torch::randn({2, 3}));
             },
             ""},
        Case{"SparseEmbedding",
             [] {
               return trained(std::make_shared<BagOfWords>(11, 4, 2), ids({2, 6}));
             },
             ""}),
    [](const auto& info) { return info.param.name; });

// --- in place, constants, memory without contents ----------------------------------------------

TEST(CapturedStep, HoldsForwardAndBackwardInOrder) {
  Scaled net;
  const Graph graph =
      graph_of(net, [&](const Batch& batch) { return (batch[0] * net.weight).relu_().sum(); },
               {torch::ones({2, 3})});
  EXPECT_EQ(print_graph(graph), R"(graph
  %0: f32[2,3] = input 0
  %1: f32[3] = parameter "weight"
  %5: f32[] = seed
  %2: f32[2,3] = aten::mul.Tensor(%0, %1) {forward}
  %3: f32[2,3] @%2 = aten::relu_(%2) {forward}
  %4: f32[] = aten::sum(%3, none) {forward}
  %6: f32[2,3]{0,0} @%5 = aten::expand(%5, [2, 3], false) {backward}
  %7: f32[2,3] = aten::threshold_backward(%6, %3, 0) {backward}
  %8: f32[2,3] = aten::mul.Tensor(%7, %0) {backward}
  %9: f32[1,3] = aten::sum.dim_IntList(%8, [0], true, none) {backward}
  %10: f32[3] @%9 = aten::view(%9, [3]) {backward}
  return loss %4, gradient "weight" %10
)");
}

TEST(CapturedStep, RecordedTwiceGivesTheSameText) {
  torch::manual_seed(1);
  auto net = std::make_shared<EncoderClassifier>(11, 8, 2, 6, 3, 0.1);
  const Batch batch{ids({2, 6})};
  const auto record = [&] {
    return print_graph(graph_of(
        *net, [&](const Batch& batch) { return net->forward(batch[0]).square().mean(); }, batch));
  };
  EXPECT_EQ(record(), record());
}

TEST(CapturedStep, ReadsInputsThatAreNotContiguousWhereTheyLie) {
  Scaled net;
  const Tensor wide = torch::ones({3, 4, 2});
  const Graph graph =
      graph_of(net, [&](const Batch& batch) { return (batch[0] * net.weight).sum(); },
               {wide.select(2, 1).t()});
  EXPECT_EQ(print_type(graph.value(graph.leaves[0].value).type), "f32[4,3]{2,8}+1");
}

TEST(CapturedStep, KeepsDtypesOfItsParameters) {
  Scaled net;
  net.weight.set_data(net.weight.to(torch::kDouble));
  const Graph graph = graph_of(
      net, [&](const Batch& batch) { return (batch[0] * net.weight).sum(); }, {torch::ones({3})});
  EXPECT_EQ(print_type(graph.value(graph.gradients[0].value).type), "f64[3]");
}

TEST(CapturedStep, UnrollsControlFlowThatDoesNotDependOnData) {
  Scaled net;
  const Graph graph = graph_of(net,
                               [&](const Batch& batch) {
                                 Tensor x = batch[0];
                                 for (int64_t i = 0; i < x.size(0); ++i) {
                                   x = i % 2 == 0 ? torch::sin(x * net.weight) : torch::cos(x);
                                 }
                                 return x.sum();
                               },
                               {torch::ones({5, 3})});
  EXPECT_EQ(ops_of(graph, Phase::kForward),
            "mul.Tensor sin cos mul.Tensor sin cos mul.Tensor sin sum");
}

TEST(CapturedStep, HasNoBackwardForWhatStandsUnderNoGrad) {
  Scaled net;
  const Graph graph = graph_of(net,
                               [&](const Batch& batch) {
                                 Tensor scale;
                                 {
                                   torch::NoGradGuard no_grad;
                                   scale = (batch[0] * net.weight).exp().mean();
                                 }
                                 return (net.weight * scale).sum();
                               },
                               {torch::ones({2, 3})});
  EXPECT_EQ(ops_of(graph, Phase::kForward), "mul.Tensor exp mean mul.Tensor sum");
  EXPECT_EQ(ops_of(graph, Phase::kBackward), "expand mul.Tensor");
}

TEST(CapturedStep, HoldsADoubleBackward) {
  Scaled net;
  const Graph graph = graph_of(net,
                               [&](const Batch& batch) {
                                 const Tensor x = batch[0].detach().requires_grad_(true);
                                 const Tensor y = (x * net.weight).tanh().sum();
                                 const Tensor slope = torch::autograd::grad(
                                     {y}, {x}, {}, true, /*create_graph=*/true)[0];
                                 return y + slope.square().sum();
                               },
                               {torch::ones({2, 3})});
  EXPECT_EQ(constants_of(graph), "");
  EXPECT_EQ(graph.gradients.size(), 1);
  EXPECT_EQ(ops_of(graph, Phase::kForward),
            "detach mul.Tensor tanh sum ones_like expand tanh_backward mul.Tensor "
            "pow.Tensor_Scalar sum add.Tensor");
}

TEST(CapturedStep, ReturnsMetricsAndCollections) {
  Scaled net;
  const Graph graph =
      graph_of(net,
               [&](const Batch& batch) {
                 const Tensor y = batch[0] * net.weight;
                 add_to_collection(collections::kGlobalSum, y.sum(), "total");
                 add_to_collection(collections::kLocalConcat, batch[0]);
                 return StepOutput(y.mean(), {{"weight", net.weight}, {"largest", y.max()}});
               },
               {torch::ones({2, 3})});
  std::vector<std::string> metrics;
  for (const Metric& metric : graph.metrics) {
    metrics.push_back(metric.collection + " " + metric.name + " " +
                      print_type(graph.value(metric.value).type));
  }
  EXPECT_EQ(metrics, (std::vector<std::string>{
                         "GLOBAL_MEAN largest f32[]", "GLOBAL_MEAN weight f32[3]",
                         "GLOBAL_SUM total f32[]", "LOCAL_CONCAT LOCAL_CONCAT_0 f32[2,3]"}));
}

// --- tensors that the step closes over or makes of C++ values ----------------------------------

// Operators and constants of weight * other, other made by `make` from the batch.
std::string product_with(const std::function<Tensor(const Tensor&)>& make) {
  Scaled net;
  const Graph graph =
      graph_of(net, [&](const Batch& batch) { return (net.weight * make(batch[0])).sum(); },
               {torch::full({3}, 2.0f)});
  return ops_of(graph, Phase::kForward) + " | " + constants_of(graph);
}

const std::vector<float> kNumbers{1, 2, 3};

TEST(MemoryWithoutContents, ThatCppFillsIsAConstant) {
  EXPECT_EQ(product_with([](const Tensor&) { return torch::tensor(kNumbers); }),
            "mul.Tensor sum | f32[3]");
}

TEST(MemoryWithoutContents, ThatOperatorsFillIsMadeAnewInEveryStep) {
  EXPECT_EQ(product_with([](const Tensor&) { return torch::empty({3}).fill_(2); }),
            "empty.memory_format fill_.Scalar mul.Tensor sum | ");
  EXPECT_EQ(product_with([](const Tensor& x) { return torch::empty({3}).copy_(x); }),
            "empty.memory_format copy_ mul.Tensor sum | ");
  EXPECT_EQ(product_with([](const Tensor& x) {
              Tensor y = torch::empty({3});
              return torch::add_out(y, x, x);
            }),
            "empty.memory_format add.out mul.Tensor sum | ");
}

TEST(MemoryWithoutContents, ThatOperatorsFillPartByPartIsMadeAnewInEveryStep) {
  EXPECT_EQ(product_with([](const Tensor& x) {
              Tensor y = torch::empty({3});
              y.slice(0, 0, 2).copy_(x.slice(0, 0, 2));
              y.select(0, 2).fill_(7);
              return y;
            }),
            "empty.memory_format slice.Tensor slice.Tensor copy_ select.int fill_.Scalar "
            "mul.Tensor sum | ");
}

TEST(MemoryWithContents, ThatCppFillsIsAConstant) {
  EXPECT_EQ(product_with([](const Tensor&) {
              Tensor y = torch::zeros({3});
              y.data_ptr<float>()[1] = 7;
              return y;
            }),
            "mul.Tensor sum | f32[3]");
  EXPECT_EQ(product_with([](const Tensor&) { return torch::zeros({3}); }),
            "zeros mul.Tensor sum | ");
}

TEST(MemoryWithContents, ThatVariesAndCppFillsCannotBeReplayed) {
  Scaled net;
  const StepFunction filled = [&](const Batch& batch) {
    Tensor y = batch[0].clone();
    y.data_ptr<float>()[1] = 7;
    return (net.weight * y).sum();
  };
  const Batch batch{torch::ones({3})};
  const NamedTensors parameters{{"weight", net.weight}};
  const NamedTensors state;
  EXPECT_EQ(capture_step({filled, batch, parameters, state}).unreplayable,
            "C++ writes into f32[3] that aten::clone made, by data_ptr() or accessor(): a replay "
            "would not");
}

// The rest by C++: what an operator wrote of it is written again.
TEST(MemoryWithoutContents, ThatOperatorsAndCppFillIsCopiedInEveryStep) {
  EXPECT_EQ(product_with([](const Tensor& x) {
              Tensor y = torch::empty({3});
              y.slice(0, 0, 2).copy_(x.slice(0, 0, 2));
              y.data_ptr<float>()[2] = 7;
              return y;
            }),
            "clone slice.Tensor slice.Tensor copy_ mul.Tensor sum | f32[3]");
}

TEST(MemoryWithoutContents, OfNoElementsMayBeJoinedWithOthers) {
  EXPECT_EQ(product_with([](const Tensor& x) {
              return torch::cat({torch::empty({0}), x});
            }),
            "empty.memory_format cat mul.Tensor sum | ");
  EXPECT_EQ(product_with([](const Tensor& x) {
              return x + torch::empty({0, 3}).repeat({2, 1}).sum();
            }),
            "empty.memory_format repeat sum add.Tensor mul.Tensor sum | ");
}

// resize_() makes elements that operators fill, or C++.
TEST(MemoryWithoutContents, OfATensorThatGrows) {
  EXPECT_EQ(product_with([](const Tensor& x) { return torch::empty({0}).resize_({3}).copy_(x); }),
            "empty.memory_format resize_ copy_ mul.Tensor sum | ");
  Scaled net;
  const auto filled = [&](const Batch&) {
    Tensor y = torch::zeros({1}).resize_({3});
    std::copy(kNumbers.begin(), kNumbers.end(), y.data_ptr<float>());
    return (net.weight * y).sum();
  };
  const Batch none;
  const NamedTensors parameters{{"weight", net.weight}};
  const Capture capture = capture_step({filled, none, parameters, {}});
  EXPECT_EQ(capture.unreplayable,
            "it reads f32[3], which resize_() made larger and no operator filled");
}

TEST(MemoryWithoutContents, ThatCppFillsAndTheStepWritesIsCopiedInEveryStep) {
  EXPECT_EQ(product_with([](const Tensor& x) {
              Tensor y = torch::tensor(kNumbers);
              return y.mul_(x);
            }),
            "clone mul_.Tensor mul.Tensor sum | f32[3]");
}

TEST(MemoryWithoutContents, ThatCppFillsMayBeAMetric) {
  Scaled net;
  const Graph graph = graph_of(
      net,
      [&](const Batch&) {
        return StepOutput(net.weight.sum(), {{"seven", torch::tensor(std::vector<float>{7})}});
      },
      {});
  ASSERT_EQ(constants_of(graph), "f32[1]");
  EXPECT_EQ(leaves_of(graph, Leaf::Kind::kConstant)[0].value, graph.metrics[0].value);
}

TEST(Constant, OfMemoryThatSomebodyElseOwnsIsACopy) {
  Scaled net;
  std::vector<float> numbers{1, 2, 3};
  const Graph graph = graph_of(
      net, [&](const Batch&) { return (net.weight * torch::from_blob(numbers.data(), {3})).sum(); },
      {});
  numbers.assign(3, 0);
  const Leaf leaf = leaves_of(graph, Leaf::Kind::kConstant)[0];
  EXPECT_TRUE(leaf.tensor.equal(torch::tensor(kNumbers)));
}

TEST(Constant, OfMemoryThatSomebodyElseOwnsAndTheStepClosesOverIsNotACopy) {
  Scaled net;
  std::vector<float> numbers{1, 2, 3};
  const Tensor mask = torch::from_blob(numbers.data(), {3});
  const Graph graph = graph_of(net, [&](const Batch&) { return (net.weight * mask).sum(); }, {});
  EXPECT_EQ(leaves_of(graph, Leaf::Kind::kConstant)[0].tensor.data_ptr(), numbers.data());
}

TEST(Constant, OfMemoryThatSomebodyElseOwnsIsCopiedInEveryStepThatWritesIt) {
  std::vector<float> numbers{1, 2, 3};
  EXPECT_EQ(
      product_with([&](const Tensor& x) { return torch::from_blob(numbers.data(), {3}).mul_(x); }),
      "clone mul_.Tensor mul.Tensor sum | f32[3]");
  EXPECT_EQ(numbers, (std::vector<float>{1, 2, 3}));
}

TEST(Constant, IsTheTensorThatTheStepClosesOverAndNotACopy) {
  Scaled net;
  const Tensor mask = torch::ones({3});
  const Graph graph = graph_of(net, [&](const Batch&) { return (net.weight * mask).sum(); }, {});
  EXPECT_EQ(leaves_of(graph, Leaf::Kind::kConstant)[0].tensor.data_ptr(), mask.data_ptr());
}

TEST(Constant, IsAParameterOfAModuleThatNobodyNamed) {
  Scaled net;
  Scaled teacher;
  const Graph graph = graph_of(
      net, [&](const Batch& batch) { return (batch[0] * net.weight * teacher.weight).sum(); },
      {torch::ones({3})});
  EXPECT_EQ(leaves_of(graph, Leaf::Kind::kConstant)[0].tensor.data_ptr(),
            teacher.weight.data_ptr());
  EXPECT_EQ(graph.gradients.size(), 1);
}

TEST(Constant, IsMadeOnceForSeveralReaders) {
  Scaled net;
  const Tensor mask = torch::ones({3});
  const Graph graph = graph_of(
      net, [&](const Batch&) { return (net.weight * mask + mask * mask.view({3})).sum(); }, {});
  EXPECT_EQ(constants_of(graph), "f32[3]");
}

// The operators whose results the step marks to be kept, and what the graph returns.
std::string marked_in(const std::function<Tensor(const Tensor&)>& step) {
  Scaled net;
  const Graph graph =
      graph_of(net, [&](const Batch& batch) { return step(batch[0] * net.weight).sum(); },
               {torch::ones({3})});
  std::vector<std::string> marked;
  for (const Node& node : graph.nodes) {
    if (node.origin.marked) marked.push_back(op_name(node));
  }
  EXPECT_TRUE(graph.metrics.empty());
  return join(marked, " ");
}

TEST(Mark, IsOnTheNodeThatMakesTheTensor) {
  const char* const kept = collections::kCheckpoints;
  EXPECT_EQ(marked_in([&](const Tensor& x) {
              const Tensor y = x.tanh();
              add_to_collection(kept, y);
              return y.sigmoid();
            }),
            "aten::tanh");
  EXPECT_EQ(marked_in([&](const Tensor& x) {
              Tensor y = x + 1;
              y.relu_();  // it is marked as it is then
              add_to_collection(kept, y);
              return y;
            }),
            "aten::relu_");
  EXPECT_EQ(marked_in([&](const Tensor& x) {
              add_to_collection(kept, torch::ones({2}).detach());
              return x;
            }).find("aten::mul"),
            std::string::npos);
}

}  // namespace
}  // namespace epl

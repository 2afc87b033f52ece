#include "capture/amp_scope.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/check.h"
#include "capture/test_capture.h"
#include "layout/dtype_names.h"
#include "runtime/tile_products.h"

namespace epl {
namespace {

// Before any test: once oneDNN has run something it is too late.
const bool kWithoutTiles = (avoid_tile_products(), true);

namespace F = torch::nn::functional;
using torch::Tensor;

StepFunction under_amp(StepFunction step, CastLog* log = nullptr) {
  return [step = std::move(step), log](const Batch& batch) {
    const AmpScope scope(torch::kBFloat16, log);
    return step(batch);
  };
}

// A word for each operator of a phase, with the types that it reads and gives, views left out:
// "mm(bf16 bf16)->bf16".
std::string typed_ops(const Graph& graph, Phase phase) {
  std::vector<std::string> words;
  for (const Node& node : graph.nodes) {
    if (node.phase != phase) continue;
    std::vector<std::string> from;
    std::vector<std::string> to;
    bool view = false;
    for_each_input(node,
                   [&](ValueId id) { from.push_back(dtype_name(graph.value(id).type.dtype)); });
    for_each_output(node, [&](ValueId id) {
      to.push_back(dtype_name(graph.value(id).type.dtype));
      view |= graph.value(id).storage != id;
    });
    if (view || to.empty()) continue;
    words.push_back(concat(op_name(node).substr(6), "(", join(from, " "), ")->", join(to, " ")));
  }
  return join(words, " ");
}

struct Layer : torch::nn::Module {
  explicit Layer(std::vector<int64_t> sizes)
      : weight(register_parameter("weight", torch::rand(sizes))) {}
  Tensor weight;
};

using Body = std::function<Tensor(const Tensor& x, const Tensor& weight)>;

std::string forward_of(const Body& body, std::vector<int64_t> weight = {4, 4},
                       std::vector<int64_t> input = {2, 4}) {
  auto net = std::make_shared<Layer>(std::move(weight));
  const Graph graph = graph_of(*net, under_amp([net, body](const Batch& batch) {
    return body(batch[0], net->weight).sum();
  }),
                               {torch::rand(input)});
  std::string words = typed_ops(graph, Phase::kForward);
  const std::string sum = EPL_TORCH_AT_LEAST(2, 0) ? " sum(f32)->f32" : " sum(f32)->f32";
  EXPECT_EQ(words.substr(words.size() - sum.size()), sum);
  return words.substr(0, words.size() - sum.size());
}

TEST(AmpScope, RunsProductsInTheLowerPrecision) {
  EXPECT_EQ(forward_of([](const Tensor& x, const Tensor& w) { return torch::mm(x, w); }),
            "_to_copy(f32)->bf16 _to_copy(f32)->bf16 mm(bf16 bf16)->bf16 _to_copy(bf16)->f32");
  EXPECT_EQ(forward_of([](const Tensor& x, const Tensor& w) { return F::linear(x, w); }),
            "_to_copy(f32)->bf16 _to_copy(f32)->bf16 mm(bf16 bf16)->bf16 _to_copy(bf16)->f32");
  EXPECT_EQ(forward_of([](const Tensor& x, const Tensor& w) { return F::conv2d(x, w); },
                       {3, 3, 1, 1}, {2, 3, 4, 4}),
            "_to_copy(f32)->bf16 _to_copy(f32)->bf16 convolution(bf16 bf16)->bf16 "
            "_to_copy(bf16)->f32");
}

TEST(AmpScope, RunsTransposedConvolutionsWhereLibTorchHasThem) {
  const std::string words =
      forward_of([](const Tensor& x, const Tensor& w) { return F::conv_transpose2d(x, w); },
                 {3, 3, 1, 1}, {2, 3, 4, 4});
  EXPECT_EQ(words.find("bf16") != std::string::npos, kTransposesInLower) << words;
}

TEST(AmpScope, RunsSumsAndLossesInFloat32) {
  const auto low = [](const Tensor& x, const Tensor& w) { return torch::mm(x, w); };
  const std::string product = "_to_copy(f32)->bf16 _to_copy(f32)->bf16 mm(bf16 bf16)->bf16 ";
  EXPECT_EQ(forward_of([&](const Tensor& x, const Tensor& w) { return low(x, w).softmax(1); }),
            product + "_to_copy(bf16)->f32 _softmax(f32)->f32");
  EXPECT_EQ(forward_of([&](const Tensor& x, const Tensor& w) { return low(x, w).exp(); }),
            product + "_to_copy(bf16)->f32 exp(f32)->f32");
  EXPECT_EQ(forward_of([&](const Tensor& x, const Tensor& w) {
              return F::layer_norm(low(x, w), F::LayerNormFuncOptions({4}));
            }),
            product + "_to_copy(bf16)->f32 native_layer_norm(f32)->f32 f32 f32");
}

TEST(AmpScope, RunsTheRestInWhatItGets) {
  const std::string product = "_to_copy(f32)->bf16 _to_copy(f32)->bf16 mm(bf16 bf16)->bf16 ";
  EXPECT_EQ(
      forward_of([](const Tensor& x, const Tensor& w) { return torch::relu(torch::mm(x, w)); }),
      product + "relu(bf16)->bf16 _to_copy(bf16)->f32");
  EXPECT_EQ(forward_of([](const Tensor& x, const Tensor& w) { return x * w[0]; }),
            "mul.Tensor(f32 f32)->f32");
}

TEST(AmpScope, WidensWhatMeetsFloat32) {
  const std::string product = "_to_copy(f32)->bf16 _to_copy(f32)->bf16 mm(bf16 bf16)->bf16 ";
  EXPECT_EQ(forward_of([](const Tensor& x, const Tensor& w) { return x + torch::mm(x, w); }),
            product + "_to_copy(bf16)->f32 add.Tensor(f32 f32)->f32");
  EXPECT_EQ(forward_of([](const Tensor& x, const Tensor& w) {
              return torch::cat({x, torch::mm(x, w)});
            }),
            product + "_to_copy(bf16)->f32 cat(f32 f32)->f32");
}

// A number is no tensor that others are widened for.
TEST(AmpScope, DoesNotWidenForNumbers) {
  const Tensor number = torch::tensor(2.0f);
  EXPECT_EQ(forward_of([&](const Tensor& x, const Tensor& w) { return torch::mm(x, w) * number; }),
            "_to_copy(f32)->bf16 _to_copy(f32)->bf16 mm(bf16 bf16)->bf16 mul.Tensor(bf16 "
            "f32)->bf16 _to_copy(bf16)->f32");
}

TEST(AmpScope, KeepsTheTypeOfWhatIsWrittenInPlace) {
  const AmpScope scope(torch::kBFloat16);
  const Tensor x = torch::rand({2, 4});
  const Tensor w = torch::rand({4, 4});
  Tensor wide = torch::zeros({2, 4});
  wide.add_(torch::mm(x, w));
  EXPECT_EQ(wide.scalar_type(), torch::kFloat);
  EXPECT_TRUE(torch::equal(wide, torch::mm(x, w).to(torch::kFloat)));
  Tensor product = torch::ones({2, 4});
  product.addmm_(torch::mm(x, w), w);
  EXPECT_EQ(product.scalar_type(), torch::kFloat);
  Tensor narrow = torch::mm(x, w);
  narrow.add_(x);
  EXPECT_EQ(narrow.scalar_type(), torch::kBFloat16);
}

TEST(AmpScope, CastsWhatIsWrittenIntoSomeElements) {
  const AmpScope scope(torch::kBFloat16);
  const Tensor x = torch::ones({2, 4});
  Tensor narrow = torch::mm(x, torch::ones({4, 4}));
  ASSERT_EQ(narrow.scalar_type(), torch::kBFloat16);
  narrow.index_put_({torch::tensor({0})}, x[0]);
  narrow.index_add_(0, torch::tensor({1}), x.slice(0, 0, 1));
  narrow.scatter_(1, torch::zeros({2, 1}, torch::kLong), 3 * x.slice(1, 0, 1));
  EXPECT_EQ(narrow.scalar_type(), torch::kBFloat16);
  const Tensor expected = torch::tensor({{3.0f, 1.0f, 1.0f, 1.0f}, {3.0f, 5.0f, 5.0f, 5.0f}});
  EXPECT_TRUE(torch::equal(narrow.to(torch::kFloat), expected)) << narrow;
}

// They are not cast, so what they are multiplied by is not either.
TEST(AmpScope, MultipliesSparseTensorsInFloat32) {
  const AmpScope scope(torch::kBFloat16);
  const Tensor sparse = torch::eye(4).to_sparse();
  const Tensor x = torch::ones({4, 4});
  EXPECT_TRUE(torch::equal(torch::mm(sparse, x), x));
  const Tensor low = torch::mm(x, x);
  ASSERT_EQ(low.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(torch::equal(torch::mm(sparse, low), 4 * x));
}

TEST(AmpScope, RefusesViewsOfWhatWouldBeACopy) {
  const AmpScope scope(torch::kBFloat16);
  const Tensor low = torch::mm(torch::ones({3, 2}), torch::ones({2, 2}));
  try {
    torch::view_as_complex(low);
    FAIL() << "it would be a view of a copy";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("aten::view_as_complex shows the memory of its argument"),
              std::string::npos)
        << text;
  }
}

TEST(AmpScope, LeavesDoublePrecisionAlone) {
  const AmpScope scope(torch::kBFloat16);
  const Tensor x = torch::rand({2, 2}, torch::kDouble);
  EXPECT_EQ(torch::mm(x, x).scalar_type(), torch::kDouble);
}

TEST(AmpScope, EndsWithItsBlock) {
  const Tensor x = torch::rand({2, 2});
  {
    const AmpScope scope(torch::kBFloat16);
    EXPECT_EQ(torch::mm(x, x).scalar_type(), torch::kBFloat16);
  }
  EXPECT_EQ(torch::mm(x, x).scalar_type(), torch::kFloat);
}

// Autograd casts back.
TEST(AmpScope, GivesParametersGradientsOfTheirOwnType) {
  auto net = std::make_shared<Layer>(std::vector<int64_t>{4, 4});
  const Graph graph = graph_of(
      *net, under_amp([net](const Batch& batch) { return torch::mm(batch[0], net->weight).sum(); }),
      {torch::rand({2, 4})});
  ASSERT_EQ(graph.gradients.size(), 1U);
  EXPECT_EQ(graph.value(graph.gradients[0].value).type.dtype, torch::kFloat);
  const std::string backward = typed_ops(graph, Phase::kBackward);
  EXPECT_NE(backward.find("mm(bf16 bf16)->bf16"), std::string::npos) << backward;
}

// An LSTM is made of products that only its parts show.
TEST(AmpScope, SeesTheProductsInsideOfOthers) {
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(4, 8));
  const Graph graph = graph_of(*lstm, under_amp([&](const Batch& batch) {
    return std::get<0>(lstm->forward(batch[0])).sum();
  }),
                               {torch::rand({3, 2, 4})});
  for (const Node& node : graph.nodes) {
    const std::string name = op_name(node);
    const bool product = name == "aten::mm" || name == "aten::addmm";
    if (!product || node.phase != Phase::kForward) continue;
    for_each_input(
        node, [&](ValueId id) { EXPECT_EQ(graph.value(id).type.dtype, torch::kBFloat16) << name; });
  }
  EXPECT_GT(count_ops(graph, "aten::_to_copy"), 0);
}

// What it computes is what LibTorch's own autocast computes, where the lists are the same.
TEST(AmpScope, GivesTheNumbersOfAutocast) {
  torch::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Linear(16, 32), torch::nn::ReLU(), torch::nn::Linear(32, 8));
  const Tensor x = torch::rand({4, 16});
  const Tensor y = torch::randint(8, {4});
  const auto loss_of = [&] { return F::cross_entropy(net->forward(x), y); };
  Tensor own;
  {
    const AmpScope scope(torch::kBFloat16);
    own = loss_of();
  }
#if EPL_TORCH_AT_LEAST(2, 4)
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const Tensor theirs = loss_of();
  at::autocast::set_autocast_enabled(at::kCPU, false);
#else
  at::autocast::set_cpu_enabled(true);
  const Tensor theirs = loss_of();
  at::autocast::set_cpu_enabled(false);
#endif
  at::autocast::clear_cache();
  EXPECT_NEAR(own.item<double>(), theirs.item<double>(), 1e-2);
  EXPECT_NE(own.item<double>(), loss_of().item<double>());
}

TEST(AmpScope, TellsWhichCastsItMade) {
  CastLog log;
  {
    const AmpScope scope(torch::kBFloat16, &log);
    const Tensor x = torch::rand({2, 4});
    F::linear(x, torch::rand({8, 4})).exp();
  }
  EXPECT_EQ(log.str(3),
            "  aten::matmul  6 casts  f32 -> bf16 (lower)  240 B\n"
            "  aten::exp  3 casts  bf16 -> f32 (float32)  192 B\n");
}

#if !EPL_TORCH_AT_LEAST(2, 0)
TEST(AmpScope, NamesTheOperatorWithoutAKernel) {
  const AmpScope scope(torch::kHalf);
  const Tensor x = torch::rand({2, 2});
  try {
    F::linear(x, x);
    FAIL() << "there is no product in half precision";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("no kernel of aten::mm for float16"), std::string::npos) << text;
    EXPECT_NE(text.find("amp.dtype = \"bfloat16\""), std::string::npos) << text;
  }
}
#endif

}  // namespace
}  // namespace epl

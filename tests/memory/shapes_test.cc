// A model of a trillion parameters, made, run forward and backward and updated once on shapes
// alone, takes no more memory than a laptop has to spare. A process of its own, so that it holds
// nothing of other tests.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include "model/torch_shapes.h"
#include "tests/models/transformer.h"

namespace epl {
namespace {

double peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// Megatron's largest of 2021: 128 layers of 25600, 160 heads, 2048 tokens.
ShapeProgram gpt_of_a_trillion() {
  const models::TransformerSize size{51200, 25600, 128, 160, 2048, 0.1};
  auto net = std::make_shared<models::Gpt>(size);
  const StepFunction step = [net](const Batch& batch) {
    return models::token_loss(net->forward(batch[0]), batch[1]);
  };
  const auto ids = [] { return torch::randint(51200, {1, 2048}, torch::kLong); };
  return {net, step, {ids(), ids()}, [](std::vector<torch::Tensor> parameters) {
            return std::make_unique<torch::optim::AdamW>(std::move(parameters), 1e-4);
          }};
}

// 48 layers of 10240 experts of 1024 x 9984, as M6 has them; one expert for each token.
struct Experts : torch::nn::Module {
  static constexpr int64_t kLayers = 48, kExperts = 10240, kWidth = 1024, kInner = 9984;

  Experts() {
    for (int64_t i = 0; i < kLayers; ++i) {
      const std::string name = "layers" + std::to_string(i);
      gates.push_back(register_module(name + "_gate", torch::nn::Linear(kWidth, kExperts)));
      up.push_back(register_parameter(name + "_up", torch::randn({kExperts, kWidth, kInner})));
      down.push_back(register_parameter(name + "_down", torch::randn({kExperts, kInner, kWidth})));
    }
  }

  // Tokens, [count, width]: as many places for each expert as it has tokens in the mean, and one.
  torch::Tensor forward(torch::Tensor x) {
    const int64_t places = x.size(0) / kExperts + 1;
    for (size_t i = 0; i < gates.size(); ++i) {
      const auto [weight, expert] = torch::softmax(gates[i](x), -1).max(-1);
      const torch::Tensor place = expert * places + torch::arange(x.size(0)) % places;
      const torch::Tensor sent = torch::zeros({kExperts * places, kWidth}).index_add(0, place, x);
      const torch::Tensor inner = torch::gelu(sent.view({kExperts, places, kWidth}).bmm(up[i]));
      const torch::Tensor back = inner.bmm(down[i]).view({-1, kWidth}).index_select(0, place);
      x = x + back * weight.unsqueeze(1);
    }
    return x;
  }

  std::vector<torch::nn::Linear> gates;
  std::vector<torch::Tensor> up, down;
};

TEST(MemoryOfShapes, TenTrillionParametersToo) {
  const ProgramShapes shapes = shapes_of([] {
    auto net = std::make_shared<Experts>();
    const StepFunction step = [net](const Batch& batch) {
      return net->forward(batch[0]).square().mean();
    };
    return ShapeProgram{net,
                        step,
                        {torch::randn({1 << 16, Experts::kWidth})},
                        [](std::vector<torch::Tensor> parameters) {
                          return std::make_unique<torch::optim::Adagrad>(std::move(parameters));
                        }};
  });
  EXPECT_EQ(shapes.parameters, 48LL * 10240 * (2 * 1024 * 9984 + 1024 + 1));
  EXPECT_EQ(shapes.gradient_bytes, 4 * shapes.parameters);
  EXPECT_EQ(shapes.optimizer_bytes, 4 * shapes.parameters);
  EXPECT_LT(peak_megabytes(), 1200);
}

TEST(MemoryOfShapes, ATrillionParametersFitIntoALaptop) {
  const double before = peak_megabytes();
  const ProgramShapes shapes = shapes_of(gpt_of_a_trillion);
  EXPECT_GT(shapes.parameters, 1'000'000'000'000);
  EXPECT_LT(shapes.parameters, 1'020'000'000'000);
  EXPECT_EQ(shapes.parameter_bytes, 4 * shapes.parameters);
  EXPECT_EQ(shapes.gradient_bytes, shapes.parameter_bytes);
  EXPECT_EQ(shapes.optimizer_bytes, 2 * shapes.parameter_bytes);
  EXPECT_GT(shapes.graph.nodes.size(), 128u * 50);
  EXPECT_LT(peak_megabytes(), 1200);
  EXPECT_LT(peak_megabytes() - before, 300);  // besides LibTorch's own
  RecordProperty("nodes", static_cast<int>(shapes.graph.nodes.size()));
  RecordProperty("megabytes", static_cast<int>(peak_megabytes()));
}

}  // namespace
}  // namespace epl

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

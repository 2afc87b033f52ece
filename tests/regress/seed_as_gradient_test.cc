// A parameter without dimensions that is added to the loss (the logarithm of a variance, a Lagrange
// multiplier) has the seed itself as its gradient, which no operator makes. It was computed by the
// first stage, with the seed of the stage of the loss: where the two have different numbers of
// devices it counted twice, or half, without a word. Found by reading.
#include <epl/epl.h>
#include <gtest/gtest.h>

#include "tests/parity/on_devices.h"

namespace epl {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

struct Net : nn::Module {
  Net() {
    register_module("first", first);
    register_module("second", second);
    log_variance = register_parameter("log_variance", torch::full({}, 0.3, torch::kDouble));
    to(torch::kDouble);
  }
  nn::Linear first{4, 6}, second{6, 1};
  Tensor log_variance;
};

enum class Uses { kAlone, kInAProduct, kInTheFirstStage };

Tensor loss_of(Net& net, const Batch& batch, const std::vector<int>& devices, Uses uses) {
  Tensor x;
  {
    const With stage(replicate(devices[0], "first"));
    x = net.first(batch[0]).tanh();
    if (uses == Uses::kInTheFirstStage) x = x * net.log_variance;
  }
  const With stage(replicate(devices[1], "second"));
  const Tensor error = (net.second(x) - batch[1]).pow(2);
  const Tensor scaled = uses == Uses::kInAProduct ? (-net.log_variance).exp() * error : error;
  return scaled.mean() + net.log_variance;
}

Tensor loss_under(const Strategy& strategy, Net& net, const Batch& batch) {
  const With scope(strategy);
  const Tensor error = (net.second(net.first(batch[0]).tanh()) - batch[1]).pow(2);
  return ((-net.log_variance).exp() * error).mean() + net.log_variance;
}

std::vector<Tensor> trained(const std::function<void(Net&, torch::optim::SGD&)>& train) {
  torch::manual_seed(3);
  Net net;
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  train(net, optimizer);
  return net.parameters();
}

Batch batch_of(int step) {
  torch::manual_seed(100 + step);
  const auto options = torch::TensorOptions(torch::kDouble);
  return {torch::randn({8, 4}, options), torch::randn({8, 1}, options)};
}

constexpr int kSteps = 4;

using Loss = std::function<Tensor(Net& net, const Batch& batch)>;

void expect_plain_loop(int devices, const Loss& loss) {
  const auto plain = trained([&](Net& net, torch::optim::SGD& optimizer) {
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      loss(net, batch_of(step)).backward();
      optimizer.step();
    }
  });
  const parity::OnDevices on(devices);
  init(Config{{"pipeline.num_micro_batch", 2}});
  const auto by_epl = trained([&](Net& net, torch::optim::SGD& optimizer) {
    const std::shared_ptr<Net> owned(&net, [](Net*) {});
    Trainer trainer(owned, optimizer, [&](const Batch& batch) { return loss(net, batch); });
    for (int step = 0; step < kSteps; ++step) trainer.step(batch_of(step));
  });
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_TRUE(torch::allclose(by_epl[i], plain[i], 1e-9, 1e-12)) << by_epl[i] << "\n" << plain[i];
  }
}

void expect_plain_loop(const std::vector<int>& devices, Uses uses) {
  expect_plain_loop(devices[0] + devices[1], [&](Net& net, const Batch& batch) {
    return loss_of(net, batch, devices, uses);
  });
}

TEST(SeedAsGradient, CountsOnceWithoutStages) {
  for (const Strategy& strategy : {replicate(1), replicate(2), split(2)}) {
    SCOPED_TRACE(strategy.str());
    expect_plain_loop(
        2, [&](Net& net, const Batch& batch) { return loss_under(strategy, net, batch); });
  }
}

TEST(SeedAsGradient, BelongsToTheStageOfTheLoss) {
  for (const std::vector<int>& devices :
       std::vector<std::vector<int>>{{1, 1}, {2, 1}, {1, 2}, {2, 2}}) {
    for (const Uses uses : {Uses::kAlone, Uses::kInAProduct}) {
      SCOPED_TRACE(testing::Message()
                   << devices[0] << " and " << devices[1] << ", " << static_cast<int>(uses));
      expect_plain_loop(devices, uses);
    }
  }
}

TEST(SeedAsGradient, IsOneOfThoseOfATiedParameter) {
  expect_plain_loop({1, 1}, Uses::kInTheFirstStage);
  expect_plain_loop({2, 2}, Uses::kInTheFirstStage);
}

}  // namespace
}  // namespace epl

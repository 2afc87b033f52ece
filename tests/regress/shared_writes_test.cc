// The stages of a pipeline run on devices of their own, and a tensor that goes from one to another
// is copied. Where a later stage wrote into it by an operator that has no pure variant, a metric
// that shows it by another name had it as it was before, and an operator that read it so ended in
// an internal error. The metric is now read where it was written; the rest is refused.
#include <epl/epl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/parity/on_devices.h"

namespace epl {
namespace {

using testing::HasSubstr;
using torch::Tensor;

struct Net : torch::nn::Module {
  Net() { center = register_buffer("center", torch::zeros({4})); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(4, 4));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(4, 4));
  Tensor center;
};

TEST(SharedWrites, OfABufferAreWhatAMetricShows) {
  const parity::OnDevices devices(2);
  init();
  Net net;
  auto shared = std::shared_ptr<Net>(&net, [](Net*) {});
  torch::optim::SGD optimizer(net.parameters(), 0.1);
  Trainer trainer({{"", shared}}, {optimizer}, [&](const Batch& batch) {
    Tensor x;
    {
      const With scope(replicate(1, "first"));
      x = net.first(batch[0]);
    }
    const With scope(replicate(1, "second"));
    x = net.second(x);
    net.center.copy_(0.5 * net.center + x.detach().mean(0));
    return StepOutput(x.pow(2).mean(), {{"center", net.center}});
  });
  for (int i = 0; i < 3; ++i) {
    const Tensor shown = trainer.step({torch::randn({8, 4})}).metrics.at("center");
    EXPECT_TRUE(shown.equal(net.center)) << shown << net.center;
    EXPECT_GT(shown.abs().sum().item<double>(), 0);
  }
}

// A step of two stages: what it shows, and the loss, from a tensor of the first stage under the
// name `shown`, after the second stage has written into `made`, the same memory.
using Shows = std::function<StepOutput(const Tensor& y, const Tensor& shown)>;

StepResult step_that_writes(const Batch& batch, const Shows& shows) {
  const parity::OnDevices devices(2);
  init();
  Net net;
  auto shared = std::shared_ptr<Net>(&net, [](Net*) {});
  torch::optim::SGD optimizer(net.parameters(), 0.1);
  Trainer trainer({{"", shared}}, {optimizer}, [&](const Batch& rows) {
    Tensor x, made, shown;
    {
      const With scope(replicate(1, "first"));
      x = net.first(rows[0]);
      made = rows[0] * 2;
      shown = made.detach();
    }
    const With scope(replicate(1, "second"));
    made.fill_diagonal_(7);
    return shows(net.second(x), shown);
  });
  return trainer.step(batch);
}

TEST(SharedWrites, OfATensorAreWhatAMetricShows) {
  const Tensor rows = torch::randn({8, 4});
  const StepResult result = step_that_writes({rows}, [](const Tensor& y, const Tensor& shown) {
    return StepOutput(y.pow(2).mean(), {{"shown", shown}});
  });
  const Tensor expected = (rows * 2).fill_diagonal_(7);
  EXPECT_TRUE(result.metrics.at("shown").equal(expected)) << result.metrics.at("shown");
}

TEST(SharedWrites, OfATensorAreWhatAnOperatorReads) {
  const Tensor rows = torch::randn({8, 4});
  torch::manual_seed(1);
  const double loss = step_that_writes({rows}, [](const Tensor& y, const Tensor& shown) {
                        return StepOutput((y * shown).pow(2).mean());
                      }).loss;
  torch::manual_seed(1);
  Net net;
  const Tensor y = net.second(net.first(rows));
  const Tensor shown = (rows * 2).fill_diagonal_(7);
  EXPECT_NEAR(loss, (y * shown).pow(2).mean().item<double>(), 1e-5 * loss);
}

// Autograd takes the gradient of the written value apart in the first stage and adds it up in the
// second: an internal error until it was refused (fuzz, stages, seed 81447).
TEST(SharedWrites, OfWhichGradientsGoBackAndForthAreRefused) {
  const parity::OnDevices devices(2);
  init();
  Net net;
  auto shared = std::shared_ptr<Net>(&net, [](Net*) {});
  torch::optim::SGD optimizer(net.parameters(), 0.1);
  Trainer trainer({{"", shared}}, {optimizer}, [&](const Batch&) {
    Tensor x;
    {
      const With scope(replicate(1, "first"));
      x = torch::addcmul(net.first->weight, net.first->bias, net.first->bias, 0.5);
    }
    const With scope(replicate(1, "second"));
    x.select(0, 2).add_(0.266);
    return torch::l1_loss(x, net.first->weight);
  });
  try {
    trainer.step({torch::randn({8, 4})});
    FAIL() << "is refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("would go against the stages of the pipeline"));
    EXPECT_THAT(error.what(), HasSubstr("clone() it first"));
  }
}

}  // namespace
}  // namespace epl

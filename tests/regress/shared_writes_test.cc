// The stages of a pipeline run on devices of their own. A metric that shows a buffer was read by
// the first stage, before a later stage had written it; an operator of a third stage that read the
// buffer ended in an internal error. The metric is now read where the buffer was written, and what
// cannot be seen across stages is refused.
#include <epl/epl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(SharedWrites, AreWhatAMetricShows) {
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

TEST(SharedWrites, AreRefusedWhereAnotherStageReadsThem) {
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
      net.center.copy_(x.detach().mean(0));
    }
    const With scope(replicate(1, "second"));
    return (net.second(x) * net.center).pow(2).mean();
  });
  try {
    trainer.step({torch::randn({8, 4})});
    ADD_FAILURE() << "nobody said anything";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("writes `center`, and stage 1 uses it as well"));
  }
}

}  // namespace
}  // namespace epl

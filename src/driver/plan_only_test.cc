// plan.only: a program is planned on shapes alone and ends with its first step.
#include <epl/epl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>

#include "capture/ghost.h"
#include "footprint/step_memory.h"

namespace epl {
namespace {

using torch::Tensor;

// Without the options of a process: the forecast of the first step of a net of `width`.
MemoryReport forecast_of(int64_t width) {
  torch::nn::Sequential net(torch::nn::Linear(width, width), torch::nn::GELU(),
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})),
                            torch::nn::Linear(width, width));
  torch::optim::AdamW optimizer(net->parameters(), 1e-3);
  Trainer trainer(net, optimizer, [net](const Batch& batch) mutable {
    return torch::mse_loss(net->forward(batch[0]), batch[1]);
  });
  return trainer.forecast({torch::randn({16, width}), torch::randn({16, width})});
}

TEST(PlanOnly, ForecastIsThatOfTheRealProgram) {
  init();
  const MemoryReport real = forecast_of(256);
  init(Config{{"plan.only", true}});
  const MemoryReport ghost = forecast_of(256);
  init();
  ASSERT_EQ(real.workers.size(), ghost.workers.size());
  // What kernels hold besides is measured, where they run.
  const auto without_workspace = [](const MemoryReport& report) {
    const MemoryBytes& bytes = report.workers[0].devices[0].bytes;
    return report.workers[0].peak() - bytes[MemoryKind::kWorkspace];
  };
  EXPECT_EQ(without_workspace(real), without_workspace(ghost)) << real.str() << ghost.str();
  EXPECT_EQ(ghost.workers[0].devices[0].bytes[MemoryKind::kWorkspace], 0);
}

void print_where_tests_look() { std::cout.rdbuf(std::cerr.rdbuf()); }

// 16 TB of parameters, 48 TB with the moments, and the gradients.
TEST(PlanOnlyDeathTest, StepPrintsWhatItNeedsAndEnds) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto run = [] {
    print_where_tests_look();
    init(Config{{"plan.only", true}});
    torch::nn::Linear net(2 << 20, 2 << 20);
    torch::optim::AdamW optimizer(net->parameters(), 1e-3);
    Trainer trainer(net, optimizer,
                    [net](const Batch& batch) mutable { return net(batch[0]).square().mean(); });
    trainer.step({torch::randn({16, 2 << 20})});
    std::_Exit(1);  // it did not end
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "TiB");
}

TEST(PlanOnlyDeathTest, WhatIsReadBackIsTheNumberThatWasAskedFor) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto run = [](const Config& config) {
    print_where_tests_look();
    init(config);
    torch::nn::Linear net(1000, 1000);
    torch::optim::SGD optimizer(net->parameters(), 1e-3);
    Trainer trainer(net, optimizer, [net](const Batch& batch) mutable {
      const Tensor loss = net(batch[0]).square().mean();
      return loss.item<float>() > 0 ? loss : loss * 2;
    });
    try {
      trainer.step({torch::randn({64, 1000})});
    } catch (const Error& error) {
      std::cerr << error.what();
      std::_Exit(3);
    }
    std::_Exit(1);
  };
  EXPECT_EXIT(run({{"plan.only", true}}), testing::ExitedWithCode(3),
              "aten::_local_scalar_dense reads contents of a tensor that has a shape alone");
  EXPECT_EXIT(run(Config{{"plan.only", true}, {"plan.read_back", "one"}}),
              testing::ExitedWithCode(0), "assumed: item\\(\\) of f32\\[\\] gives 1");
}

}  // namespace
}  // namespace epl

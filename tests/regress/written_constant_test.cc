// torch::tensor(std::vector) fills its memory by C++, unseen, so the recorder makes a constant of
// it. Where the step went on to write into it, every replay wrote into that one constant: the
// second step started from what the first had left. And where the step returned it as a metric,
// nobody had read it, and the metric was memory that nothing had filled.
#include <epl/epl.h>
#include <gtest/gtest.h>

#include <vector>

namespace epl {
namespace {

TEST(WrittenConstant, StartsAnewInEveryStep) {
  init();
  const std::vector<float> numbers{1, 2, 3};
  auto weight = torch::ones({3}).requires_grad_();
  torch::optim::SGD optimizer({weight}, 0.5);
  Trainer trainer({}, {optimizer}, [&](const Batch& batch) {
    auto factors = torch::tensor(numbers);
    factors.select(0, 2).mul_(2);
    factors += batch[0];
    return (weight * factors).sum();
  });
  for (int i = 0; i < 3; ++i) trainer.step({torch::ones({3})});
  EXPECT_TRUE(weight.equal(torch::tensor({-2.0f, -3.5f, -9.5f}))) << weight;
}

TEST(WrittenConstant, StartsAnewInEveryMicroBatch) {
  init(Config{{"pipeline.num_micro_batch", 2}});
  const std::vector<float> numbers{1, 2, 3};
  auto weight = torch::ones({3}).requires_grad_();
  torch::optim::SGD optimizer({weight}, 0.5);
  Trainer trainer({}, {optimizer}, [&](const Batch& batch) {
    const auto factors = torch::tensor(numbers).mul_(batch[0].sum());
    return (weight * factors).sum();
  });
  for (int i = 0; i < 2; ++i) trainer.step({torch::tensor({1.0f, 3.0f})});
  EXPECT_TRUE(weight.equal(torch::tensor({-1.0f, -3.0f, -5.0f}))) << weight;
  init();
}

TEST(WrittenConstant, IsAMetricWithItsContents) {
  init();
  const std::vector<float> numbers{1, 2, 3};
  auto weight = torch::ones({3}).requires_grad_();
  torch::optim::SGD optimizer({weight}, 0.5);
  Trainer trainer({}, {optimizer}, [&](const Batch& batch) {
    return StepOutput((weight * batch[0]).sum(), {{"numbers", torch::tensor(numbers)}});
  });
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(
        trainer.step({torch::ones({3})}).metrics.at("numbers").equal(torch::tensor(numbers)));
  }
}

}  // namespace
}  // namespace epl

// LibTorch's linear algebra checks its results by operators that give nothing
// (_linalg_check_errors). They were taken for dead code: where a later batch could not be solved,
// training went on with garbage. They run in every step, and throw.
#include <epl/epl.h>
#include <gtest/gtest.h>

namespace epl {
namespace {

using torch::Tensor;

StepFunction solving(const Tensor& weight) {
  return [&weight](const Batch& batch) {
    return torch::linalg_cholesky(batch[0] + 0 * weight).sum() + weight.sum();
  };
}

TEST(Checks, OfCholeskyThrowInALaterStep) {
  init();
  auto weight = torch::ones({}).requires_grad_();
  torch::optim::SGD optimizer({weight}, 0.5);
  Trainer trainer({}, {optimizer}, solving(weight));
  for (int i = 0; i < 3; ++i) trainer.step({torch::eye(3).unsqueeze(0)});
  EXPECT_THROW(trainer.step({-torch::eye(3).unsqueeze(0)}), std::exception);
}

TEST(Checks, OfCholeskyThrowInALaterMicroBatch) {
  init(Config{{"pipeline.num_micro_batch", 2}});
  auto weight = torch::ones({}).requires_grad_();
  torch::optim::SGD optimizer({weight}, 0.5);
  Trainer trainer({}, {optimizer}, solving(weight));
  const Tensor good = torch::eye(3).unsqueeze(0);
  for (int i = 0; i < 3; ++i) trainer.step({torch::cat({good, good})});
  EXPECT_THROW(trainer.step({torch::cat({good, -good})}), std::exception);
}

TEST(Checks, OfAssertAsyncThrowInALaterStep) {
  init();
  auto weight = torch::ones({}).requires_grad_();
  torch::optim::SGD optimizer({weight}, 0.5);
  Trainer trainer({}, {optimizer}, [&](const Batch& batch) {
    torch::_assert_async((batch[0] > 0).all());
    return (weight * batch[0]).sum();
  });
  for (int i = 0; i < 3; ++i) trainer.step({torch::ones({2})});
  EXPECT_THROW(trainer.step({-torch::ones({2})}), std::exception);
}

}  // namespace
}  // namespace epl

// torch::from_blob inside of a step makes a tensor over memory that may be gone, or mean something
// else, when the step has returned. The recorder took such a tensor for one that the step closes
// over and kept it by reference: it told borrowed memory by a deleter that from_blob does not use.
// From the second step on, training read whatever lay there.
#include <epl/epl.h>
#include <gtest/gtest.h>

#include <vector>

namespace epl {
namespace {

TEST(BorrowedMemory, IsReadWhileItIsThere) {
  init();
  auto weight = torch::ones({3}).requires_grad_();
  torch::optim::SGD optimizer({weight}, 0.5);
  std::vector<float> factors;
  Trainer trainer({}, {optimizer}, [&](const Batch& batch) {
    factors = {1, 2, 3};
    return (weight * torch::from_blob(factors.data(), {3}) * batch[0]).sum();
  });
  for (int i = 0; i < 3; ++i) {
    trainer.step({torch::ones({3})});
    factors = {7, 8, 9};
  }
  EXPECT_TRUE(weight.equal(torch::tensor({-0.5f, -2.0f, -3.5f}))) << weight;
}

TEST(BorrowedMemory, WithADeleterOfTheUsersIsReadWhileItIsThere) {
  init();
  auto weight = torch::ones({3}).requires_grad_();
  torch::optim::SGD optimizer({weight}, 0.5);
  std::vector<float> factors;
  Trainer trainer({}, {optimizer}, [&](const Batch& batch) {
    factors = {1, 2, 3};
    return (weight * torch::from_blob(factors.data(), {3}, [](void*) {}) * batch[0]).sum();
  });
  for (int i = 0; i < 3; ++i) {
    trainer.step({torch::ones({3})});
    factors = {7, 8, 9};
  }
  EXPECT_TRUE(weight.equal(torch::tensor({-0.5f, -2.0f, -3.5f}))) << weight;
}

// What the step closes over stays by reference, borrowed or not: the user may change it.
TEST(BorrowedMemory, FromBeforeTheStepIsReadInEveryStep) {
  init();
  auto weight = torch::ones({3}).requires_grad_();
  torch::optim::SGD optimizer({weight}, 0.5);
  std::vector<float> factors{1, 2, 3};
  const auto mask = torch::from_blob(factors.data(), {3});
  Trainer trainer({}, {optimizer},
                  [&](const Batch& batch) { return (weight * mask * batch[0]).sum(); });
  trainer.step({torch::ones({3})});
  factors = {0, 0, 2};
  trainer.step({torch::ones({3})});
  EXPECT_TRUE(weight.equal(torch::tensor({0.5f, 0.0f, -1.5f}))) << weight;
}

}  // namespace
}  // namespace epl

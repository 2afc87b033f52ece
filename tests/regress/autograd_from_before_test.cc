// To learn the TaskGraph of backward operators, the recorder hooks into the autograd nodes of the
// loss. Nodes that the user made before the step, or keeps after it, outlive the recording with
// their hooks, which then called a recorder that was gone.
#include <epl/epl.h>
#include <gtest/gtest.h>

namespace epl {
namespace {

// An expression of a parameter, made once outside of the step: its gradient flows in every step, as
// in the plain loop.
TEST(AutogradFromBefore, TakesPartInEveryRecording) {
  init();
  auto weight = torch::ones({3}).requires_grad_();
  const auto shifted = weight + 1;
  torch::optim::SGD optimizer({weight}, 0.5);
  Trainer trainer({}, {optimizer}, [&](const Batch& batch) { return (shifted * batch[0]).sum(); });
  trainer.step({torch::ones({3})});
  trainer.step({torch::ones({1, 3})});  // a shape of its own: recorded again
  trainer.step({torch::ones({2, 3})});
  EXPECT_TRUE(weight.equal(torch::full({3}, -1.0f))) << weight;
  weight.mutable_grad() = torch::Tensor();
  shifted.sum().backward();
  EXPECT_TRUE(weight.grad().equal(torch::ones({3})));
}

}  // namespace
}  // namespace epl

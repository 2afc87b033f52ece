// A result that the step gives another shape in place (unsqueeze_) and then shows by as_strided():
// under split the second step was an internal error.
#include <epl/epl.h>
#include <gtest/gtest.h>

#include "tests/parity/on_devices.h"

namespace epl {
namespace {

using torch::Tensor;

Tensor loss_of(const Tensor& x, const Tensor& weight) {
  Tensor y = x.matmul(weight);
  y.unsqueeze_(1);
  const Tensor shown = y.as_strided({y.size(0), y.size(2)}, {y.stride(0), y.stride(2)});
  return (shown * shown + y.squeeze(1)).square().mean();
}

TEST(MovedInPlace, IsShownByItsStridesUnderSplit) {
  const parity::OnDevices devices(2);
  init();
  const auto start = [] {
    torch::manual_seed(3);
    return torch::randn({6, 8}).requires_grad_();
  };
  Tensor plain = start(), weight = start();
  torch::optim::SGD plain_optimizer({plain}, 0.1), optimizer({weight}, 0.1);
  Trainer trainer({}, {optimizer}, [&](const Batch& batch) {
    const With scope(split(2));
    return loss_of(batch[0], weight);
  });
  for (int i = 0; i < 4; ++i) {
    const Tensor x = torch::randn({4, 6});
    trainer.step({x});
    plain_optimizer.zero_grad();
    loss_of(x, plain).backward();
    plain_optimizer.step();
    EXPECT_TRUE(weight.allclose(plain, 1e-5, 1e-6)) << i;
  }
}

}  // namespace
}  // namespace epl

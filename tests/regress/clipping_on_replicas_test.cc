// With several replicas each clips the gradients of its own rows by default, which is not what the
// plain loop does with the whole batch, and nothing said so; the reported norm was the largest of
// the replicas', and changed with their number.
#include <epl/epl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/parity/on_devices.h"

namespace epl {
namespace {

struct Clipped {
  std::string said;
  double norm = 0;
  torch::Tensor weight;
};

// One number is trained; the rows of the first half pull ten times as hard as the others.
Clipped train(int devices, const Config& config, double bound = 1) {
  const parity::OnDevices some(devices);
  init(config);
  auto weight = torch::zeros({1}).requires_grad_();
  torch::optim::SGD optimizer({weight}, 1.0);
  TrainerOptions options;
  options.clip_grad_norm = bound;
  Trainer trainer(
      {}, {optimizer}, [&](const Batch& batch) { return (weight * batch[0]).mean(); }, options);
  testing::internal::CaptureStderr();
  Clipped result;
  for (int i = 0; i < 2; ++i) {
    result.norm = trainer.step({torch::tensor({4.0f, 4.0f, 0.4f, 0.4f})}).gradient_norm;
  }
  result.said = testing::internal::GetCapturedStderr();
  result.weight = weight.detach().clone();
  return result;
}

TEST(ClippingOnReplicas, IsToldOnceWhereItIsTheDefault) {
  EXPECT_EQ(train(2, {}).said,
            "epl: communication.clip_after_allreduce = false (default): each of the 2 replicas "
            "clips the gradients of its own rows before they are reduced; with true the reduced "
            "gradients are clipped, as the plain loop does with the whole batch\n");
  EXPECT_EQ(train(1, {}).said, "");
  EXPECT_EQ(train(2, Config{{"communication.clip_after_allreduce", false}}).said, "");
  EXPECT_EQ(train(2, Config{{"communication.clip_after_allreduce", true}}).said, "");
}

TEST(ClippingOnReplicas, AfterTheReductionIsThePlainLoops) {
  const Clipped one = train(1, {});
  const Clipped two = train(2, Config{{"communication.clip_after_allreduce", true}});
  EXPECT_TRUE(one.weight.allclose(two.weight)) << one.weight << two.weight;
  EXPECT_NEAR(one.norm, 2.2, 1e-5);
  EXPECT_NEAR(two.norm, 2.2, 1e-5);
}

TEST(ClippingOnReplicas, ReportsTheNormOfTheReducedGradients) {
  EXPECT_NEAR(train(2, {}).norm, (1 + 0.4) / 2, 1e-5);
  EXPECT_NEAR(train(2, {}, 100).norm, 2.2, 1e-5) << "nothing was clipped";
}

}  // namespace
}  // namespace epl

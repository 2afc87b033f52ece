#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdio>

#include "driver/test_trainer.h"
#include "runtime/clip.h"
#include "runtime/finite_gradients.h"
#include "runtime/tile_products.h"
#include "tests/parity/heard.h"

namespace epl {
namespace {

// Before any test: once oneDNN has run something it is too late.
const bool kWithoutTiles = (avoid_tile_products(), true);

struct MixedPrecisionTest : TrainerFixture {
  MixedPrecisionTest() { init(Config{{"amp.level", "O1"}}); }
};

TEST_F(MixedPrecisionTest, KeepsParametersAndStatesInFloat32) {
  SmallTask task;
  Trainer trainer = task.trainer();
  for (int i = 0; i < 3; ++i) trainer.step(rows(8));
  for (const torch::Tensor& tensor : task.tensors()) {
    EXPECT_TRUE(!tensor.is_floating_point() || tensor.scalar_type() == torch::kFloat);
  }
  EXPECT_NE(trainer.graph().find("bf16["), std::string::npos);
}

TEST_F(MixedPrecisionTest, StandsInThePlan) {
  SmallTask task;
  Trainer trainer = task.trainer();
  trainer.step(rows(8));
  EXPECT_NE(trainer.plan().find("finite  6 gradients"), std::string::npos) << trainer.plan();
}

TEST_F(MixedPrecisionTest, IsVerifiedAgainstThePlainProgram) {
  init(Config{{"amp.level", "O1"}, {"debug.verify_steps", 3}});
  SmallTask task;
  Trainer trainer = task.trainer();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(trainer.step(rows(8)).skipped);
}

TEST_F(MixedPrecisionTest, IsVerifiedWithMicroBatchesAndAFixedScale) {
  init(Config{{"amp.level", "O1"},
              {"amp.loss_scale", 100},
              {"debug.verify_steps", 4},
              {"pipeline.num_micro_batch", 2}});
  SmallTask task;
  TrainerOptions options;
  options.clip_grad_norm = 0.1;
  Trainer trainer = task.trainer(options);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(trainer.step(rows(8)).loss_scale, 100);
}

TEST_F(MixedPrecisionTest, IsOffByDefault) {
  init();
  SmallTask task;
  Trainer trainer = task.trainer();
  EXPECT_EQ(trainer.step(rows(8)).loss_scale, 1);
  EXPECT_EQ(trainer.graph().find("bf16["), std::string::npos);
  EXPECT_EQ(trainer.plan().find("finite"), std::string::npos);
}

// In a file that is written after a step was skipped.
TEST_F(MixedPrecisionTest, GoesOnFromAFileWithTheScaleThatItHad) {
  const std::string path = testing::TempDir() + "mixed_precision.pt";
  const auto net = std::make_shared<SmallNet>();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const auto step = [net](const Batch& batch) {
    const torch::Tensor y = net->forward(batch[0]);
    return y.square().mean() + (batch[1] * y.square().sum(1)).sqrt().mean();
  };
  const torch::Tensor x = torch::rand({4, 3});
  {
    Trainer trainer(net, optimizer, step);
    trainer.step({x, torch::ones({4})});
    EXPECT_TRUE(trainer.step({x, torch::zeros({4})}).skipped);
    trainer.save(path);
  }
  Trainer trainer(net, optimizer, step);
  EXPECT_EQ(trainer.step({x, torch::ones({4})}).loss_scale, 32768);
  trainer.load(path);
  EXPECT_EQ(trainer.step({x, torch::ones({4})}).loss_scale, 16384);
  std::remove(path.c_str());
}

// An optimizer of the user's own gets gradients without the scale.
class Plainest final : public torch::optim::Optimizer {
 public:
  explicit Plainest(std::vector<torch::Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  torch::Tensor step(LossClosure) override {
    const torch::NoGradGuard no_grad;
    for (auto& group : param_groups()) {
      for (auto& parameter : group.params()) {
        if (parameter.grad().defined()) parameter.sub_(parameter.grad(), 0.1);
      }
    }
    return {};
  }
};

TEST_F(MixedPrecisionTest, GivesOtherOptimizersGradientsWithoutTheScale) {
  const auto train = [](auto make_optimizer) {
    torch::manual_seed(2);
    torch::nn::Linear net(3, 2);
    auto optimizer = make_optimizer(net->parameters());
    Trainer trainer(net, *optimizer, [&](const Batch& batch) {
      return (net->forward(batch[0]) - batch[1]).square().mean();
    });
    for (int i = 0; i < 3; ++i) trainer.step(rows(4));
    return net->weight.detach().clone();
  };
  const torch::Tensor fused = train([](std::vector<torch::Tensor> parameters) {
    return std::make_unique<torch::optim::SGD>(parameters, 0.1);
  });
  const torch::Tensor own = train(
      [](std::vector<torch::Tensor> parameters) { return std::make_unique<Plainest>(parameters); });
  EXPECT_TRUE(fused.allclose(own, 1e-6, 1e-7));
}

// What they do to gradients would be done to multiples of them.
TEST_F(MixedPrecisionTest, RefusesHooksThatWouldSeeTheScale) {
  const auto train = [](const Config& config, bool of_parameter) {
    init(config);
    SmallTask task;
    const auto clamp = [](const torch::Tensor& gradient) { return gradient.clamp(-0.1, 0.1); };
    if (of_parameter) task.net->head->bias.register_hook(clamp);
    Trainer trainer(task.net, *task.optimizer, [&](const Batch& batch) {
      const torch::Tensor y = task.net->forward(batch[0]);
      if (!of_parameter) y.register_hook(clamp);
      return (y - batch[1]).square().mean();
    });
    trainer.step(rows(8));
  };
  for (bool of_parameter : {false, true}) {
    for (int micro_batches : {1, 2}) {
      const Config dynamic{{"amp.level", "O1"}, {"pipeline.num_micro_batch", micro_batches}};
      EXPECT_THAT([&] { train(dynamic, of_parameter); },
                  testing::ThrowsMessage<Error>(
                      testing::AllOf(testing::HasSubstr("would see gradients times the loss scale"),
                                     testing::HasSubstr("amp.loss_scale = 1"))));
      const Config unscaled{
          {"amp.level", "O1"}, {"amp.loss_scale", 1}, {"pipeline.num_micro_batch", micro_batches}};
      EXPECT_NO_THROW(train(unscaled, of_parameter));
    }
  }
}

TEST_F(MixedPrecisionTest, TellsOfTheFirstStepThatItSkips) {
  const auto net = std::make_shared<SmallNet>();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, [net](const Batch& batch) {
    const torch::Tensor y = net->forward(batch[0]);
    return y.square().mean() + (batch[1] * y.square().sum(1)).sqrt().mean();
  });
  const parity::Heard heard;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(trainer.step({torch::rand({4, 3}), torch::zeros({4})}).skipped);
  }
  const std::string text = heard.str();
  EXPECT_THAT(text, testing::HasSubstr("epl: step 0 is skipped, since a gradient is not finite "
                                       "with a loss scale of 32768; the next step has 16384"));
  EXPECT_EQ(text.find("is skipped"), text.rfind("is skipped"));
}

TEST_F(MixedPrecisionTest, FollowsNumbersThatTheStepReads) {
  SmallTask task;
  Trainer trainer(task.net, *task.optimizer, [net = task.net](const Batch& batch) {
    const torch::Tensor y = net->forward(batch[0]);
    const torch::Tensor loss = (y - batch[1]).square().mean();
    return batch[1].sum().item<float>() > 0 ? loss : loss * 2;
  });
  for (int i = 0; i < 4; ++i) {
    Batch batch = rows(8, static_cast<uint64_t>(i));
    if (i % 2 == 1) batch[1] = -batch[1];
    EXPECT_FALSE(trainer.step(batch).skipped);
  }
}

TEST_F(MixedPrecisionTest, TellsOfItsCastsOnce) {
  init(Config{{"amp.level", "O1"}, {"amp.debug_log", true}, {"pipeline.num_micro_batch", 2}});
  SmallTask task;
  Trainer trainer = task.trainer();
  const parity::Heard heard;
  for (int i = 0; i < 3; ++i) trainer.step(rows(8));
  const std::string text = heard.str();
  // The second layer gets bfloat16 from the first: two casts and not three.
  EXPECT_THAT(text, testing::HasSubstr("  aten::addmm  10 casts  f32 -> bf16 (lower)  "));
  EXPECT_EQ(text.find("casts of a step"), text.rfind("casts of a step"));
}

#if !EPL_TORCH_AT_LEAST(2, 0)
TEST_F(MixedPrecisionTest, RefusesHalfPrecisionByTheNameOfTheOperator) {
  init(Config{{"amp.level", "O1"}, {"amp.dtype", "float16"}});
  SmallTask task;
  const std::vector<torch::Tensor> before = task.tensors();
  Trainer trainer = task.trainer();
  EXPECT_THAT([&] { trainer.step(rows(8)); },
              testing::ThrowsMessage<Error>(testing::AllOf(
                  testing::HasSubstr("no kernel of aten::addmm for float16 on this device"),
                  testing::HasSubstr("asked by: amp.dtype"))));
  EXPECT_TRUE(same(before, task.tensors()));
}
#endif

// As those of two embeddings whose rows are added.
TEST(UnscaleGradients, DividesMemoryThatTwoShareOnce) {
  const torch::Tensor values = torch::full({2, 3}, 8.0);
  const auto rows_of = [&](int64_t first) {
    return torch::_sparse_coo_tensor_unsafe(torch::arange(first, first + 2).unsqueeze(0), values,
                                            {5, 3});
  };
  const std::vector<torch::Tensor> gradients{rows_of(0), rows_of(2), torch::full({2}, 8.0)};
  unscale_gradients(gradients, 4);
  EXPECT_TRUE(values.equal(torch::full({2, 3}, 2.0)));
  EXPECT_TRUE(gradients[2].equal(torch::full({2}, 2.0)));
}

// Divided by it they would be 0, and the step a good one.
TEST(ClipGradients, GivesNoZerosWhereTheNormIsInfinite) {
  ClipOptions options;
  options.norm = 1;
  const torch::Tensor gradient = torch::full({16}, 3e38);
  clip_gradients(std::vector<torch::Tensor>{gradient}, options, 1, 2);
  EXPECT_TRUE(gradient.isnan().all().item<bool>());
}

}  // namespace
}  // namespace epl

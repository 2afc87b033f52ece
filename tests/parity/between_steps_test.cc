// What users do to the net, the optimizer and the trainer between two steps.
#include "tests/models/mlp.h"
#include "tests/models/unusual.h"
#include "tests/models/vision.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;

Batch batch(int) { return {torch::randn({8, 8}), classes(4, {8})}; }

std::shared_ptr<models::Mlp> mlp() { return std::make_shared<models::Mlp>(8, 16, 3, 4); }

// ---------------------------------------------------------------

MakeProgram with_hook(std::function<void(models::Mlp&, torch::optim::Optimizer&, int)> hook,
                      double momentum = 0) {
  return [=] {
    auto net = mlp();
    auto optimizer = sgd(*net, 0.1, momentum);
    Program result = program(net, optimizer, classification(net));
    result.before_step = [=](int step) { hook(*net, *optimizer, step); };
    return result;
  };
}

TEST(BetweenSteps, ALayerIsFrozenAndThawed) {
  EXPECT_TRUE(parity(with_hook([](models::Mlp& net, auto&, int step) {
                       for (auto& parameter : net.layers[2]->parameters()) {
                         parameter.requires_grad_(step < 2 || step == 4);
                       }
                     }),
                     batch, bit_equal()));
}

// In the plain loop zero_grad() leaves a gradient of zeros: momentum carries a frozen layer on.
TEST(BetweenSteps, AFrozenLayerIsUpdatedWithAZeroGradient) {
  EXPECT_TRUE(parity(with_hook(
                         [](models::Mlp& net, auto&, int step) {
                           for (auto& parameter : net.layers[2]->parameters()) {
                             parameter.requires_grad_(step < 2 || step == 4);
                           }
                         },
                         0.9),
                     batch, within(1e-6, "fused momentum")));
}

TEST(BetweenSteps, ALayerThatWasFrozenFromTheStartIsThawed) {
  EXPECT_TRUE(parity(with_hook([](models::Mlp& net, auto&, int step) {
                       for (auto& parameter : net.layers[0]->parameters()) {
                         parameter.requires_grad_(step >= 2);
                       }
                     }),
                     batch, bit_equal()));
}

TEST(BetweenSteps, EvalModeInTheMiddleThenTrainMode) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::ResNet18>(4, 4);
        Program result = program(net, sgd(*net, 0.05), classification(net));
        result.before_step = [net](int step) { net->train(step != 2 && step != 3); };
        return result;
      },
      [](int) {
        return Batch{torch::randn({4, 3, 32, 32}), classes(4, {4})};
      },
      bit_equal()));
}

TEST(BetweenSteps, OneBatchNormIsFrozen) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::ResNet18>(4, 4);
        Program result = program(net, sgd(*net, 0.05), classification(net));
        result.before_step = [net](int step) { net->bn1->train(step < 2); };
        return result;
      },
      [](int) {
        return Batch{torch::randn({4, 3, 32, 32}), classes(4, {4})};
      },
      bit_equal(), Variant().steps(4)));
}

TEST(BetweenSteps, WeightsAreClampedInPlace) {
  EXPECT_TRUE(parity(with_hook([](models::Mlp& net, auto&, int) {
                       torch::NoGradGuard no_grad;
                       for (auto& parameter : net.parameters()) parameter.clamp_(-0.1, 0.1);
                     }),
                     batch, bit_equal()));
}

TEST(BetweenSteps, WeightsAreReplacedBySetData) {
  EXPECT_TRUE(parity(with_hook([](models::Mlp& net, auto&, int step) {
                       if (step != 3) return;
                       for (auto& parameter : net.parameters()) {
                         parameter.set_data(parameter.detach() * 0.5);
                       }
                     }),
                     batch, bit_equal()));
}

TEST(BetweenSteps, WeightsAreLoadedFromAFile) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::ResNet18>(4, 4);
        auto start = std::make_shared<std::stringstream>();
        torch::save(net, *start);
        Program result = program(net, sgd(*net, 0.05), classification(net));
        result.before_step = [=](int step) mutable {
          if (step == 3) torch::load(net, *start);
        };
        return result;
      },
      [](int) {
        return Batch{torch::randn({4, 3, 32, 32}), classes(4, {4})};
      },
      bit_equal()));
}

TEST(BetweenSteps, TheOptimizerIsLoadedFromAFile) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        auto optimizer = std::make_shared<torch::optim::Adam>(net->parameters(), 1e-3);
        auto file = std::make_shared<std::stringstream>();
        Program result = program(net, optimizer, classification(net));
        result.before_step = [=](int step) {
          if (step == 1) torch::save(*optimizer, *file);
          if (step == 3) torch::load(*optimizer, *file);
        };
        return result;
      },
      batch, within(1e-6, "fused Adam")));
}

TEST(BetweenSteps, TheNetIsEvaluatedByThePlainForward) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::ResNet18>(4, 4);
        Program result = program(net, sgd(*net, 0.05), classification(net));
        result.before_step = [net](int) {
          torch::NoGradGuard no_grad;
          net->eval();
          net->forward(torch::ones({2, 3, 32, 32}));
          net->train();
          net->forward(torch::ones({2, 3, 32, 32}));  // moves the running statistics
        };
        return result;
      },
      [](int) {
        return Batch{torch::randn({4, 3, 32, 32}), classes(4, {4})};
      },
      bit_equal(), Variant().steps(3)));
}

TEST(BetweenSteps, TwoTrainersTakeTurnsOnTheSameParameters) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::TwoHeads>(8, 16, 4);
        auto with_trunk = [&](std::vector<Tensor> head) {
          for (auto& parameter : net->trunk->parameters()) head.push_back(parameter);
          return head;
        };
        auto first = std::make_shared<torch::optim::SGD>(
            with_trunk(net->classify->parameters()), torch::optim::SGDOptions(0.1).momentum(0.9));
        auto second = std::make_shared<torch::optim::Adam>(with_trunk(net->regress->parameters()));
        Program result;
        result.turns.push_back({{{"", net}}, {first}, [net](const Batch& batch) {
                                  return cross_entropy(net->forward(batch[0]).first, batch[1]);
                                }});
        result.turns.push_back({{{"", net}}, {second}, [net](const Batch& batch) {
                                  return F::mse_loss(net->forward(batch[0]).second, batch[2]);
                                }});
        return result;
      },
      [](int) {
        return Batch{torch::randn({8, 8}), classes(4, {8}), torch::randn({8})};
      },
      within(1e-6, "fused momentum and Adam")));
}

TEST(BetweenSteps, ATrainerIsMadeAnewOnTheSameNet) {
  torch::manual_seed(1);
  at::set_num_threads(1);
  epl::init();
  auto plain = mlp();
  auto net = mlp();
  std::stringstream file;
  torch::save(plain, file);
  torch::load(net, file);
  auto plain_optimizer = sgd(*plain, 0.1);
  auto optimizer = sgd(*net, 0.1);
  for (int i = 0; i < 3; ++i) {
    Batch next = batch(i);
    plain_optimizer->zero_grad();
    cross_entropy(plain->forward(next[0]), next[1]).backward();
    plain_optimizer->step();
    epl::Trainer trainer(net, *optimizer, classification(net));
    trainer.step(next);
  }
  EXPECT_TRUE(same_modules(*plain, *net, bit_equal()));
}

// --- files
// ----------------------------------------------------------------------------------------

class TrainedNet : public testing::Test {
 protected:
  TrainedNet() {
    at::set_num_threads(1);
    torch::manual_seed(1);
    epl::init();
    net_ = std::make_shared<models::ResNet18>(4, 4);
    optimizer_ = std::make_shared<torch::optim::Adam>(net_->parameters(), 1e-3);
    trainer_ = std::make_unique<epl::Trainer>(net_, *optimizer_, classification(net_));
    for (int i = 0; i < 2; ++i) trainer_->step(images());
  }

  static Batch images() { return {torch::randn({4, 3, 32, 32}), classes(4, {4})}; }

  std::shared_ptr<models::ResNet18> net_;
  OptimizerPointer optimizer_;
  std::unique_ptr<epl::Trainer> trainer_;
};

TEST_F(TrainedNet, IsWhatTorchSaveWrites) {
  std::stringstream file;
  torch::save(net_, file);
  auto copy = std::make_shared<models::ResNet18>(4, 4);
  torch::load(copy, file);
  EXPECT_TRUE(same_modules(*net_, *copy, bit_equal()));
  EXPECT_EQ(copy->bn1->num_batches_tracked.item<int64_t>(), 2);
}

TEST_F(TrainedNet, GoesOnFromItsOwnCheckpoint) {
  const std::string path = testing::TempDir() + "parity_checkpoint";
  trainer_->save(path);
  const Batch next[] = {images(), images()};
  for (const Batch& batch : next) trainer_->step(batch);

  auto copy = std::make_shared<models::ResNet18>(4, 4);
  auto optimizer = std::make_shared<torch::optim::Adam>(copy->parameters(), 1e-3);
  epl::Trainer resumed(copy, *optimizer, classification(copy));
  resumed.load(path);
  for (const Batch& batch : next) resumed.step(batch);
  EXPECT_TRUE(same_modules(*net_, *copy, bit_equal()));
}

TEST_F(TrainedNet, GoesBackToItsOwnCheckpoint) {
  const std::string path = testing::TempDir() + "parity_checkpoint_back";
  trainer_->save(path);
  const Batch next = images();
  trainer_->step(next);
  auto once = std::make_shared<models::ResNet18>(4, 4);
  std::stringstream file;
  torch::save(net_, file);
  torch::load(once, file);

  trainer_->load(path);
  trainer_->step(next);
  EXPECT_TRUE(same_modules(*once, *net_, bit_equal()));
}

TEST_F(TrainedNet, EvaluatesInEvalModeAndLeavesTheModesAlone) {
  const Batch next = images();
  net_->layers[1]->eval();
  StepOutput output = trainer_->evaluate(classification(net_), next);
  EXPECT_TRUE(net_->is_training());
  EXPECT_TRUE(net_->bn1->is_training());
  EXPECT_FALSE(net_->layers[1]->is_training());
  EXPECT_FALSE(output.loss.requires_grad());

  torch::NoGradGuard no_grad;
  net_->eval();
  EXPECT_TRUE(same_tensor("loss", cross_entropy(net_->forward(next[0]), next[1]), output.loss,
                          bit_equal()));
}

// --- ways to make a trainer
// -----------------------------------------------------------------------

struct NetImpl : models::Mlp {
  NetImpl() : Mlp(8, 16, 2, 4) {}
};
TORCH_MODULE(Net);

TEST(MakingATrainer, FromAModuleHolderASharedPointerAndASequential) {
  at::set_num_threads(1);
  torch::manual_seed(1);
  epl::init();
  Net holder;
  torch::optim::SGD holder_optimizer(holder->parameters(), 0.1);
  epl::Trainer of_holder(holder, holder_optimizer, [&](const Batch& batch) {
    return cross_entropy(holder->forward(batch[0]), batch[1]);
  });
  auto shared = std::make_shared<NetImpl>();
  torch::optim::SGD shared_optimizer(shared->parameters(), 0.1);
  epl::Trainer of_shared(shared, shared_optimizer, [&](const Batch& batch) {
    return cross_entropy(shared->forward(batch[0]), batch[1]);
  });
  torch::nn::Sequential sequential(torch::nn::Linear(8, 16), torch::nn::ReLU(),
                                   torch::nn::Linear(16, 4));
  torch::optim::SGD sequential_optimizer(sequential->parameters(), 0.1);
  epl::Trainer of_sequential(sequential, sequential_optimizer, [&](const Batch& batch) {
    return cross_entropy(sequential->forward(batch[0]), batch[1]);
  });
  const Batch same = batch(0);
  for (epl::Trainer* trainer : {&of_holder, &of_shared, &of_sequential}) {
    const double first = trainer->step(same).loss;
    for (int i = 0; i < 20; ++i) trainer->step(same);
    EXPECT_LT(trainer->step(same).loss, first);
  }
}

TEST(MakingATrainer, AndMovingIt) {
  at::set_num_threads(1);
  torch::manual_seed(1);
  epl::init();
  auto net = mlp();
  auto optimizer = sgd(*net, 0.1);
  const Batch same = batch(0);
  epl::Trainer first(net, *optimizer, classification(net));
  const double before = first.step(same).loss;
  epl::Trainer second = std::move(first);
  EXPECT_LT(second.step(same).loss, before);
}

}  // namespace
}  // namespace epl::parity

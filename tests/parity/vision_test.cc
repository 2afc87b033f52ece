// Networks for images train as in the plain loop.
#include "tests/models/vision.h"

#include "tests/models/generative.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

TEST(Vision, LeNet) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::LeNet>();
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          return torch::nll_loss(net->forward(batch[0]), batch[1]);
        });
      },
      [](int) {
        return Batch{torch::randn({4, 1, 28, 28}), classes(10, {4})};
      },
      bit_equal()));
}

TEST(Vision, ResNet18) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::ResNet18>(/*width=*/8, /*classes=*/10);
        return program(net, sgd(*net, 0.1), classification(net));
      },
      [](int) {
        return Batch{torch::randn({4, 3, 32, 32}), classes(10, {4})};
      },
      bit_equal()));
}

TEST(Vision, ResNet50) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::ResNet50>(/*width=*/8, /*classes=*/10);
        return program(net, sgd(*net, 0.1), classification(net));
      },
      [](int) {
        return Batch{torch::randn({2, 3, 64, 64}), classes(10, {2})};
      },
      bit_equal()));
}

TEST(Vision, ResNet50WithMomentum) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::ResNet50>(/*width=*/8, /*classes=*/10);
        return program(net, sgd(*net, 0.01, 0.9), classification(net));
      },
      [](int) {
        return Batch{torch::randn({4, 3, 64, 64}), classes(10, {4})};
      },
      // A rounding of the fused update at one step passes through 50 batch-normed layers at the
      // next.
      within(1e-5, "the fused momentum may round otherwise, and depth amplifies it"),
      Variant().steps(3)));
}

TEST(Vision, ImagesInChannelsLast) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::ResNet18>(/*width=*/8, /*classes=*/10);
        return program(net, sgd(*net, 0.1), classification(net));
      },
      [](int) {
        return Batch{torch::randn({4, 3, 32, 32}).contiguous(torch::MemoryFormat::ChannelsLast),
                     classes(10, {4})};
      },
      bit_equal(), Variant().steps(3)));
}

TEST(Vision, UNetWithSkipsAcrossTheWholeNetwork) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::UNet>(3, 4);
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          return torch::binary_cross_entropy_with_logits(net->forward(batch[0]), batch[1]);
        });
      },
      [](int) {
        return Batch{torch::randn({2, 3, 16, 16}), torch::rand({2, 1, 16, 16})};
      },
      bit_equal()));
}

// The loss of the discriminator, then that of the generator; each has a trainer of its own that
// knows both modules, because both trainings move the generator's running statistics.
Program dcgan(StepFunction (*discriminate)(std::shared_ptr<models::Generator>,
                                           std::shared_ptr<models::Discriminator>),
              StepFunction (*generate)(std::shared_ptr<models::Generator>,
                                       std::shared_ptr<models::Discriminator>)) {
  auto generator = std::make_shared<models::Generator>(8, 4);
  auto discriminator = std::make_shared<models::Discriminator>(4);
  const std::vector<NamedModule> both = {{"generator", generator},
                                         {"discriminator", discriminator}};
  return Program{{
      Turn{both, {sgd(*discriminator, 0.05)}, discriminate(generator, discriminator)},
      Turn{both, {sgd(*generator, 0.05)}, generate(generator, discriminator)},
  }};
}

TEST(Vision, DcganWithTwoTrainersThatTakeTurns) {
  EXPECT_TRUE(parity(
      [] {
        return dcgan(
            [](auto generator, auto discriminator) -> StepFunction {
              return [=](const Batch& batch) {
                auto real = discriminator->forward(batch[0]);
                auto fake = discriminator->forward(generator->forward(batch[1]).detach());
                return torch::binary_cross_entropy(real, torch::full_like(real, 0.9)) +
                       torch::binary_cross_entropy(fake, torch::zeros_like(fake));
              };
            },
            [](auto generator, auto discriminator) -> StepFunction {
              return [=](const Batch& batch) {
                auto fake = discriminator->forward(generator->forward(batch[1]));
                return torch::binary_cross_entropy(fake, torch::ones_like(fake));
              };
            });
      },
      [](int) {
        return Batch{torch::randn({4, 1, 16, 16}), torch::randn({4, 8, 1, 1})};
      },
      bit_equal()));
}

TEST(Vision, DcganThatDrawsItsNoiseAndLabelsInTheStep) {
  EXPECT_TRUE(parity(
      [] {
        return dcgan(
            [](auto generator, auto discriminator) -> StepFunction {
              return [=](const Batch& batch) {
                const int64_t rows = batch[0].size(0);
                auto real = discriminator->forward(batch[0]);
                auto labels = torch::empty({rows}).uniform_(0.8, 1.0);
                auto noise = torch::randn({rows, 8, 1, 1});
                auto fake = discriminator->forward(generator->forward(noise).detach());
                return torch::binary_cross_entropy(real, labels) +
                       torch::binary_cross_entropy(fake, torch::zeros({rows}));
              };
            },
            [](auto generator, auto discriminator) -> StepFunction {
              return [=](const Batch& batch) {
                auto noise = torch::randn({batch[0].size(0), 8, 1, 1});
                auto fake = discriminator->forward(generator->forward(noise));
                return torch::binary_cross_entropy(fake, torch::ones_like(fake));
              };
            });
      },
      [](int) {
        return Batch{torch::randn({4, 1, 16, 16})};
      },
      bit_equal()));
}

// Not every user names every module: the generator's statistics move all the same.
TEST(Vision, BatchNormOfAModuleThatTheTrainerWasNotTold) {
  std::vector<torch::Tensor> statistics;
  EXPECT_TRUE(parity(
      [&] {
        auto generator = std::make_shared<models::Generator>(8, 4);
        auto discriminator = std::make_shared<models::Discriminator>(4);
        statistics.push_back(generator->norm1->running_mean);
        return program(discriminator, sgd(*discriminator, 0.05), [=](const Batch& batch) {
          auto real = discriminator->forward(batch[0]);
          auto fake = discriminator->forward(generator->forward(batch[1]).detach());
          return (fake - real).mean();
        });
      },
      [](int) {
        return Batch{torch::randn({4, 1, 16, 16}), torch::randn({4, 8, 1, 1})};
      },
      bit_equal()));
  EXPECT_TRUE(same_tensor("norm1.running_mean", statistics[0], statistics[1], bit_equal()));
}

}  // namespace
}  // namespace epl::parity

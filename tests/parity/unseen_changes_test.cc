// What a program changes beside the batch, and what its own optimizer and other trainers do: each
// was once replayed as it had been recorded, without a word.
#include <gmock/gmock.h>

#include "config/libtorch.h"
#include "tests/models/mlp.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

Batch rows(int) { return {torch::randn({8, 8}), classes(4, {8})}; }

template <typename Net>
MakeProgram trained(const std::function<Net()>& make,
                    const std::function<Tensor(Net&, const Batch&)>& loss) {
  return [make, loss] {
    Net net = make();
    return program(net.ptr(), sgd(*net, 0.1, 0.9),
                   [net, loss](const Batch& batch) mutable { return loss(net, batch); });
  };
}

MakeProgram linear(const std::function<Tensor(nn::Linear&, const Batch&)>& loss) {
  return trained<nn::Linear>([] { return nn::Linear(8, 4); }, loss);
}

Variant long_enough() { return Variant().steps(8); }

// The second look took another way at the mask, and what comes behind it was not compared.
TEST(UnseenChange, OfANumberBehindAGuard) {
  EXPECT_TRUE(parity(
      [] {
        nn::Linear net(8, 4);
        auto calls = std::make_shared<int>(0);
        return program(net.ptr(), sgd(*net, 0.1), [net, calls](const Batch& batch) mutable {
          const Tensor kept = net(batch[0]).index({batch[1]});
          return kept.square().mean() * (0.1 * ++*calls);
        });
      },
      [](int step) {
        Tensor mask = torch::ones({8}, torch::kBool);
        if (step == 1) mask[2] = false;
        return Batch{torch::randn({8, 8}), mask};
      },
      bit_equal(), long_enough()));
}

// Batches of another shape do the same operators with other integers.
TEST(UnseenChange, OfAnIntegerAmongOtherShapes) {
  EXPECT_TRUE(parity(
      [] {
        nn::Linear net(8, 4);
        auto calls = std::make_shared<int64_t>(0);
        return program(net.ptr(), sgd(*net, 0.1), [net, calls](const Batch& batch) mutable {
          const int64_t room = batch[0].size(1) - 8;
          const int64_t from = room > 0 ? (*calls)++ % room : 0;
          return net(batch[0].narrow(1, from, 8)).square().mean();
        });
      },
      [](int step) {
        return Batch{torch::randn({8, step < 3 ? 8 : 12})};
      },
      bit_equal(), Variant().steps(12)));
}

// rand_like() fills memory in the order in which the tensor lies.
TEST(UnseenChange, OfTheOrderOfABatch) {
  EXPECT_TRUE(parity(
      linear([](nn::Linear& net, const Batch& batch) {
        return net(batch[0] + torch::rand_like(batch[0])).square().mean();
      }),
      [](int step) {
        const Tensor x = torch::randn({8, 8});
        return Batch{step < 3 ? x : x.t()};
      },
      bit_equal(), long_enough()));
}

TEST(UnseenChange, OfAConvolutionsOptions) {
  EXPECT_TRUE(parity(
      [] {
        nn::Conv2d net(nn::Conv2dOptions(2, 2, 3).padding(1));
        nn::MaxPool2d pool(nn::MaxPool2dOptions(2));
        nn::Sequential both(net, pool);
        Program changing =
            program(both.ptr(), sgd(*both, 0.1), [net, pool](const Batch& batch) mutable {
              return pool(net(batch[0])).square().mean();
            });
        changing.before_step = [net, pool](int step) mutable {
          if (step == 3) net->options.dilation(2).padding(torch::ExpandingArray<2>(2));
          if (step == 5) pool->options.stride(1);
        };
        return changing;
      },
      [](int) {
        return Batch{torch::randn({2, 2, 6, 6})};
      },
      bit_equal(), long_enough()));
}

TEST(UnseenChange, OfOptionsThatResize) {
  EXPECT_TRUE(parity(
      [] {
        nn::Conv2d net(2, 2, 1);
        nn::Upsample up(nn::UpsampleOptions().scale_factor(std::vector<double>{2, 2}));
        nn::AdaptiveAvgPool2d pool(3);
        nn::ConstantPad2d pad(1, 0.5);
        nn::Sequential all(net, up, pool, pad);
        Program changing =
            program(all.ptr(), sgd(*all, 0.1), [net, up, pool, pad](const Batch& batch) mutable {
              return pad(pool(up(net(batch[0])))).square().sum();
            });
        changing.before_step = [up, pool, pad](int step) mutable {
          if (step == 3) pool->options.output_size(4);
          if (step == 4) up->options.scale_factor(std::vector<double>{3, 3});
          if (step == 5) up->options.mode(torch::kBilinear).align_corners(true);
          if (step == 6) pad->options.value(0.25);
          if (step == 7) pad->options.padding(2);
        };
        return changing;
      },
      [](int) {
        return Batch{torch::randn({2, 2, 6, 6})};
      },
      bit_equal(), Variant().steps(9)));
}

TEST(UnseenChange, OfTheLearningRateByTheStepItself) {
  EXPECT_TRUE(parity(
      [] {
        nn::Linear net(8, 4);
        auto optimizer =
            std::make_shared<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.1));
        auto schedule = std::make_shared<torch::optim::StepLR>(*optimizer, 1, 0.5);
        return program(net.ptr(), optimizer, [net, schedule](const Batch& batch) mutable {
          schedule->step();
          return cross_entropy(net(batch[0]), batch[1]);
        });
      },
      rows, bit_equal(), long_enough()));
}

TEST(UnseenChange, OfHowABufferIsSeen) {
  EXPECT_TRUE(parity(
      [] {
        nn::Linear net(8, 4);
        Tensor turned = net->register_buffer("turned", torch::randn({8, 8}));
        return program(net.ptr(), sgd(*net, 0.1), [net, turned](const Batch& batch) mutable {
          turned.t_();
          return cross_entropy(net(batch[0].matmul(turned)), batch[1]);
        });
      },
      rows, bit_equal(), long_enough()));
}

// An optimizer that writes into its gradients, as weight decay in place does.
class Decaying : public torch::optim::Optimizer {
 public:
  explicit Decaying(std::vector<Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  Tensor step(LossClosure = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (auto& group : param_groups()) {
      for (auto& parameter : group.params()) {
        if (!parameter.grad().defined()) continue;
        parameter.mutable_grad().add_(parameter, 0.1);
        parameter.add_(parameter.grad(), -0.1);
      }
    }
    return {};
  }
};

TEST(UnseenChange, OfGradientsByTheirOptimizer) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
        Program freezing = program(
            net, std::make_shared<Decaying>(net->parameters()),
            [net](const Batch& batch) { return cross_entropy(net->forward(batch[0]), batch[1]); });
        freezing.before_step = [net](int step) {
          if (step == 2) net->parameters()[0].requires_grad_(false);
        };
        return freezing;
      },
      rows, bit_equal(), long_enough()));
}

struct TwoLayers {
  nn::Linear trained{8, 4}, other{8, 4};
  OptimizerPointer all() const {
    std::vector<Tensor> parameters = trained->parameters();
    for (const Tensor& parameter : other->parameters()) parameters.push_back(parameter);
    return std::make_shared<torch::optim::SGD>(
        parameters, torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.1));
  }
};

// The loop makes a step of its own with the same optimizer: from then on the layer is updated with
// zero gradients.
TEST(UnseenChange, OfGradientsByAStepOfTheLoop) {
  const auto train = [](bool by_epl) {
    torch::manual_seed(4);
    TwoLayers nets;
    const OptimizerPointer optimizer = nets.all();
    init();
    const StepFunction step = [nets](const Batch& batch) mutable {
      return cross_entropy(nets.trained(batch[0]), batch[1]);
    };
    Trainer trainer({{"trained", nets.trained.ptr()}, {"other", nets.other.ptr()}}, {*optimizer},
                    step);
    for (int i = 0; i < 6; ++i) {
      const Batch batch = rows(i);
      if (by_epl) {
        trainer.step(batch);
      } else {
        optimizer->zero_grad();
        step(batch).loss.backward();
        optimizer->step();
      }
      if (i == 2) nets.other(torch::ones({1, 8})).sum().backward();
    }
    return nets.other;
  };
  EXPECT_TRUE(same_modules(*train(false), *train(true), bit_equal()));
}

// A layer that another trainer thaws gets a gradient by this one's backward().
TEST(UnseenChange, OfAnotherTrainersFlags) {
  EXPECT_TRUE(parity(
      [] {
        TwoLayers nets;
        nn::Linear made(8, 8);
        Program both;
        both.turns.push_back({{{"made", made.ptr()}, {"other", nets.other.ptr()}},
                              {sgd(*made, 0.1)},
                              [made, nets](const Batch& batch) mutable {
                                return cross_entropy(nets.other(made(batch[0])), batch[1]);
                              }});
        both.turns.push_back({{{"trained", nets.trained.ptr()}, {"other", nets.other.ptr()}},
                              {nets.all()},
                              [nets](const Batch& batch) mutable {
                                return cross_entropy(nets.trained(batch[0]), batch[1]);
                              }});
        both.before_step = [nets](int step) {
          for (Tensor& each : nets.other->parameters()) each.requires_grad_(step >= 4);
        };
        return both;
      },
      rows, bit_equal(), long_enough()));
}

// Two looks cannot know that a number will begin to change: later ones find it, and say so.
TEST(UnseenChange, OfANumberThatBeginsToChangeIsToldLater) {
  init();
  nn::Linear net(8, 4);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  int step = 0, calls = 0;
  Trainer trainer({{"", net.ptr()}}, {optimizer}, [&](const Batch& batch) {
    ++calls;
    return cross_entropy(net(batch[0]), batch[1]) * (step < 120 ? 1.0 : 0.5);
  });
  testing::internal::CaptureStderr();
  for (; step < 160; ++step) trainer.step(rows(step));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said,
              testing::HasSubstr("from step 150 on the step runs as the plain program would"));
  EXPECT_THAT(said, testing::HasSubstr("steps since step 99, where it was last looked at"));
  EXPECT_EQ(calls, 3 + 10) << "steps 0, 1, 99, and from step 150 on";
}

// What one trainer's step writes in place another one is handed.
TEST(UnseenChange, OfABatchByAnotherTrainer) {
  init();
  nn::Linear first(8, 4), second(8, 4);
  torch::optim::SGD of_first(first->parameters(), 0.1), of_second(second->parameters(), 0.1);
  Trainer writes({{"", first.ptr()}}, {of_first}, [&](const Batch& batch) {
    return cross_entropy(first(Tensor(batch[0]).mul_(2)), batch[1]);
  });
  Trainer reads({{"", second.ptr()}}, {of_second},
                [&](const Batch& batch) { return cross_entropy(second(batch[0]), batch[1]); });
  const Batch batch = rows(0);
  writes.step(batch);
  EXPECT_THAT([&] { reads.step(batch); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("is handed in again")));
}

}  // namespace
}  // namespace epl::parity

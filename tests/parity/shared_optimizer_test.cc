// Several trainers on one optimizer, each of whose losses reaches a part of it: heads of tasks that
// take turns. In the plain loop zero_grad() leaves zeros where a gradient once was, so momentum,
// weight decay and moments of the other heads move in every step; they stood still, since each
// trainer knew of its own gradients only.
#include <gmock/gmock.h>

#include "config/libtorch.h"
#include "tests/models/mlp.h"
#include "tests/parity/on_devices.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

struct TwoHeads : torch::nn::Module {
  TwoHeads() : trunk(6, 8), left(8, 3), right(8, 3) {
    register_module("trunk", trunk);
    register_module("left", left);
    register_module("right", right);
  }
  torch::nn::Linear trunk;
  torch::nn::Linear left;
  torch::nn::Linear right;
};

// Counts its calls of step(), as no optimizer of LibTorch does.
class Counting : public torch::optim::Optimizer {
 public:
  explicit Counting(std::vector<torch::Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  torch::Tensor step(LossClosure = nullptr) override {
    const torch::NoGradGuard no_grad;
    ++calls_;
    for (auto& group : param_groups()) {
      for (auto& parameter : group.params()) {
        if (!parameter.grad().defined()) continue;
        parameter.add_(parameter.grad() + 0.1 * parameter, -0.1 / calls_);
      }
    }
    return {};
  }

 private:
  int calls_ = 0;
};

using MakeOptimizer = std::function<OptimizerPointer(const torch::nn::Module&)>;

// Each head in its own turn, with one optimizer for all.
MakeProgram heads(const MakeOptimizer& optimizer) {
  return [optimizer] {
    auto net = std::make_shared<TwoHeads>();
    const OptimizerPointer shared = optimizer(*net);
    Program both;
    for (const bool left : {true, false}) {
      both.turns.push_back({{{"", net}}, {shared}, [net, left](const Batch& batch) {
                              const auto hidden = torch::tanh(net->trunk(batch[0]));
                              return cross_entropy(left ? net->left(hidden) : net->right(hidden),
                                                   batch[1]);
                            }});
    }
    return both;
  };
}

Batch batch(int) { return {torch::randn({8, 6}), classes(3, {8})}; }

template <typename Optimizer, typename Options>
MakeOptimizer made(Options options) {
  return [options](const torch::nn::Module& net) {
    return std::make_shared<Optimizer>(net.parameters(), options);
  };
}

std::vector<MakeOptimizer> optimizers() {
  using namespace torch::optim;  // NOLINT: five of them in five lines
  return {made<SGD>(SGDOptions(0.1).momentum(0.9).weight_decay(0.1)),
          made<Adam>(AdamOptions(0.05).weight_decay(0.01)), made<AdamW>(AdamWOptions(0.05)),
          made<RMSprop>(RMSpropOptions(0.01).momentum(0.9)), [](const torch::nn::Module& net) {
            return std::make_shared<Counting>(net.parameters());
          }};
}

TEST(SharedOptimizer, GoesOnWithTheHeadsOfOtherTrainers) {
  for (const auto& optimizer : optimizers()) {
    EXPECT_TRUE(parity(heads(optimizer), batch, bit_equal()));
  }
}

TEST(SharedOptimizer, GoesOnWithTheHeadsOfOtherTrainersOnSeveralDevices) {
  for (const auto& optimizer : optimizers()) {
    EXPECT_TRUE(parity(heads(optimizer), batch, bit_equal(), Variant().devices(2)));
  }
}

TEST(SharedOptimizer, GoesOnWithTheHeadsOfOtherTrainersOnSeveralWorkers) {
  EXPECT_TRUE(parity(heads(optimizers()[1]), batch,
                     within(1e-5, "sums over workers in another order"),
                     Variant().workers({1, 1})));
}

// Whoever trained plainly before has gradients that zero_grad() makes zeros of.
TEST(SharedOptimizer, GoesOnWithWhatWasTrainedPlainlyBefore) {
  const auto train = [](bool by_epl) {
    torch::manual_seed(5);
    auto net = std::make_shared<TwoHeads>();
    torch::optim::Adam optimizer(net->parameters(), 0.05);
    const auto loss = [&](const torch::nn::Linear& head, const Batch& rows) {
      return cross_entropy(torch::nn::Linear(head)(torch::tanh(net->trunk(rows[0]))), rows[1]);
    };
    const auto step_plainly = [&](const torch::nn::Linear& head, const Batch& rows) {
      optimizer.zero_grad();
      loss(head, rows).backward();
      optimizer.step();
    };
    step_plainly(net->left, batch(0));
    init();
    Trainer trainer(net, optimizer, [&](const Batch& rows) { return loss(net->right, rows); });
    for (int i = 0; i < 3; ++i) {
      const Batch rows = batch(i);
      by_epl ? void(trainer.step(rows)) : step_plainly(net->right, rows);
    }
    return net;
  };
  EXPECT_TRUE(same_modules(*train(false), *train(true), bit_equal()));
}

// Two nets with an optimizer each, as a GAN has them.
struct Pair {
  std::shared_ptr<TwoHeads> first = std::make_shared<TwoHeads>();
  std::shared_ptr<TwoHeads> second = std::make_shared<TwoHeads>();
};

OptimizerPointer decaying(const torch::nn::Module& net) {
  return std::make_shared<torch::optim::SGD>(
      net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.5).weight_decay(0.1));
}

torch::Tensor left_of(TwoHeads& net, const torch::Tensor& x) {
  return net.left(torch::tanh(net.trunk(x)));
}

// `second`'s right head has no loss of its own; the step of `first` reaches it.
MakeProgram reaching(bool reaches_first) {
  return [reaches_first] {
    const Pair nets;
    const Turn own{{{"second", nets.second}}, {decaying(*nets.second)}, [nets](const Batch& batch) {
                     return cross_entropy(left_of(*nets.second, batch[0]), batch[1]);
                   }};
    const Turn other{{{"first", nets.first}}, {decaying(*nets.first)}, [nets](const Batch& batch) {
                       const auto hidden = torch::tanh(nets.second->trunk(batch[0]));
                       return cross_entropy(
                           left_of(*nets.first, batch[0]) + nets.second->right(hidden), batch[1]);
                     }};
    Program both;
    both.turns = reaches_first ? std::vector<Turn>{other, own} : std::vector<Turn>{own, other};
    return both;
  };
}

// In LibTorch 1 the other trainer's backward() leaves a gradient that zero_grad() makes zeros of,
// and the head decays. It rested, without a word.
TEST(OtherTrainersBackward, LetsAParameterDecay) {
  for (const bool reaches_first : {true, false}) {
    EXPECT_TRUE(parity(reaching(reaches_first), batch, bit_equal()));
    EXPECT_TRUE(parity(reaching(reaches_first), batch, bit_equal(), Variant().devices(2)));
    EXPECT_TRUE(parity(reaching(reaches_first), batch,
                       within(1e-5, "sums over workers in another order"),
                       Variant().workers({1, 1})));
  }
}

// Autograd would go on adding into gradients of the old type, and its optimizer with them.
TEST(ParameterOfAnotherType, InMidTrainingIsAnError) {
  if (!kZeroGradLeavesZeros) GTEST_SKIP() << "LibTorch 2 lets the old gradients go";
  init();
  auto net = std::make_shared<TwoHeads>();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, [&](const Batch& rows) {
    return cross_entropy(left_of(*net, rows[0].to(net->trunk->weight.dtype())), rows[1]);
  });
  trainer.step(batch(0));
  net->to(torch::kDouble);
  EXPECT_THAT([&] { trainer.step(batch(1)); },
              testing::ThrowsMessage<Error>(
                  testing::HasSubstr("is of type Double and had its first gradient as Float")));
}

void train_only(TwoHeads& net, bool train) {
  for (torch::Tensor& parameter : net.parameters()) parameter.requires_grad_(train);
}

// As GANs are often written: each step switches the discriminator's gradients on or off itself.
MakeProgram switching() {
  return [] {
    const Pair nets;
    Program both;
    both.turns.push_back(
        {{{"second", nets.second}}, {decaying(*nets.second)}, [nets](const Batch& batch) {
           train_only(*nets.second, true);
           const auto made = left_of(*nets.first, batch[0]).detach();
           return cross_entropy(left_of(*nets.second, batch[0]) * made, batch[1]);
         }});
    both.turns.push_back({{{"first", nets.first}, {"second", nets.second}},
                          {decaying(*nets.first)},
                          [nets](const Batch& batch) {
                            train_only(*nets.second, false);
                            const auto made = left_of(*nets.first, batch[0]);
                            return cross_entropy(left_of(*nets.second, batch[0]) * made, batch[1]);
                          }});
    return both;
  };
}

// "The loss depends on no parameter that requires a gradient", since the flags were read before the
// step had set them.
TEST(StepThatFreezesItself, TrainsWhatItUnfreezes) {
  EXPECT_TRUE(parity(switching(), batch, bit_equal()));
  EXPECT_TRUE(parity(switching(), batch, bit_equal(), Variant().devices(2)));
  EXPECT_TRUE(parity(switching(), batch, bit_equal(), Variant().micro_batches(2)));
  EXPECT_TRUE(parity(switching(), batch, within(1e-5, "sums over workers in another order"),
                     Variant().workers({1, 1})));
}

}  // namespace
}  // namespace epl::parity

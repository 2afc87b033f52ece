// What a program exchanges between steps: layers with the parameters of the optimizer, parameters
// that move from one optimizer to another, options of modules. Groups of as many parameters as
// before went unnoticed and ended as an internal error; a dropout that was switched off by its
// option stayed on.
#include "tests/models/mlp.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

struct Net : torch::nn::Module {
  Net() {
    register_module("first", first);
    register_module("norm", norm);
    register_module("drop", drop);
    register_module("last", last);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return last(drop(torch::leaky_relu(norm(first(x)), unit->options.negative_slope())));
  }
  torch::nn::Linear first{6, 8};
  torch::nn::BatchNorm1d norm{8};
  torch::nn::Dropout drop{0.5};
  torch::nn::LeakyReLU unit = register_module("unit", torch::nn::LeakyReLU());
  torch::nn::Linear last{8, 3};
};

Batch batch(int) { return {torch::randn({8, 6}), classes(3, {8})}; }

TEST(BetweenSteps, ALayerIsReplacedAndItsOptimizerGetsTheNewParameters) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<Net>();
        const OptimizerPointer optimizer = sgd(*net, 0.1, 0.9);
        Program made = program(net, optimizer, classification(net));
        made.before_step = [net, optimizer](int i) {
          if (i != 2) return;
          net->last = net->replace_module("last", torch::nn::Linear(8, 3));
          optimizer->param_groups()[0].params() = net->parameters();
        };
        return made;
      },
      batch, bit_equal(), Variant().draw_in_loop()));
}

TEST(BetweenSteps, AParameterMovesToAnotherOptimizer) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<Net>();
        const auto slow = std::make_shared<torch::optim::SGD>(net->first->parameters(), 0.01);
        const auto fast = std::make_shared<torch::optim::Adam>(net->last->parameters(), 0.1);
        Program made{{Turn{{{"", net}}, {slow, fast}, classification(net)}}};
        made.before_step = [slow, fast](int i) {
          if (i == 2) std::swap(slow->param_groups()[0].params(), fast->param_groups()[0].params());
        };
        return made;
      },
      batch, bit_equal()));
}

// The numbers that a recording holds of a module's options.
class ChangedOption : public testing::TestWithParam<std::function<void(Net&)>> {};

TEST_P(ChangedOption, TakesEffectWithTheNextStep) {
  EXPECT_TRUE(parity(
      [change = GetParam()] {
        auto net = std::make_shared<Net>();
        Program made = program(net, sgd(*net, 0.1), classification(net));
        made.before_step = [net, change](int i) {
          if (i == 2) change(*net);
        };
        return made;
      },
      batch, bit_equal()));
}

INSTANTIATE_TEST_SUITE_P(Of, ChangedOption,
                         testing::Values([](Net& net) { net.drop->options.p(0); },
                                         [](Net& net) { net.drop->options.p(0.9); },
                                         [](Net& net) { net.norm->options.momentum(0.5); },
                                         [](Net& net) { net.norm->options.momentum(c10::nullopt); },
                                         [](Net& net) { net.norm->options.eps(0.1); },
                                         [](Net& net) { net.unit->options.negative_slope(0.7); }));

// Two layers that come to lie in one memory are updated one after the other, as LibTorch does.
TEST(BetweenSteps, LayersMayComeToShareTheirMemory) {
  const auto make = [] {
    auto net = std::make_shared<models::Mlp>(128, 128, 3, 128);
    Program made = program(net, std::make_shared<torch::optim::SGD>(net->parameters(), 0.05),
                           classification(net));
    made.before_step = [net](int step) {
      if (step != 3) return;
      net->layers[2]->parameters()[0].set_data(net->layers[0]->parameters()[0].detach());
    };
    return made;
  };
  const auto wide_rows = [](int) -> Batch { return {torch::randn({8, 128}), classes(128, {8})}; };
  for (const int devices : {1, 2}) {
    EXPECT_TRUE(parity(make, wide_rows, within(1e-5, "sums over devices in another order"),
                       Variant().steps(7).devices(devices)));
  }
}

// An optimizer that counts its calls, as schedules inside of optimizers do.
class Counting : public torch::optim::SGD {
 public:
  using SGD::SGD;
  torch::Tensor step(LossClosure closure = nullptr) override {
    static_cast<torch::optim::SGDOptions&>(param_groups()[0].options()).lr(0.1 / ++calls_);
    return SGD::step(closure);
  }

 private:
  int calls_ = 0;
};

TEST(BetweenSteps, AnOptimizerOfTheUsersOwnStepsOnceWhereLayersShareTheirMemory) {
  const auto make = [] {
    auto net = std::make_shared<models::Mlp>(8, 8, 3, 8);
    Program made =
        program(net, std::make_shared<Counting>(net->parameters(), 0.1), classification(net));
    made.before_step = [net](int step) {
      if (step != 3) return;
      net->layers[2]->parameters()[0].set_data(net->layers[0]->parameters()[0].detach());
    };
    return made;
  };
  const auto rows = [](int) -> Batch { return {torch::randn({8, 8}), classes(8, {8})}; };
  EXPECT_TRUE(parity(make, rows, bit_equal(), Variant().steps(7)));
}

}  // namespace
}  // namespace epl::parity

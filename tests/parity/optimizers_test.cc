// Every optimizer, every way to configure one, and what users do to the gradients before the
// update.
#include "config/libtorch.h"
#include "tests/models/mlp.h"
#include "tests/models/unusual.h"
#include "tests/models/vision.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

using torch::optim::Adagrad;
using torch::optim::AdagradOptions;
using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::OptimizerParamGroup;
using torch::optim::RMSprop;
using torch::optim::RMSpropOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;

const Exactness kFused =
    within(1e-6, "one fused pass over memory may round otherwise than several operators");

Batch batch(int) { return {torch::randn({8, 8}), classes(4, {8})}; }

std::shared_ptr<models::Mlp> mlp() { return std::make_shared<models::Mlp>(8, 12, 3, 4); }

struct OptimizerCase {
  const char* name;
  std::function<OptimizerPointer(std::vector<torch::Tensor>)> make;
};
void PrintTo(const OptimizerCase& optimizer, std::ostream* out) { *out << optimizer.name; }

template <typename Optimizer, typename Options>
OptimizerCase optimizer(const char* name, Options options) {
  return {name, [options](std::vector<torch::Tensor> parameters) {
            return std::make_shared<Optimizer>(parameters, options);
          }};
}

const OptimizerCase kOptimizers[] = {
    optimizer<SGD>("sgd", SGDOptions(0.1)),
    optimizer<SGD>("sgd_with_weight_decay", SGDOptions(0.1).weight_decay(0.01)),
    optimizer<SGD>("sgd_with_momentum", SGDOptions(0.1).momentum(0.9)),
    optimizer<SGD>("sgd_with_momentum_and_dampening", SGDOptions(0.1).momentum(0.9).dampening(0.3)),
    optimizer<SGD>("sgd_with_nesterov", SGDOptions(0.1).momentum(0.9).nesterov(true)),
    optimizer<SGD>("sgd_with_nesterov_and_weight_decay",
                   SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01)),
    optimizer<Adam>("adam", AdamOptions(1e-3)),
    optimizer<Adam>("adam_with_weight_decay", AdamOptions(1e-3).weight_decay(0.01)),
    optimizer<Adam>("adam_with_amsgrad", AdamOptions(1e-3).amsgrad(true)),
    optimizer<Adam>("adam_with_other_betas", AdamOptions(1e-3).betas({0.5, 0.9}).eps(1e-6)),
    optimizer<AdamW>("adamw", AdamWOptions(1e-3)),
    optimizer<AdamW>("adamw_without_weight_decay", AdamWOptions(1e-3).weight_decay(0)),
    optimizer<AdamW>("adamw_with_amsgrad", AdamWOptions(1e-3).amsgrad(true).weight_decay(0.1)),
    optimizer<RMSprop>("rmsprop", RMSpropOptions(1e-3)),
    optimizer<RMSprop>("rmsprop_with_momentum", RMSpropOptions(1e-3).momentum(0.9)),
    optimizer<RMSprop>("rmsprop_centered", RMSpropOptions(1e-3).centered(true)),
    optimizer<RMSprop>(
        "rmsprop_centered_with_momentum_and_weight_decay",
        RMSpropOptions(1e-3).centered(true).momentum(0.9).weight_decay(0.01).alpha(0.9)),
    optimizer<Adagrad>("adagrad", AdagradOptions(1e-2)),
    optimizer<Adagrad>(
        "adagrad_with_decays",
        AdagradOptions(1e-2).lr_decay(0.1).weight_decay(0.01).initial_accumulator_value(0.1)),
};

class EveryOptimizer : public testing::TestWithParam<OptimizerCase> {
 protected:
  MakeProgram trains(std::shared_ptr<models::Mlp> (*make_net)() = mlp) {
    return [make = GetParam().make, make_net] {
      auto net = make_net();
      return program(net, make(net->parameters()), classification(net));
    };
  }
};

TEST_P(EveryOptimizer, UpdatesAndKeepsItsState) { EXPECT_TRUE(parity(trains(), batch, kFused)); }

TEST_P(EveryOptimizer, UpdatesInGroups) {
  EXPECT_TRUE(parity(trains(), batch, kFused, Variant().apply_groups(3)));
}

TEST_P(EveryOptimizer, UpdatesAfterMicroBatches) {
  EXPECT_TRUE(parity(trains(), batch, kFused, Variant().micro_batches(4)));
}

TEST_P(EveryOptimizer, UpdatesDoubles) {
  auto in_double = [] {
    auto net = mlp();
    net->to(torch::kDouble);
    return net;
  };
  EXPECT_TRUE(parity(
      trains(in_double),
      [](int) {
        return Batch{torch::randn({8, 8}, torch::kDouble), classes(4, {8})};
      },
      within(1e-12, "the same freedom to round, in double")));
}

TEST_P(EveryOptimizer, SkipsFrozenAndUnusedParameters) {
  EXPECT_TRUE(parity(
      [make = GetParam().make] {
        auto net = std::make_shared<models::FineTuned>(8, 12, 4);
        return program(net, make(net->parameters()), classification(net));
      },
      batch, kFused));
}

// The file that torch::save(optimizer) writes after training with EPL goes on in plain LibTorch.
TEST_P(EveryOptimizer, SavesAFileThatPlainLibTorchContinuesFrom) {
  torch::manual_seed(1);
  epl::init();
  auto net = mlp();
  auto optimizer = GetParam().make(net->parameters());
  epl::Trainer trainer(net, *optimizer, classification(net));
  for (int i = 0; i < 3; ++i) trainer.step(batch(i));

  auto other = mlp();
  auto resumed = GetParam().make(other->parameters());
  std::stringstream net_file, optimizer_file;
  torch::save(net, net_file);
  torch::save(*optimizer, optimizer_file);
  torch::load(other, net_file);
  torch::load(*resumed, optimizer_file);
  for (int i = 0; i < 2; ++i) {
    Batch next = batch(i);
    trainer.step(next);
    resumed->zero_grad();
    cross_entropy(other->forward(next[0]), next[1]).backward();
    resumed->step();
  }
  EXPECT_TRUE(same_modules(*other, *net, kFused));
}

INSTANTIATE_TEST_SUITE_P(Optimizers, EveryOptimizer, testing::ValuesIn(kOptimizers),
                         [](const auto& info) { return info.param.name; });

// Large enough for vector kernels and odd enough for their tails.
TEST(Optimizers, ParametersOfAwkwardSizes) {
  for (int64_t width : {1, 3, 17, 67}) {
    EXPECT_TRUE(parity(
        [width] {
          auto net = std::make_shared<models::Mlp>(8, width, 3, 4);
          return program(net, std::make_shared<AdamW>(net->parameters(), 1e-3),
                         classification(net));
        },
        batch, kFused))
        << "width " << width;
  }
}

TEST(Optimizers, ParameterGroupsWithOptionsOfTheirOwn) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        std::vector<torch::Tensor> weights, biases;
        for (auto& item : net->named_parameters()) {
          (item.value().dim() > 1 ? weights : biases).push_back(item.value());
        }
        auto for_biases = std::make_unique<AdamWOptions>(5e-3);
        for_biases->weight_decay(0).betas({0.8, 0.99});
        auto optimizer = std::make_shared<AdamW>(
            std::vector<OptimizerParamGroup>{OptimizerParamGroup(weights),
                                             OptimizerParamGroup(biases, std::move(for_biases))},
            AdamWOptions(1e-3).weight_decay(0.1));
        return program(net, optimizer, classification(net));
      },
      batch, kFused));
}

TEST(Optimizers, AParameterGroupAddedBetweenTwoSteps) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        auto optimizer =
            std::make_shared<SGD>(net->layers[4]->parameters(), SGDOptions(0.1).momentum(0.9));
        Program result = program(net, optimizer, classification(net));
        result.before_step = [=](int step) {
          if (step != 2) return;
          // In the plain loop these gradients have added up since the first step.
          for (auto& parameter : net->layers[0]->parameters()) parameter.mutable_grad().reset();
          optimizer->add_param_group(OptimizerParamGroup(net->layers[0]->parameters()));
        };
        return result;
      },
      batch, kFused));
}

TEST(Optimizers, ALearningRateSetBetweenTheSteps) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        auto optimizer = std::make_shared<Adam>(net->parameters(), 1e-2);
        Program result = program(net, optimizer, classification(net));
        result.before_step = [=](int step) {
          for (auto& group : optimizer->param_groups()) group.options().set_lr(1e-2 / (1 + step));
        };
        return result;
      },
      batch, kFused));
}

TEST(Optimizers, ALearningRateSchedule) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        auto optimizer = std::make_shared<SGD>(net->parameters(), SGDOptions(0.1).momentum(0.9));
        auto schedule = std::make_shared<torch::optim::StepLR>(*optimizer, 2, 0.5);
        Program result = program(net, optimizer, classification(net));
        result.before_step = [=](int step) {
          if (step > 0) schedule->step();
        };
        return result;
      },
      batch, kFused));
}

TEST(Optimizers, OtherOptionsSetBetweenTheSteps) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        auto optimizer = std::make_shared<SGD>(net->parameters(), SGDOptions(0.1));
        Program result = program(net, optimizer, classification(net));
        result.before_step = [=](int step) {
          auto& options = static_cast<SGDOptions&>(optimizer->param_groups()[0].options());
          if (step == 2) options.momentum(0.9);
          if (step == 3) options.weight_decay(0.1);
        };
        return result;
      },
      batch, kFused));
}

TEST(Optimizers, TwoOptimizersInOneTrainer) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        auto first = std::make_shared<Adam>(net->layers[0]->parameters(), 1e-2);
        std::vector<torch::Tensor> rest = net->layers[2]->parameters();
        for (auto& parameter : net->layers[4]->parameters()) rest.push_back(parameter);
        auto second = std::make_shared<SGD>(rest, SGDOptions(0.1).momentum(0.9));
        return Program{{Turn{{{"", net}}, {first, second}, classification(net)}}};
      },
      batch, kFused));
}

TEST(Optimizers, TwoOptimizersThatShareAParameter) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        auto first = std::make_shared<Adam>(net->parameters(), 1e-3);
        auto second = sgd(*net, 0.01);
        return Program{{Turn{{{"", net}}, {first, second}, classification(net)}}};
      },
      batch, kFused));
}

// An optimizer that EPL has never heard of.
struct SignState : torch::optim::OptimizerCloneableParamState<SignState> {
  TORCH_ARG(torch::Tensor, velocity);
  TORCH_ARG(int64_t, step) = 0;

 public:
  void serialize(torch::serialize::OutputArchive& archive) const override {
    archive.write("velocity", torch::IValue(velocity()));
    archive.write("step", torch::IValue(step()));
  }
};

struct SignOptions : torch::optim::OptimizerCloneableOptions<SignOptions> {
  TORCH_ARG(double, lr) = 1e-2;

 public:
  double get_lr() const override { return lr(); }
  void set_lr(const double value) override { lr(value); }
};

class SignDescent : public torch::optim::Optimizer {
 public:
  explicit SignDescent(std::vector<torch::Tensor> parameters)
      : Optimizer({OptimizerParamGroup(std::move(parameters))}, std::make_unique<SignOptions>()) {}

  torch::Tensor step(LossClosure = nullptr) override {
    torch::NoGradGuard no_grad;
    for (auto& group : param_groups_) {
      for (auto& parameter : group.params()) {
        if (!parameter.grad().defined()) continue;
        auto& slot = state_[epl::state_key(parameter)];
        if (!slot) {
          auto fresh = std::make_unique<SignState>();
          fresh->velocity(torch::zeros_like(parameter));
          slot = std::move(fresh);
        }
        auto& state = static_cast<SignState&>(*slot);
        state.velocity().mul_(0.9).add_(parameter.grad());
        state.step(state.step() + 1);
        parameter.add_(state.velocity().sign(), -group.options().get_lr() / state.step());
      }
    }
    return {};
  }
};

MakeProgram sign_descent() {
  return [] {
    auto net = std::make_shared<models::FineTuned>(8, 12, 4);
    return program(net, std::make_shared<SignDescent>(net->parameters()), classification(net));
  };
}

TEST(Optimizers, AnOptimizerOfTheUsersOwn) {
  EXPECT_TRUE(parity(sign_descent(), batch, bit_equal()));
}

class OwnDescent : public SGD {
 public:
  using SGD::SGD;
};

// Both read the sum of what devices have, whichever adds it up.
TEST(Optimizers, AnOptimizerOfTheUsersOwnThatSharesItsParameters) {
  for (const bool own_first : {true, false}) {
    const auto make = [own_first] {
      auto net = mlp();
      const OptimizerPointer own = std::make_shared<OwnDescent>(net->parameters(), 0.05);
      const OptimizerPointer known = std::make_shared<Adam>(net->parameters(), 1e-2);
      std::vector<OptimizerPointer> both = {known, own};
      if (own_first) std::swap(both[0], both[1]);
      return Program{{Turn{{{"", net}}, both, classification(net)}}};
    };
    for (const int devices : {1, 2}) {
      SCOPED_TRACE(std::string(own_first ? "own first, " : "own last, ") + std::to_string(devices));
      EXPECT_TRUE(parity(make, batch, within(1e-5, "sums over devices in another order"),
                         Variant().steps(5).devices(devices)));
    }
  }
}

TEST(Optimizers, AnOptimizerOfTheUsersOwnWithMicroBatchesAndGroups) {
  EXPECT_TRUE(
      parity(sign_descent(), batch, bit_equal(), Variant().micro_batches(2).apply_groups(2)));
}

// --- clipping
// -------------------------------------------------------------------------------------

MakeProgram steep() {
  return [] {
    auto net = mlp();
    return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
      return 10 * cross_entropy(net->forward(batch[0]), batch[1]);
    });
  };
}

const Exactness kNorm =
    within(1e-6, "the norm is a sum over all gradients, in an order of its own");

TEST(Clipping, ByTheGlobalNorm) {
  EXPECT_TRUE(parity(steep(), batch, kNorm, Variant().clip_norm(1)));
}

TEST(Clipping, ByANormThatIsNeverReached) {
  EXPECT_TRUE(parity(steep(), batch, kNorm, Variant().clip_norm(1e6)));
}

TEST(Clipping, ByTheSumOfAbsoluteValues) {
  EXPECT_TRUE(parity(steep(), batch, kNorm, Variant().clip_norm(1, 1)));
}

TEST(Clipping, ByTheLargestValue) {
  EXPECT_TRUE(parity(steep(), batch, kNorm,
                     Variant().clip_norm(0.1, std::numeric_limits<double>::infinity())));
}

TEST(Clipping, ByValue) {
  EXPECT_TRUE(parity(steep(), batch, bit_equal(), Variant().clip_value(0.05)));
}

TEST(Clipping, ByTheNormOfAllMicroBatchesTogether) {
  EXPECT_TRUE(parity(steep(), batch, kNorm, Variant().clip_norm(1).micro_batches(4)));
}

TEST(Clipping, ByTheNormBeforeAnUpdateInGroups) {
  EXPECT_TRUE(parity(steep(), batch, kNorm, Variant().clip_norm(1).apply_groups(3)));
}

TEST(Clipping, ByTheNormOfTwoOptimizersTogether) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        auto first = std::make_shared<SGD>(net->layers[0]->parameters(), 0.1);
        auto second = std::make_shared<SGD>(net->layers[4]->parameters(), 0.2);
        return Program{{Turn{{{"", net}}, {first, second}, classification(net)}}};
      },
      batch, kNorm, Variant().clip_norm(0.1)));
}

// --- sparse gradients
// -----------------------------------------------------------------------------

Batch words(int) { return {classes(30, {8, 5}), classes(3, {8})}; }

MakeProgram bag_of_words(std::function<OptimizerPointer(std::vector<torch::Tensor>)> optimizer) {
  return [=] {
    auto net = std::make_shared<models::BagOfWords>(30, 8, 3);
    return program(net, optimizer(net->parameters()), classification(net));
  };
}

OptimizerPointer plain_sgd(std::vector<torch::Tensor> parameters) {
  return std::make_shared<SGD>(parameters, 0.5);
}

OptimizerPointer adagrad(std::vector<torch::Tensor> parameters) {
  return std::make_shared<Adagrad>(parameters, 0.05);
}

TEST(SparseGradients, WithSgd) { EXPECT_TRUE(parity(bag_of_words(plain_sgd), words, bit_equal())); }

TEST(SparseGradients, WithAdagrad) { EXPECT_TRUE(parity(bag_of_words(adagrad), words, kFused)); }

TEST(SparseGradients, WithMicroBatches) {
  const Exactness order =
      within(1e-6, "rows that several micro batches touch are added in an order of its own");
  EXPECT_TRUE(parity(bag_of_words(plain_sgd), words, order, Variant().micro_batches(4)));
  EXPECT_TRUE(parity(bag_of_words(adagrad), words, order, Variant().micro_batches(4)));
}

TEST(SparseGradients, OfAnEmbeddingThatIsReadTwice) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::BagOfWords>(30, 8, 3);
        return program(net, sgd(*net, 0.5), [net](const Batch& batch) {
          auto pooled = net->words(batch[0]).mean(1) + net->words(batch[0].flip(1)).amax(1);
          return cross_entropy(net->head(pooled), batch[1]);
        });
      },
      words, within(1e-6, "the two sparse gradients are added in an order of its own")));
}

TEST(SparseGradients, OfAnEmbeddingBag) {
  EXPECT_TRUE(parity(
      [] {
        auto bag = torch::nn::EmbeddingBag(
            torch::nn::EmbeddingBagOptions(30, 8).mode(torch::kMean).sparse(true));
        auto head = torch::nn::Linear(8, 3);
        auto net = torch::nn::Sequential(bag, head).ptr();
        return program(net, sgd(*net, 0.5), [bag, head](const Batch& batch) mutable {
          return cross_entropy(head(bag(batch[0])), batch[1]);
        });
      },
      words, within(1e-6, "rows that occur twice are added in an order of its own")));
}

// torch::nn::utils::clip_grad_norm_ scales a copy of a sparse gradient, and the gradient stays as
// it was: an exception (docs/exactness.md).
TEST(SparseGradients, AreClippedWhereLibTorchsOwnFunctionDoesNothing) {
  const auto train = [](bool by_epl) {
    torch::manual_seed(3);
    auto net = std::make_shared<models::BagOfWords>(30, 8, 3);
    torch::optim::SGD optimizer(net->parameters(), 0.5);
    const auto loss = [net](const Batch& batch) {
      return cross_entropy(net->head(net->words(batch[0]).mean(1)), batch[1]);
    };
    init();
    TrainerOptions options;
    options.clip_grad_norm = 0.01;
    Trainer trainer(net, optimizer, loss, options);
    for (int i = 0; i < 4; ++i) {
      const Batch batch = words(i);
      if (by_epl) {
        trainer.step(batch);
        continue;
      }
      optimizer.zero_grad();
      loss(batch).backward();
      double squares = 0;
      for (const auto& parameter : net->parameters()) {
        squares += (parameter.grad().is_sparse() ? parameter.grad().to_dense() : parameter.grad())
                       .square()
                       .sum()
                       .item<double>();
      }
      const double factor = options.clip_grad_norm / (std::sqrt(squares) + 1e-6);
      for (auto& parameter : net->parameters()) {
        parameter.mutable_grad() = parameter.grad() * factor;
      }
      optimizer.step();
    }
    return net;
  };
  EXPECT_TRUE(same_modules(*train(false), *train(true),
                           within(1e-6, "rows that occur twice are added in an order of its own")));
}

}  // namespace
}  // namespace epl::parity

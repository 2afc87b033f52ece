// zero.level: workers that have parameters alike keep parts of the states of their optimizers. The
// parameters are those of plain data parallelism, bit by bit, and those of the plain loop.
#include "model/test_optimizers.h"
#include "tests/models/programs.h"
#include "tests/parity/pipeline_models.h"
#include "tests/parity/split_models.h"
#include "tests/parity/zero_programs.h"

namespace epl::parity {
namespace {

class ZeroOnWorkers : public testing::TestWithParam<std::vector<int>> {
 protected:
  static Variant layout() { return Variant().steps(4).workers(GetParam()); }
};

TEST_P(ZeroOnWorkers, HasTheBitsOfDataParallelism) {
  EXPECT_TRUE(same_bits(wide, wide_batch, layout()));
}

TEST_P(ZeroOnWorkers, HasTheBitsOfDataParallelismWithMicroBatches) {
  EXPECT_TRUE(same_bits(wide, wide_batch, layout().micro_batches(2)));
}

TEST_P(ZeroOnWorkers, TrainsAsThePlainLoop) {
  const auto make = [] {
    auto net = wide_net();
    return program(net, sgd(*net, 0.1, 0.9), classification(net));
  };
  EXPECT_TRUE(parity(make, wide_batch, kRounding, zero(layout())));
}

INSTANTIATE_TEST_SUITE_P(Layouts, ZeroOnWorkers,
                         testing::Values(std::vector<int>{1, 1}, std::vector<int>{1, 1, 1},
                                         std::vector<int>{2, 2}, std::vector<int>{4, 2}),
                         [](const auto& info) {
                           std::string name = "Devices";
                           for (int devices : info.param) name += "_" + std::to_string(devices);
                           return name;
                         });

class ZeroOfModels : public testing::TestWithParam<std::string> {};

TEST_P(ZeroOfModels, TrainsOnTwoPlusOneDevices) {
  EXPECT_TRUE(parity(models::program_named(GetParam()), models::batches_named(GetParam(), 6),
                     within(1e-4, "sums over devices in another order"),
                     zero(Variant().steps(3).workers({2, 1}).micro_batches(2))));
}

INSTANTIATE_TEST_SUITE_P(All, ZeroOfModels, testing::ValuesIn(models::names_with_rows()),
                         models::test_name);

// --- optimizers
// -----------------------------------------------------------------------------------

using MakeOptimizer = std::function<OptimizerPointer(const torch::nn::Module& net)>;

template <typename Optimizer, typename Options>
MakeOptimizer made(Options options) {
  return [options](const torch::nn::Module& net) {
    return std::make_shared<Optimizer>(net.parameters(), options);
  };
}

MakeProgram wide_with(const MakeOptimizer& optimizer) {
  return [optimizer] {
    auto net = wide_net();
    return program(net, optimizer(*net), classification(net));
  };
}

TEST(Zero, CutsTheStatesOfEveryOptimizer) {
  using namespace torch::optim;  // NOLINT: seven of them in seven lines
  const std::vector<MakeOptimizer> optimizers = {
      made<SGD>(SGDOptions(0.1)),
      made<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.1)),
      made<Adam>(AdamOptions(0.01).amsgrad(true).weight_decay(0.01)),
      made<RMSprop>(RMSpropOptions(0.01).momentum(0.9).centered(true)),
      made<Adagrad>(AdagradOptions(0.05)),
      // Its own step() may look at all of a parameter: it sees all of it.
      [](const torch::nn::Module& net) { return std::make_shared<Normed>(net.parameters()); },
      [](const torch::nn::Module& net) { return std::make_shared<OwnAdam>(net.parameters()); }};
  for (size_t i = 0; i < optimizers.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_TRUE(
        same_bits(wide_with(optimizers[i]), wide_batch, Variant().steps(4).workers({1, 1})));
  }
}

TEST(Zero, GoesWithEveryOptionOfCommunication) {
  const Variant two = Variant().steps(3).workers({2, 1});
  EXPECT_TRUE(same_bits(wide, wide_batch, Variant(two).with("communication.max_splits", 1)));
  EXPECT_TRUE(same_bits(wide, wide_batch, Variant(two).with("communication.max_splits", 100)));
  EXPECT_TRUE(same_bits(wide, wide_batch, Variant(two).with("communication.num_communicators", 3)));
  EXPECT_TRUE(same_bits(wide, wide_batch, Variant(two).sum()));
  EXPECT_TRUE(same_bits(wide, wide_batch, Variant(two).apply_groups(3)));
  EXPECT_TRUE(same_bits(wide, wide_batch, Variant().steps(3).workers({2, 2}).slices(2)));
}

// A half that is rounded on its way is the same half, whoever it comes to.
TEST(Zero, GoesWithGradientsThatTravelAsHalf) {
  EXPECT_TRUE(same_bits(wide, wide_batch,
                        Variant().steps(3).workers({1, 1}).with("communication.fp16", true)));
}

TEST(Zero, GoesWithClippingBeforeReductions) {
  EXPECT_TRUE(same_bits(wide, wide_batch, Variant().steps(3).workers({2, 1}).clip_norm(0.1)));
}

// The norm is that of all ranges: its sum has another order.
TEST(Zero, GoesWithClippingAfterReductions) {
  const Variant two = Variant().steps(3).workers({2, 1}).clip_after();
  EXPECT_TRUE(parity(wide, wide_batch, kRounding, zero(Variant(two).clip_norm(0.1))));
  EXPECT_TRUE(parity(wide, wide_batch, kRounding,
                     zero(Variant(two).clip_norm(0.01, std::numeric_limits<double>::infinity()))));
  EXPECT_TRUE(parity(wide, wide_batch, kRounding, zero(Variant(two).clip_value(0.003))));
}

// A gradient that is no number makes all of them such, as it does in the plain loop.
TEST(Zero, ClipsByANormThatIsNoNumberAsLibTorchDoes) {
  run_on_workers({1, 1}, [](int) {
    epl::init(Config{{"zero.level", "v0"}, {"communication.clip_after_allreduce", true}});
    torch::manual_seed(3);
    auto net = wide_net();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    TrainerOptions options;
    options.clip_grad_norm = 1;
    const auto loss_of = classification(net);
    Trainer trainer(
        net, optimizer,
        [&](const Batch& batch) {
          // Of a root at 0: the loss is a number, and its gradient none.
          const torch::Tensor zeros = net->parameters().back() * 0;
          return loss_of(batch).loss + torch::sqrt(zeros + batch[2].mean()).sum();
        },
        options);
    for (int step = 0; step < 4; ++step) {
      Batch batch = wide_batch(step);
      batch.push_back(torch::full({24}, step < 3 ? 1.0 : 0.0));
      trainer.step(batch);
    }
    for (const auto& each : net->named_parameters()) {
      EXPECT_TRUE(each.value().isnan().all().item<bool>()) << each.key();
    }
  });
}

TEST(Zero, IsVerifiedBesideThePlainProgram) {
  EXPECT_TRUE(parity(wide, wide_batch, kRounding,
                     zero(Variant().steps(4).workers({1, 1}).with("debug.verify_steps", 3))));
}

TEST(Zero, GoesWithRecomputationThatIsChecked) {
  EXPECT_TRUE(same_bits(wide, wide_batch,
                        Variant()
                            .steps(3)
                            .workers({1, 1})
                            .with("gradient_checkpoint.type", "auto")
                            .with("gradient_checkpoint.check_gradients", true)));
}

// --- programs
// -------------------------------------------------------------------------------------

// Who owns what stays, whichever shape the step has.
TEST(Zero, GoesOnWithBatchesOfOtherShapes) {
  const auto batch = [](int step) {
    const int64_t rows = step % 3 == 0 ? 24 : step % 3 == 1 ? 12 : 36;
    return Batch{torch::randn({rows, 256}), classes(7, {rows})};
  };
  EXPECT_TRUE(same_bits(wide, batch, Variant().steps(7).workers({1, 1})));
}

// Layers go on by their momentum where a step gives them no gradient, on whoever owns them.
TEST(Zero, GoesOnWithLayersThatAreFrozenInMidTraining) {
  const auto make = [] {
    auto net = wide_net();
    Program made = program(net,
                           std::make_shared<torch::optim::SGD>(
                               net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)),
                           classification(net));
    made.before_step = [net](int step) {
      for (auto& parameter : net->parameters()) {
        if (parameter.size(0) == 256) parameter.set_requires_grad(step != 2 && step != 3);
      }
    };
    return made;
  };
  EXPECT_TRUE(same_bits(make, wide_batch, Variant().steps(6).workers({1, 1})));
}

// Rows that a mask selects: where their number is another one in every step, steps run plainly. The
// states that workers have cut by then stay cut.
TEST(Zero, GoesWithStepsThatRunPlainly) {
  const auto make = [] {
    auto net = wide_net();
    return program(
        net, std::make_shared<torch::optim::AdamW>(net->parameters()), [net](const Batch& batch) {
          const auto chosen = batch[0].select(1, 0) > 0;
          return cross_entropy(net->forward(batch[0].index({chosen})), batch[1].index({chosen}));
        });
  };
  for (int replayed : {0, 3}) {
    const auto batch = [replayed](int step) {
      Batch made = wide_batch(step);
      if (step < replayed) made[0].select(1, 0).fill_(1);
      return made;
    };
    Variant variant = Variant().steps(7).workers({1, 1}).differs_by_rows("means over chosen rows");
    EXPECT_TRUE(same_bits(make, batch, variant)) << replayed;
  }
}

TEST(Zero, LeavesSparseGradientsWhole) {
  EXPECT_TRUE(parity(models::program_named("bag of words"),
                     models::batches_named("bag of words", 4),
                     within(1e-5, "the order of a sparse sum is its own"),
                     zero(Variant().steps(3).workers({1, 1}))));
}

// Parameters of stages have their own workers; tied ones are updated by all that have them.
TEST(Zero, GoesWithReplicasOfPipelines) {
  for (const std::string& name : staged_model_names()) {
    SCOPED_TRACE(name);
    if (name == "gradient penalty" || name == "noise") continue;
    const StagedModel& model = staged_model(name);
    EXPECT_TRUE(parity(model.make, model.batch, kRounding,
                       zero(Variant()
                                .steps(3)
                                .stages(model.stages)
                                .workers({model.stages, model.stages})
                                .micro_batches(2))));
  }
}

TEST(Zero, GoesWithStagesOnOtherWorkersThanTheirReplicas) {
  EXPECT_TRUE(parity(stack(2), rows(32), kRounding,
                     zero(Variant().steps(3).stages(2).workers({1, 1, 1, 1}).micro_batches(2))));
}

TEST(Zero, GoesWithReplicasOfSplitOperators) {
  for (const char* name : {"mlp", "gpt", "tied", "mixture top 2"}) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(trains_split(split_models().at(name), 2,
                             zero(Variant().steps(3).stages(2).workers({2, 2}))));
  }
}

}  // namespace
}  // namespace epl::parity

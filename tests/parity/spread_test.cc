// zero.level = "v2": workers keep parts of the parameters, and fetch the rest around its use. They
// are those of plain data parallelism, bit by bit, and those of the plain loop.
#include "model/test_optimizers.h"
#include "tests/models/programs.h"
#include "tests/parity/pipeline_models.h"
#include "tests/parity/split_models.h"
#include "tests/parity/zero_programs.h"

namespace epl::parity {
namespace {

constexpr const char* kSpread = "v2";

class SpreadOnWorkers : public testing::TestWithParam<std::vector<int>> {
 protected:
  static Variant layout() { return Variant().steps(7).looks_every(3).workers(GetParam()); }
};

TEST_P(SpreadOnWorkers, HasTheBitsOfDataParallelism) {
  EXPECT_TRUE(same_bits(wide, wide_batch, layout(), kSpread));
}

TEST_P(SpreadOnWorkers, HasTheBitsOfDataParallelismWithMicroBatches) {
  EXPECT_TRUE(same_bits(wide, wide_batch, layout().micro_batches(2), kSpread));
}

TEST_P(SpreadOnWorkers, TrainsAsThePlainLoop) {
  const auto make = [] {
    auto net = wide_net();
    return program(net, sgd(*net, 0.1, 0.9), classification(net));
  };
  EXPECT_TRUE(parity(make, wide_batch, kRounding, zero(layout(), kSpread)));
}

INSTANTIATE_TEST_SUITE_P(Layouts, SpreadOnWorkers,
                         testing::Values(std::vector<int>{1, 1}, std::vector<int>{1, 1, 1},
                                         std::vector<int>{2, 2}, std::vector<int>{4, 2}),
                         [](const auto& info) {
                           std::string name = "Devices";
                           for (int devices : info.param) name += "_" + std::to_string(devices);
                           return name;
                         });

class SpreadOfModels : public testing::TestWithParam<std::string> {};

TEST_P(SpreadOfModels, TrainsOnTwoPlusOneDevices) {
  EXPECT_TRUE(
      parity(models::program_named(GetParam()), models::batches_named(GetParam(), 6),
             within(1e-4, "sums over devices in another order"),
             zero(Variant().steps(4).looks_every(4).workers({2, 1}).micro_batches(2), kSpread)));
}

INSTANTIATE_TEST_SUITE_P(All, SpreadOfModels, testing::ValuesIn(models::names_with_rows()),
                         models::test_name);

Variant steps_on(std::vector<int> workers) {
  return Variant().steps(5).looks_every(5).workers(std::move(workers));
}

testing::AssertionResult same_bits_of_wide(const Variant& variant) {
  return same_bits(wide, wide_batch, variant, kSpread);
}

// --- optimizers and options
// -----------------------------------------------------------------------

TEST(Spread, GoesWithEveryOptimizer) {
  using namespace torch::optim;  // NOLINT: five of them in five lines
  using Make = std::function<OptimizerPointer(const torch::nn::Module& net)>;
  const std::vector<Make> optimizers = {
      [](const auto& net) {
        return std::make_shared<SGD>(net.parameters(), SGDOptions(0.1).momentum(0.9));
      },
      [](const auto& net) {
        return std::make_shared<Adam>(net.parameters(), AdamOptions(0.01).amsgrad(true));
      },
      [](const auto& net) { return std::make_shared<RMSprop>(net.parameters(), 0.01); },
      [](const auto& net) { return std::make_shared<Adagrad>(net.parameters(), 0.05); },
      // Its own step() may look at all of a parameter: all of it is there.
      [](const auto& net) { return std::make_shared<Normed>(net.parameters()); }};
  for (size_t i = 0; i < optimizers.size(); ++i) {
    SCOPED_TRACE(i);
    const auto make = [&] {
      auto net = wide_net();
      return program(net, optimizers[i](*net), classification(net));
    };
    EXPECT_TRUE(same_bits(make, wide_batch, steps_on({1, 1}), kSpread));
  }
}

TEST(Spread, GoesWithEveryOptionOfCommunication) {
  EXPECT_TRUE(same_bits_of_wide(steps_on({2, 1}).with("communication.max_splits", 1)));
  EXPECT_TRUE(same_bits_of_wide(steps_on({2, 1}).with("communication.num_communicators", 3)));
  EXPECT_TRUE(same_bits_of_wide(steps_on({2, 1}).sum()));
  EXPECT_TRUE(same_bits_of_wide(steps_on({2, 1}).apply_groups(3)));
  EXPECT_TRUE(same_bits_of_wide(steps_on({2, 2}).slices(2)));
  EXPECT_TRUE(same_bits_of_wide(steps_on({2, 1}).clip_norm(0.1)));
  EXPECT_TRUE(same_bits_of_wide(steps_on({1, 1}).from_source().micro_batches(2)));
  EXPECT_TRUE(parity(wide, wide_batch, kRounding,
                     zero(steps_on({2, 1}).clip_after().clip_norm(0.1), kSpread)));
}

TEST(Spread, IsVerifiedBesideThePlainProgram) {
  EXPECT_TRUE(parity(wide, wide_batch, kRounding,
                     zero(steps_on({1, 1}).with("debug.verify_steps", 3), kSpread)));
}

TEST(Spread, GoesWithRecomputationThatIsChecked) {
  EXPECT_TRUE(same_bits_of_wide(steps_on({1, 1})
                                    .with("gradient_checkpoint.type", "auto")
                                    .with("gradient_checkpoint.check_gradients", true)));
}

TEST(Spread, GoesWithMixedPrecision) {
  EXPECT_TRUE(same_bits_of_wide(steps_on({2, 1}).with("amp.level", "O1")));
}

// --- programs
// -------------------------------------------------------------------------------------

// Also where one worker alone has another number of rows and records: all bring their parts.
TEST(Spread, GoesOnWithBatchesOfOtherShapes) {
  const auto batch = [](int step) {
    const int64_t rows = step % 3 == 0 ? 24 : step % 3 == 1 ? 12 : 36;
    return Batch{torch::randn({rows, 256}), classes(7, {rows})};
  };
  EXPECT_TRUE(same_bits(wide, batch, Variant().steps(9).looks_every(4).workers({1, 1}), kSpread));
}

TEST(Spread, GoesOnWithLayersThatAreFrozenInMidTraining) {
  const auto make = [] {
    auto net = wide_net();
    Program made = program(net,
                           std::make_shared<torch::optim::SGD>(
                               net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)),
                           classification(net));
    made.before_step = [net](int step) {
      for (auto& parameter : net->parameters()) {
        if (parameter.size(0) == 256) parameter.set_requires_grad(step < 3 || step > 5);
      }
    };
    return made;
  };
  EXPECT_TRUE(
      same_bits(make, wide_batch, Variant().steps(9).looks_every(4).workers({1, 1}), kSpread));
}

// Steps that read values back, and steps that run plainly, have whole parameters.
TEST(Spread, GoesWithStepsThatRunPlainly) {
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
    EXPECT_TRUE(same_bits(make, batch, variant, kSpread)) << replayed;
  }
}

TEST(Spread, LeavesSparseGradientsWhole) {
  EXPECT_TRUE(parity(models::program_named("bag of words"),
                     models::batches_named("bag of words", 4),
                     within(1e-5, "the order of a sparse sum is its own"),
                     zero(Variant().steps(3).workers({1, 1}), kSpread)));
}

// Parameters of stages have their own workers; what is tied is whole on all that have it.
TEST(Spread, GoesWithReplicasOfPipelines) {
  for (const std::string& name : staged_model_names()) {
    SCOPED_TRACE(name);
    if (name == "gradient penalty" || name == "noise") continue;
    const StagedModel& model = staged_model(name);
    EXPECT_TRUE(parity(model.make, model.batch, kRounding,
                       zero(Variant()
                                .steps(4)
                                .looks_every(4)
                                .stages(model.stages)
                                .workers({model.stages, model.stages})
                                .micro_batches(2),
                            kSpread)));
  }
}

// Layers that are large enough to be cut, in two stages.
MakeProgram wide_stages() {
  return [] {
    auto first = std::make_shared<models::Mlp>(256, 256, 2, 256);
    auto last = std::make_shared<models::Mlp>(256, 256, 2, 7);
    auto net = std::make_shared<torch::nn::Module>();
    net->register_module("first", first);
    net->register_module("last", last);
    return program(net, sgd(*net, 0.1, 0.9), [first, last](const Batch& batch) {
      torch::Tensor between;
      {
        const epl::With scope(epl::replicate(1));
        between = first->forward(batch[0]);
      }
      const epl::With scope(epl::replicate(1));
      return cross_entropy(last->forward(between), batch[1]);
    });
  };
}

TEST(Spread, GoesWithWideStages) {
  const Variant stages = Variant().steps(6).looks_every(3).stages(2).micro_batches(2);
  EXPECT_TRUE(
      parity(wide_stages(), wide_batch, kRounding, zero(Variant(stages).workers({2, 2}), kSpread)));
  EXPECT_TRUE(parity(wide_stages(), wide_batch, kRounding,
                     zero(Variant(stages).workers({1, 1, 1, 1}), kSpread)));
  EXPECT_TRUE(
      parity(wide_stages(), wide_batch, kRounding,
             zero(Variant(stages).workers({1, 1, 1, 1}).with("pipeline.gather_parameters", false),
                  kSpread)));
}

TEST(Spread, GoesWithReplicasOfSplitOperators) {
  for (const char* name : {"mlp", "gpt", "tied", "mixture top 2"}) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(
        trains_split(split_models().at(name), 2,
                     zero(Variant().steps(3).looks_every(3).stages(2).workers({2, 2}), kSpread)));
  }
}

// Two networks with two trainers, each of which reads the parameters of the other: what one spreads
// the other has whole.
TEST(Spread, GoesWithTrainersThatReadEachOthersParameters) {
  const auto make = [] {
    auto maker = std::make_shared<models::Mlp>(256, 256, 2, 256);
    auto critic = std::make_shared<models::Mlp>(256, 256, 2, 1);
    const auto sgd_of = [](const auto& net) {
      return std::make_shared<torch::optim::SGD>(net->parameters(), 0.01);
    };
    Program made;
    made.turns.push_back(
        {{{"critic", critic}}, {sgd_of(critic)}, [maker, critic](const Batch& batch) {
           const auto made = maker->forward(batch[0]).detach();
           return (critic->forward(made) - critic->forward(batch[0])).mean();
         }});
    made.turns.push_back({{{"maker", maker}}, {sgd_of(maker)}, [maker, critic](const Batch& batch) {
                            return -critic->forward(maker->forward(batch[0])).mean();
                          }});
    return made;
  };
  EXPECT_TRUE(
      same_bits(make, wide_batch, Variant().steps(6).looks_every(3).workers({1, 1}), kSpread));
}

// A step that has to run plainly, since a number is not as recorded, while another trainer's
// parameters are spread that it does not read.
TEST(Spread, GoesWithATrainerWhoseStepsBecomePlain) {
  const auto make = [] {
    auto wide = wide_net();
    auto moody = std::make_shared<models::Mlp>(256, 256, 2, 1);
    const auto sgd_of = [](const auto& net) {
      return std::make_shared<torch::optim::SGD>(net->parameters(), 0.01);
    };
    Program made;
    made.turns.push_back({{{"wide", wide}}, {sgd_of(wide)}, classification(wide)});
    made.turns.push_back({{{"moody", moody}}, {sgd_of(moody)}, [moody](const Batch& batch) {
                            const torch::Tensor out = moody->forward(batch[0]).square().mean();
                            return batch[0][0][0].item<float>() > 0 ? out : 2 * out;
                          }});
    return made;
  };
  EXPECT_TRUE(same_bits(make, wide_batch, Variant().steps(8).workers({1, 1}), kSpread));
}

}  // namespace
}  // namespace epl::parity

// Gradients that do not stay to the end of the step (zero.level = "v1", optimizer.update_early):
// the parameters are those of data parallelism, bit by bit where a step has one micro batch, and
// those of the plain loop.
#include <gmock/gmock.h>

#include "model/test_optimizers.h"
#include "tests/models/programs.h"
#include "tests/parity/pipeline_models.h"
#include "tests/parity/split_models.h"
#include "tests/parity/zero_programs.h"

namespace epl::parity {
namespace {

Variant v1(Variant variant) { return zero(std::move(variant), "v1"); }
Variant early(Variant variant) { return variant.with("optimizer.update_early", true); }

// One training on each worker, with and without the settings of `other`.
testing::AssertionResult same_as(const MakeProgram& make, const MakeBatch& batch, Variant usual,
                                 Variant other, const Exactness& exactness = bit_equal()) {
  usual.without_states();
  other.without_states();
  const std::vector<Trace> there = train_on_workers(make, batch, usual);
  const std::vector<Trace> here = train_on_workers(make, batch, other);
  for (size_t worker = 0; worker < there.size(); ++worker) {
    testing::AssertionResult equal = compare(there[worker], here[worker], exactness, usual);
    if (!equal) return equal << " on worker " << worker;
  }
  return testing::AssertionSuccess();
}

const std::vector<std::vector<int>>& layouts() {
  static const std::vector<std::vector<int>> all = {{1, 1}, {1, 1, 1}, {2, 2}, {4, 2}, {2}, {3}};
  return all;
}

std::string layout_name(const testing::TestParamInfo<std::vector<int>>& info) {
  std::string name = "Devices";
  for (int devices : info.param) name += "_" + std::to_string(devices);
  return name;
}

class SummedGradients : public testing::TestWithParam<std::vector<int>> {
 protected:
  static Variant layout() { return Variant().steps(4).workers(GetParam()); }
};

TEST_P(SummedGradients, HaveTheBitsOfDataParallelism) {
  EXPECT_TRUE(same_as(wide, wide_batch, layout(), v1(layout())));
}

// Each micro batch is summed over workers, and then the sums: another order.
TEST_P(SummedGradients, OfMicroBatchesAreThoseOfDataParallelism) {
  const Variant two = layout().micro_batches(2);
  EXPECT_TRUE(same_as(wide, wide_batch, two, v1(two), kRounding));
}

TEST_P(SummedGradients, TrainAsThePlainLoop) {
  const auto make = [] {
    auto net = wide_net();
    return program(net, sgd(*net, 0.1, 0.9), classification(net));
  };
  EXPECT_TRUE(parity(make, wide_batch, kRounding, v1(layout())));
  EXPECT_TRUE(parity(make, wide_batch, kRounding, v1(layout().micro_batches(2))));
}

INSTANTIATE_TEST_SUITE_P(Layouts, SummedGradients, testing::ValuesIn(layouts()), layout_name);

class SummedGradientsOfModels : public testing::TestWithParam<std::string> {};

TEST_P(SummedGradientsOfModels, TrainOnTwoPlusOneDevices) {
  EXPECT_TRUE(parity(models::program_named(GetParam()), models::batches_named(GetParam(), 6),
                     within(1e-4, "sums over devices in another order"),
                     v1(Variant().steps(3).workers({2, 1}).micro_batches(2))));
}

INSTANTIATE_TEST_SUITE_P(All, SummedGradientsOfModels, testing::ValuesIn(models::names_with_rows()),
                         models::test_name);

TEST(SummedGradients, GoWithEveryOptionOfCommunication) {
  const Variant two = Variant().steps(3).workers({2, 1});
  for (const Variant& each :
       {Variant(two).with("communication.max_splits", 1),
        Variant(two).with("communication.max_splits", 100),
        Variant(two).with("communication.num_communicators", 3), Variant(two).sum(),
        Variant(two).apply_groups(3), Variant(two).with("communication.fp16", true),
        Variant().steps(3).workers({2, 2}).slices(2)}) {
    EXPECT_TRUE(same_as(wide, wide_batch, each, v1(each)));
  }
}

// One group a micro batch, which would be added while the one before is under way.
TEST(SummedGradients, OfOneGroupAreAddedOneAfterTheOther) {
  const Variant one = Variant()
                          .steps(3)
                          .workers({1, 1})
                          .micro_batches(4)
                          .with("communication.max_splits", 1)
                          .with("communication.num_communicators", 3);
  EXPECT_TRUE(same_as(wide, wide_batch, one, v1(one), kRounding));
}

TEST(SummedGradients, StayWhereEachReplicaClipsItsOwn) {
  const Variant clips = Variant().steps(3).workers({2, 1}).clip_norm(0.1);
  EXPECT_TRUE(same_as(wide, wide_batch, clips, v1(clips)));
}

TEST(SummedGradients, AreClippedOnceTheyAreReduced) {
  for (const std::vector<int>& devices : {std::vector<int>{2, 1}, std::vector<int>{2}}) {
    const Variant two = Variant().steps(3).workers(devices).clip_after();
    EXPECT_TRUE(parity(wide, wide_batch, kRounding, v1(Variant(two).clip_norm(0.1))));
    EXPECT_TRUE(parity(wide, wide_batch, kRounding, v1(Variant(two).clip_value(0.003))));
  }
}

TEST(SummedGradients, AreVerifiedBesideThePlainProgram) {
  for (const std::vector<int>& devices : {std::vector<int>{1, 1}, std::vector<int>{2}}) {
    EXPECT_TRUE(parity(wide, wide_batch, kRounding,
                       v1(Variant().steps(4).workers(devices).with("debug.verify_steps", 2))));
  }
}

TEST(SummedGradients, GoWithRecomputationThatIsChecked) {
  const Variant checked = Variant()
                              .steps(3)
                              .workers({1, 1})
                              .with("gradient_checkpoint.type", "auto")
                              .with("gradient_checkpoint.check_gradients", true);
  EXPECT_TRUE(same_as(wide, wide_batch, checked, v1(checked)));
}

MakeBatch batches_of_changing_rows() {
  return [](int step) {
    const int64_t rows = step % 3 == 0 ? 24 : step % 3 == 1 ? 12 : 36;
    return Batch{torch::randn({rows, 256}), classes(7, {rows})};
  };
}

TEST(SummedGradients, GoOnWithBatchesOfOtherShapes) {
  const Variant two = Variant().steps(7).workers({1, 1});
  EXPECT_TRUE(same_as(wide, batches_of_changing_rows(), two, v1(two)));
}

Program frozen_in_mid_training() {
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
}

TEST(SummedGradients, GoOnWithLayersThatAreFrozenInMidTraining) {
  const Variant two = Variant().steps(6).workers({1, 1});
  EXPECT_TRUE(same_as(frozen_in_mid_training, wide_batch, two, v1(two)));
}

TEST(SummedGradients, LeaveSparseOnesWhole) {
  EXPECT_TRUE(parity(models::program_named("bag of words"),
                     models::batches_named("bag of words", 4),
                     within(1e-5, "the order of a sparse sum is its own"),
                     v1(Variant().steps(3).workers({1, 1}))));
}

TEST(SummedGradients, OfAnOptimizerOfTheUsersOwnStay) {
  const auto make = [] {
    auto net = wide_net();
    return program(net, std::make_shared<Normed>(net->parameters()), classification(net));
  };
  const Variant two = Variant().steps(3).workers({2, 1});
  EXPECT_TRUE(same_as(make, wide_batch, two, v1(two)));
}

TEST(SummedGradients, GoWithReplicasOfPipelines) {
  for (const std::string& name : staged_model_names()) {
    SCOPED_TRACE(name);
    if (name == "gradient penalty" || name == "noise") continue;
    const StagedModel& model = staged_model(name);
    EXPECT_TRUE(parity(model.make, model.batch, kRounding,
                       v1(Variant()
                              .steps(3)
                              .stages(model.stages)
                              .workers({model.stages, model.stages})
                              .micro_batches(2))));
  }
}

TEST(SummedGradients, GoWithEverySchedule) {
  for (const char* schedule : {"PreferForward", "PreferBackwardOptimizer", "ZeroBubble"}) {
    SCOPED_TRACE(schedule);
    EXPECT_TRUE(parity(stack(2), rows(32), kRounding,
                       v1(Variant().steps(3).stages(2).workers({2, 2}).micro_batches(4).with(
                           "pipeline.strategy", schedule))));
  }
}

TEST(SummedGradients, GoWithReplicasOfSplitOperators) {
  for (const char* name : {"mlp", "gpt", "tied", "mixture top 2"}) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(
        trains_split(split_models().at(name), 2, v1(Variant().steps(3).stages(2).workers({2, 2}))));
  }
}

TEST(SummedGradients, GoWithMixedPrecision) {
  const Variant mixed = Variant().steps(3).workers({1, 1}).with("amp.level", "O1");
  EXPECT_TRUE(same_as(wide, wide_batch, mixed, v1(mixed)));
}

// A worker keeps its half of the sums, and a few groups that are on their way; the account agrees.
TEST(SummedGradients, TakeTheMemoryOfTheirShare) {
  for (const std::vector<int>& devices : {std::vector<int>{1, 1}, std::vector<int>{2}}) {
    run_on_workers(devices, [&](int worker) {
      init(Config{{"zero.level", "v1"}});
      torch::manual_seed(3);
      auto net = std::make_shared<models::Mlp>(1024, 1024, 8, 16);
      torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01));
      Trainer trainer(net, optimizer, classification(net));
      const Batch batch = {torch::randn({16, 1024}), classes(16, {16})};
      for (int step = 0; step < 4; ++step) trainer.step(batch);
      int64_t bytes = 0;
      for (const auto& parameter : net->parameters()) bytes += parameter.nbytes();
      const MemoryReport report = trainer.memory();
      int64_t held = 0;
      for (const auto& device : report.workers.at(static_cast<size_t>(worker)).devices) {
        held += device.bytes[MemoryKind::kGradients];
        EXPECT_NEAR(static_cast<double>(device.bytes.total()),
                    static_cast<double>(device.measured.value()),
                    std::max(0.01 * static_cast<double>(device.bytes.total()), 300e3))
            << report.str();
      }
      const double usual = static_cast<double>(bytes) * devices[0];
      // Two layers of eight are on their way.
      EXPECT_LT(static_cast<double>(held), 0.80 * usual) << report.str();
      EXPECT_THAT(trainer.plan(), testing::HasSubstr("until summed"));
    });
  }
}

// --- optimizer.update_early
// -----------------------------------------------------------------------

class EarlyUpdates : public testing::TestWithParam<std::vector<int>> {
 protected:
  static Variant layout() { return Variant().steps(4).workers(GetParam()); }
};

TEST_P(EarlyUpdates, HaveTheBitsOfThoseAtTheEnd) {
  EXPECT_TRUE(same_as(wide, wide_batch, layout(), early(layout())));
}

TEST_P(EarlyUpdates, GoWithZero) {
  if (GetParam().size() == 1) GTEST_SKIP() << "one worker: see HaveTheBitsOfThoseAtTheEnd";
  for (const char* level : {"v0", "v1"}) {
    EXPECT_TRUE(same_as(wide, wide_batch, layout(), zero(early(layout()), level))) << level;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, EarlyUpdates,
                         testing::Values(std::vector<int>{1}, std::vector<int>{2},
                                         std::vector<int>{1, 1}, std::vector<int>{2, 1}),
                         layout_name);

class EarlyUpdatesOfModels : public testing::TestWithParam<std::string> {};

TEST_P(EarlyUpdatesOfModels, TrainOnOneDevice) {
  const Variant one = Variant().steps(3);
  EXPECT_TRUE(compare(train_on_devices(models::program_named(GetParam()),
                                       models::batches_named(GetParam(), 6), one),
                      train_on_devices(models::program_named(GetParam()),
                                       models::batches_named(GetParam(), 6), early(one)),
                      bit_equal(), one));
}

TEST_P(EarlyUpdatesOfModels, TrainOnTwoDevices) {
  EXPECT_TRUE(parity(models::program_named(GetParam()), models::batches_named(GetParam(), 6),
                     within(1e-4, "sums over devices in another order"),
                     early(Variant().steps(3).devices(2))));
}

INSTANTIATE_TEST_SUITE_P(All, EarlyUpdatesOfModels, testing::ValuesIn(models::names_with_rows()),
                         models::test_name);

TEST(EarlyUpdates, GoOnWithBatchesOfOtherShapes) {
  const Variant one = Variant().steps(7);
  EXPECT_TRUE(same_as(wide, batches_of_changing_rows(), one, early(one)));
}

// The momentum of a layer that is frozen moves it at the end: the step still reads it.
TEST(EarlyUpdates, GoOnWithLayersThatAreFrozenInMidTraining) {
  for (const std::vector<int>& devices : {std::vector<int>{1}, std::vector<int>{1, 1}}) {
    const Variant variant = Variant().steps(6).workers(devices);
    EXPECT_TRUE(same_as(frozen_in_mid_training, wide_batch, variant, early(variant)));
  }
}

TEST(EarlyUpdates, OfAnOptimizerOfTheUsersOwnComeAtTheEnd) {
  const auto make = [] {
    auto net = wide_net();
    return program(net, std::make_shared<OwnAdam>(net->parameters()), classification(net));
  };
  const Variant one = Variant().steps(3);
  EXPECT_TRUE(same_as(make, wide_batch, one, early(one)));
}

TEST(EarlyUpdates, ComeAtTheEndWithSeveralMicroBatches) {
  const Variant two = Variant().steps(3).micro_batches(2);
  EXPECT_TRUE(same_as(wide, wide_batch, two, early(two)));
}

// All of the devices read what is not cut, and one of them has its gradient.
TEST(EarlyUpdates, ComeAtTheEndWhereOperatorsAreCut) {
  for (const char* name : {"mlp", "gpt", "tied"}) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(
        trains_split(split_models().at(name), 2, early(Variant().steps(3).stages(2).workers({2}))));
  }
}

// A layer whose memory becomes that of another one in mid-training is not updated before its other
// name is read.
TEST(EarlyUpdates, AreRefusedWhereMemoryComesToBeShared) {
  init(Config{{"optimizer.update_early", true}});
  auto net = wide_net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, classification(net));
  for (int step = 0; step < 3; ++step) trainer.step(wide_batch(step));
  std::vector<torch::Tensor> parameters = net->parameters();
  for (torch::Tensor& other : parameters) {
    if (&other == &parameters[0] || other.sizes() != parameters[0].sizes()) continue;
    other.set_data(parameters[0].detach());
    break;
  }
  for (int step = 3; step < 5; ++step) {
    std::string refused = "nothing";
    try {
      trainer.step(wide_batch(step));
    } catch (const Error& error) {
      refused = error.what();
    }
    EXPECT_THAT(refused, testing::HasSubstr("under another name")) << "step " << step;
  }
  // What lies in memory of its own again trains on.
  for (torch::Tensor& each : parameters) each.set_data(each.detach().clone());
  EXPECT_NO_THROW(trainer.step(wide_batch(5)));
}

// A metric that is a parameter, or a view of one, is read when all calls have run.
TEST(EarlyUpdates, LeaveMetricsAsTheyWere) {
  const auto weights_seen = [](bool early) {
    init(Config{{"optimizer.update_early", early}});
    torch::manual_seed(4);
    auto net = wide_net();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    const auto loss_of = classification(net);
    Trainer trainer(net, optimizer, [&](const Batch& batch) {
      StepOutput output = loss_of(batch);
      for (const auto& each : net->named_parameters()) {
        output.metrics[each.key()] = each.value().detach();
      }
      output.metrics["row"] = net->parameters()[0].detach()[1];
      return output;
    });
    std::vector<torch::Tensor> seen;
    for (int step = 0; step < 4; ++step) {
      torch::manual_seed(step);
      for (const auto& [name, value] : trainer.step(wide_batch(step)).metrics) {
        seen.push_back(value.clone());
      }
    }
    return seen;
  };
  const auto late = weights_seen(false);
  const auto early = weights_seen(true);
  ASSERT_EQ(late.size(), early.size());
  for (size_t i = 0; i < late.size(); ++i) EXPECT_TRUE(late[i].equal(early[i])) << i;
}

TEST(EarlyUpdates, GoWithRecomputation) {
  const Variant again = Variant().steps(3).with("gradient_checkpoint.type", "auto");
  EXPECT_TRUE(same_as(wide, wide_batch, again, early(again)));
}

// The gradients of eight layers take the memory of one or two.
TEST(EarlyUpdates, LeaveNoGradientsBehind) {
  init(Config{{"optimizer.update_early", true}});
  auto net = std::make_shared<models::Mlp>(1024, 1024, 8, 16);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.01));
  Trainer trainer(net, optimizer, classification(net));
  const Batch batch = {torch::randn({16, 1024}), classes(16, {16})};
  const MemoryReport report = trainer.forecast(batch);
  const int64_t layer = 1024 * 1024 * 4;
  EXPECT_LT(report.workers.at(0).devices.at(0).bytes.total(), 3 * layer) << report.str();
  for (int step = 0; step < 3; ++step) trainer.step(batch);
  EXPECT_THAT(trainer.plan(), testing::HasSubstr("update  early group"));
  EXPECT_LT(trainer.memory().workers.at(0).devices.at(0).measured.value(), 3 * layer);
}

// A view of a parameter that the program made: updated early, the rest of backward would read it.
TEST(EarlyUpdates, OfMemoryThatTheStepReadsUnderAnotherNameAreRefusedOrComeAtTheEnd) {
  const auto make = [] {
    auto net = wide_net();
    const torch::Tensor alias = net->parameters()[0].detach().view({-1});
    return program(net, sgd(*net, 0.1), [net, alias](const Batch& batch) {
      return cross_entropy(net->forward(batch[0] * alias.narrow(0, 0, 256).exp()), batch[1]);
    });
  };
  const Variant one = Variant().steps(3);
  try {
    EXPECT_TRUE(same_as(make, wide_batch, one, early(one)));
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("under another name"));
  }
}

TEST(EarlyUpdates, AreRefusedWhereGradientsAreClipped) {
  init(Config{{"optimizer.update_early", true}});
  auto net = wide_net();
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  TrainerOptions options;
  options.clip_grad_norm = 1;
  try {
    Trainer trainer(net, optimizer, classification(net), options);
    ADD_FAILURE() << "clips and updates early";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("before all of them are there"));
  }
}

}  // namespace
}  // namespace epl::parity

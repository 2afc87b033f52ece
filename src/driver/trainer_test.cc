// What the trainer does beside its steps: losses that are not finite, memory that is too small,
// evaluation, threads.
#include <iostream>
#include <thread>

#include "config/libtorch.h"
#include "driver/test_trainer.h"
#include "runtime/device_memory.h"

namespace epl {
namespace {

using torch::Tensor;

// --- losses that are not finite -----------------------------------------------------------------

struct NanLoss : TrainerFixture {
  static Batch poisoned() {
    Batch batch = rows(4);
    batch[1][2][1] = NAN;
    return batch;
  }
  void use_policy(const std::string& policy) { init(Config{{"debug.nan_loss", policy}}); }

  // Parameters and optimizer state: the running statistics have seen the rows, which are good.
  static std::vector<Tensor> trained(const SmallTask& task) {
    std::vector<Tensor> all = task.tensors();
    all.erase(all.begin() + 6, all.begin() + 9);
    return all;
  }
};

TEST_F(NanLoss, IsAnErrorThatLeavesTheParameters) {
  SmallTask task;
  Trainer trainer = task.trainer();
  trainer.step(rows(4));
  const auto before = trained(task);
  EXPECT_EQ(error_of([&] { trainer.step(poisoned()); }),
            "epl: the loss of step 1 is nan; the parameters are as before the step\n"
            "  asked by: debug.nan_loss = \"error\" (default)\n"
            "  try:      a smaller learning rate, TrainerOptions::clip_grad_norm, or "
            "debug.nan_loss = \"skip\" or \"ignore\"");
  EXPECT_TRUE(same(trained(task), before));
  EXPECT_FALSE(trainer.step(rows(4)).skipped);
  EXPECT_FALSE(same(trained(task), before));
}

TEST_F(NanLoss, InTheFirstStepIsAnErrorToo) {
  SmallTask task;
  Trainer trainer = task.trainer();
  const auto before = trained(task);
  EXPECT_NE(error_of([&] { trainer.step(poisoned()); }), "no error");
  EXPECT_TRUE(same(trained(task), before));
  EXPECT_TRUE(std::isfinite(trainer.step(rows(4)).loss));
}

TEST_F(NanLoss, IsSkippedIfAskedFor) {
  use_policy("skip");
  SmallTask task;
  Trainer trainer = task.trainer();
  trainer.step(rows(4));
  const auto before = trained(task);
  const StepResult result = trainer.step(poisoned());
  EXPECT_TRUE(result.skipped);
  EXPECT_TRUE(std::isnan(result.loss));
  EXPECT_TRUE(same(trained(task), before));
  EXPECT_FALSE(trainer.step(rows(4)).skipped);
  EXPECT_FALSE(same(trained(task), before));
}

TEST_F(NanLoss, OfOneMicroBatchSkipsTheStep) {
  init(Config{{"debug.nan_loss", "skip"}, {"pipeline.num_micro_batch", 2}});
  SmallTask task;
  Trainer trainer = task.trainer();
  const auto before = trained(task);
  EXPECT_TRUE(trainer.step(poisoned()).skipped);
  EXPECT_TRUE(same(trained(task), before));
  EXPECT_FALSE(trainer.step(rows(4)).skipped);
}

TEST_F(NanLoss, IsWhatThePlainLoopMakesOfItIfIgnored) {
  use_policy("ignore");
  SmallTask task;
  Trainer trainer = task.trainer();
  const StepResult result = trainer.step(poisoned());
  EXPECT_FALSE(result.skipped);
  EXPECT_TRUE(std::isnan(result.loss));
  EXPECT_TRUE(task.net->head->bias.isnan().any().item<bool>());
}

TEST_F(NanLoss, ThatTheStepReadsBackIsAnErrorAllTheSame) {
  SmallTask task;
  double seen = 0;
  Trainer trainer(task.net, *task.optimizer, [&](const Batch& batch) {
    const Tensor loss = task.step()(batch).loss;
    seen = loss.item<double>();
    return loss;
  });
  trainer.step(rows(4));
  EXPECT_EQ(error_of([&] { trainer.step(poisoned()); }).substr(0, 31),
            "epl: the loss of step 1 is nan;");
  EXPECT_TRUE(std::isnan(seen));
}

TEST_F(NanLoss, OfInfiniteSizeCountsAsOne) {
  SmallTask task;
  Trainer trainer = task.trainer();
  Batch batch = rows(4);
  batch[1][0][0] = INFINITY;
  EXPECT_EQ(error_of([&] { trainer.step(batch); }).substr(0, 31),
            "epl: the loss of step 0 is inf;");
}

// --- memory that is too small -------------------------------------------------------------------

struct OutOfMemory : TrainerFixture {
  static constexpr int64_t kMegabyte = 1 << 20;
  static constexpr int64_t kMany = 100000;  // rows whose activations take some megabytes
};

TEST_F(OutOfMemory, WhileRecordingIsAnErrorAndASmallerBatchWorks) {
  DeviceMemory memory;
  const DeviceMemory::Use use(memory);
  SmallTask plain;
  for (int i = 0; i < 3; ++i) plain.train_plainly(rows(4));
  SmallTask task;
  Trainer trainer = task.trainer();
  const Batch large = rows(kMany);
  memory.set_limit(memory.account().in_use + kMegabyte);
  for (int i = 0; i < 2; ++i) trainer.step(rows(4));  // recorded, and looked at again
  const auto before = task.tensors();
  const std::string message = error_of([&] { trainer.step(large); });
  EXPECT_EQ(message.substr(0, 35), "epl: out of memory on this device: ") << message;
  EXPECT_NE(message.find("\n  try:      smaller micro batches, or a higher limit"),
            std::string::npos)
      << message;
  EXPECT_TRUE(same(task.tensors(), before));
  trainer.step(rows(4));
  EXPECT_TRUE(close(task.tensors(), plain.tensors()));
}

// Recording takes more than the plan does, so the limit must fall in between for the plan to be
// what fails: when the borrowed memory of a constant is given back.
TEST_F(OutOfMemory, ForThePlanIsAnErrorAndASmallerBatchWorks) {
  DeviceMemory memory;
  const DeviceMemory::Use use(memory);
  SmallTask task;
  const Batch large = rows(kMany);
  const int64_t in_use = memory.account().in_use;
  float one = 1;
  bool failed = false;
  Trainer trainer(task.net, *task.optimizer, [&](const Batch& batch) {
    const bool fails = batch[0].size(0) == kMany && !failed;
    failed = failed || fails;
    const Tensor factor = torch::from_blob(&one, {}, [&memory, in_use, fails](void*) {
      if (fails) memory.set_limit(in_use + kMegabyte);
    });
    return task.step()(batch).loss * factor;
  });
  for (int i = 0; i < 2; ++i) trainer.step(rows(4));  // recorded, and looked at again
  const auto before = task.tensors();
  const std::string message = error_of([&] { trainer.step(large); });
  EXPECT_EQ(message.substr(0, 35), "epl: out of memory on this device: ") << message;
  EXPECT_TRUE(same(task.tensors(), before));
  EXPECT_EQ(error_of([&] { trainer.step(rows(4)); }), "no error");
  EXPECT_EQ(error_of([&] { trainer.step(rows(6)); }), "no error");
  memory.set_limit(0);
  EXPECT_EQ(error_of([&] { trainer.step(large); }), "no error");
}

// --- parameters that change their shape ----------------------------------------------------------

using ChangedParameter = TrainerFixture;

TEST_F(ChangedParameter, OfAnotherShapeIsRecordedAgain) {
  for (const int64_t size : {2, 5}) {
    auto weight = torch::ones({3}).requires_grad_();
    torch::optim::SGD optimizer({weight}, 0.5);
    Trainer trainer({}, {optimizer}, [&](const Batch& batch) { return (weight * batch[0]).sum(); });
    trainer.step({torch::ones({1})});
    weight.set_data(torch::ones({size}));
    EXPECT_EQ(trainer.step({torch::ones({1})}).loss, static_cast<double>(size));
    EXPECT_TRUE(weight.equal(torch::full({size}, 0.5f))) << weight;
  }
}

TEST_F(ChangedParameter, OfAnotherTypeIsRecordedAgainWhereItsGradientsAreGone) {
  auto weight = torch::ones({3}).requires_grad_();
  torch::optim::SGD optimizer({weight}, 0.5);
  Trainer trainer({}, {optimizer}, [&](const Batch& batch) { return (weight * batch[0]).sum(); });
  trainer.step({torch::ones({1})});
  weight.set_data(torch::ones({3}, torch::kDouble));
  if (kZeroGradLeavesZeros) {  // in float, to which autograd goes on adding
    // And again: a step that went on after the first refusal trained nothing, without a word.
    for (int i = 0; i < 4; ++i) EXPECT_THROW(trainer.step({torch::ones({1})}), Error) << i;
    return;
  }
  EXPECT_EQ(trainer.step({torch::ones({1})}).loss, 3);
  EXPECT_TRUE(weight.equal(torch::full({3}, 0.5, torch::kDouble))) << weight;
}

// --- evaluation ---------------------------------------------------------------------------------

struct Evaluation : TrainerFixture {
  SmallTask task;
  Trainer trainer = task.trainer();
};

TEST_F(Evaluation, RunsInEvalModeWithoutGradientsAndRestoresTheModes) {
  task.net->norm->eval();
  task.net->head->eval();
  const auto before = task.tensors();
  bool ran = false;
  const StepOutput output = trainer.evaluate(
      [&](const Batch& batch) {
        ran = true;
        for (const auto& module : task.net->modules()) EXPECT_FALSE(module->is_training());
        EXPECT_FALSE(torch::GradMode::is_enabled());
        const Tensor y = task.net->forward(batch[0]);
        return StepOutput(y.sum(), {{"y", y}});
      },
      rows(3));
  EXPECT_TRUE(ran);
  EXPECT_FALSE(output.loss.requires_grad());
  EXPECT_EQ(output.metrics.at("y").sizes(), (std::vector<int64_t>{3, 2}));
  EXPECT_TRUE(task.net->is_training());
  EXPECT_TRUE(task.net->first->is_training());
  EXPECT_FALSE(task.net->norm->is_training());
  EXPECT_FALSE(task.net->head->is_training());
  EXPECT_TRUE(torch::GradMode::is_enabled());
  EXPECT_TRUE(same(task.tensors(), before));
}

TEST_F(Evaluation, KeepsTheModesOfATrainingPartBelowOneThatEvaluates) {
  torch::nn::Sequential inner(torch::nn::Linear(3, 3), torch::nn::Dropout(0.5));
  struct Outer : torch::nn::Module {
    explicit Outer(torch::nn::Sequential inner) { register_module("inner", std::move(inner)); }
  };
  auto outer = std::make_shared<Outer>(inner);
  outer->eval();
  inner[1]->train();
  Trainer trainer({{"outer", outer}, {"net", task.net}}, {*task.optimizer}, task.step());
  trainer.evaluate([&](const Batch&) { return Tensor(); }, {});
  EXPECT_FALSE(outer->is_training());
  EXPECT_FALSE(inner->is_training());
  EXPECT_FALSE(inner[0]->is_training());
  EXPECT_TRUE(inner[1]->is_training());
  EXPECT_TRUE(task.net->is_training());
}

TEST_F(Evaluation, RestoresTheModesAfterAnException) {
  EXPECT_THROW(
      trainer.evaluate([](const Batch&) -> StepOutput { throw std::runtime_error("no"); }, rows(3)),
      std::runtime_error);
  EXPECT_TRUE(task.net->is_training());
  EXPECT_TRUE(torch::GradMode::is_enabled());
  EXPECT_EQ(error_of([&] { trainer.step(rows(4)); }), "no error");
}

TEST_F(Evaluation, MayHaveScopesAndReadBack) {
  const StepOutput output = trainer.evaluate(
      [&](const Batch& batch) {
        set_default_strategy(replicate(4));
        const With scope(split(8, "head"));
        const Tensor y = task.net->forward(batch[0]);
        add_to_collection(collections::kGlobalSum, y);
        return y.sum().item<float>() > 1e9 ? y.sum() : y.mean();
      },
      rows(3));
  EXPECT_TRUE(output.loss.defined());
}

TEST_F(Evaluation, BetweenStepsChangesNothing) {
  SmallTask plain;
  for (int i = 0; i < 3; ++i) {
    trainer.evaluate(task.step(), rows(5));
    trainer.step(rows(4));
    plain.train_plainly(rows(4));
  }
  EXPECT_TRUE(close(task.tensors(), plain.tensors()));
}

// --- threads ------------------------------------------------------------------------------------

std::vector<Tensor> train_alone(uint64_t seed) {
  SmallTask task(seed);
  Trainer trainer = task.trainer();
  for (int i = 0; i < 20; ++i) trainer.step(rows(4 + i % 3));
  return task.tensors();
}

TEST_F(Evaluation, OfOneTrainerWhileAnotherTrainsOnAnotherThread) {
  const auto expected = train_alone(5);
  SmallTask other(5);
  Trainer training = other.trainer();
  std::thread thread([&] {
    for (int i = 0; i < 20; ++i) training.step(rows(4 + i % 3));
  });
  for (int i = 0; i < 20; ++i) trainer.evaluate(task.step(), rows(4));
  thread.join();
  EXPECT_TRUE(same(other.tensors(), expected));
}

using Threads = TrainerFixture;

TEST_F(Threads, WithATrainerEachGiveWhatOneThreadGives) {
  const std::vector<uint64_t> seeds{1, 2, 3};
  std::vector<std::vector<Tensor>> expected;
  for (const uint64_t seed : seeds) expected.push_back(train_alone(seed));
  std::vector<SmallTask> tasks;
  std::vector<Trainer> trainers;
  for (const uint64_t seed : seeds) tasks.emplace_back(seed);
  for (SmallTask& task : tasks) trainers.push_back(task.trainer());
  std::vector<std::thread> threads;
  for (Trainer& trainer : trainers) {
    threads.emplace_back([&trainer] {
      for (int i = 0; i < 20; ++i) trainer.step(rows(4 + i % 3));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < seeds.size(); ++i) EXPECT_TRUE(same(tasks[i].tensors(), expected[i])) << i;
}

TEST_F(Threads, MayTakeTurnsWithOneTrainer) {
  const auto expected = train_alone(4);
  SmallTask task(4);
  Trainer trainer = task.trainer();
  for (int i = 0; i < 20; ++i) {
    std::thread([&] { trainer.step(rows(4 + i % 3)); }).join();
  }
  EXPECT_TRUE(same(task.tensors(), expected));
}

}  // namespace
}  // namespace epl

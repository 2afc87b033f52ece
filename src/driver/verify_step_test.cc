// debug.verify_steps: the plain program beside the first steps.
#include <iostream>
#include <regex>
#include <sstream>

#include "driver/test_trainer.h"

namespace epl {
namespace {

using torch::Tensor;

struct VerifySteps : TrainerFixture {
  VerifySteps() { std::clog.rdbuf(log.rdbuf()); }
  ~VerifySteps() override { std::clog.rdbuf(before); }

  static void verify(int64_t steps, std::vector<Setting> more = {}) {
    more.push_back({"debug.verify_steps", steps});
    init(Config(more));
  }

  // How many lines the log has that say that a step was verified.
  int verified() const {
    const std::string text = log.str();
    const std::regex line(
        "epl: verify step \\d+: loss [-+.e\\d]+ \\(plain [-+.e\\d]+\\), worst parameter `[\\w.]+` "
        "off by [-+.e\\d]+, worst gradient `[\\w.]+` off by [-+.e\\d]+\n");
    return static_cast<int>(
        std::distance(std::sregex_iterator(text.begin(), text.end(), line), {}));
  }

  std::ostringstream log;
  std::streambuf* const before = std::clog.rdbuf();
};

// weight * x, whose numbers are all exact.
struct Factor : torch::nn::Module {
  Factor() : weight(register_parameter("weight", torch::tensor({2.0f}))) {}
  Tensor weight;
};

TEST_F(VerifySteps, SaysHowFarApartTheTwoAre) {
  verify(2);
  auto net = std::make_shared<Factor>();
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  Trainer trainer(net, optimizer,
                  [&](const Batch& batch) { return (net->weight * batch[0]).sum(); });
  for (int i = 0; i < 3; ++i) trainer.step({torch::tensor({1.0f})});
  EXPECT_EQ(log.str(),
            "epl: verify step 0: loss 2 (plain 2), worst parameter `weight` off by 0, worst "
            "gradient `weight` off by 0\n"
            "epl: verify step 1: loss 1.5 (plain 1.5), worst parameter `weight` off by 0, worst "
            "gradient `weight` off by 0\n");
}

TEST_F(VerifySteps, RefusesAStepThatDependsOnACounter) {
  verify(1);
  auto net = std::make_shared<Factor>();
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  int calls = 0;
  Trainer trainer(net, optimizer, [&](const Batch& batch) {
    return (net->weight * batch[0] * std::exp2(calls++)).sum();
  });
  EXPECT_EQ(error_of([&] { trainer.step({torch::tensor({1.0f})}); }),
            "epl: step 0 is not what the plain program gives: `weight` has 1.5 where the plain "
            "program has 1; verify step 0: loss 2 (plain 4), worst parameter `weight` off by "
            "0.5, worst gradient `weight` off by 0.5\n"
            "  asked by: " +
                Env::get().config.asked_by("debug.verify_steps") +
                "\n"
                "  try:      what the step reads besides its batch: C++ variables that change, "
                "memory written through pointers, random numbers");
}

TEST_F(VerifySteps, AllowsWhatTheToleranceAllows) {
  verify(1, {{"debug.verify_tolerance", 0.01}});
  auto net = std::make_shared<Factor>();
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  double drift = 1;
  Trainer trainer(net, optimizer, [&](const Batch& batch) {
    return (net->weight * batch[0] * (drift += 1e-4)).sum();
  });
  EXPECT_EQ(error_of([&] { trainer.step({torch::tensor({1.0f})}); }), "no error");
}

// Trains alike with and without verification, random numbers and all.
void expect_no_trace(const std::function<std::vector<Tensor>()>& train,
                     std::vector<Setting> more = {}) {
  init(Config(more));
  torch::manual_seed(3);
  const std::vector<Tensor> without = train();
  VerifySteps::verify(3, more);
  torch::manual_seed(3);
  EXPECT_TRUE(same(train(), without));
}

std::vector<Tensor> train_with_dropout(TrainerOptions options = {}) {
  Task task;
  task.net->drop->options.p(0.5);
  Trainer trainer = task.trainer(options);
  for (int i = 0; i < 5; ++i) trainer.step(rows(8, i));
  std::vector<Tensor> all = task.tensors();
  all.push_back(torch::rand({3}));
  return all;
}

TEST_F(VerifySteps, LeavesNoTrace) {
  expect_no_trace([] { return train_with_dropout(); });
  EXPECT_EQ(verified(), 3) << log.str();
}

TEST_F(VerifySteps, LeavesNoTraceWithMicroBatches) {
  expect_no_trace([] { return train_with_dropout(); }, {{"pipeline.num_micro_batch", 2}});
  EXPECT_EQ(verified(), 3) << log.str();
}

TEST_F(VerifySteps, LeavesNoTraceWithSummedGradientsAndGroups) {
  expect_no_trace([] { return train_with_dropout(); },
                  {{"pipeline.num_micro_batch", 4},
                   {"communication.gradients_reduce_method", "sum"},
                   {"optimizer.num_apply_group", 2}});
  EXPECT_EQ(verified(), 3) << log.str();
}

TEST_F(VerifySteps, LeavesNoTraceWithClipping) {
  TrainerOptions options;
  options.clip_grad_norm = 0.1;
  options.clip_grad_value = 0.05;
  expect_no_trace([&] { return train_with_dropout(options); });
  EXPECT_EQ(verified(), 3) << log.str();
}

TEST_F(VerifySteps, LeavesNoTraceWithSeveralOptimizers) {
  expect_no_trace([] {
    Task task;
    torch::optim::SGD first(task.net->first->parameters(),
                            torch::optim::SGDOptions(0.1).momentum(0.9));
    torch::optim::RMSprop rest(task.net->head->parameters(), 0.01);
    Trainer trainer({{"net", task.net}}, {first, rest}, task.step());
    for (int i = 0; i < 5; ++i) trainer.step(rows(8, i));
    return task.tensors();
  });
  EXPECT_EQ(verified(), 3) << log.str();
}

TEST_F(VerifySteps, LeavesNoTraceInTheUsersGradients) {
  verify(2);
  Task task;
  for (Tensor& parameter : task.net->parameters()) {
    parameter.mutable_grad() = torch::full_like(parameter, 3);
  }
  Trainer trainer = task.trainer();
  trainer.step(rows(8));
  for (const Tensor& parameter : task.net->parameters()) {
    EXPECT_TRUE(parameter.grad().equal(torch::full_like(parameter, 3)));
  }
}

TEST_F(VerifySteps, LeavesNoTraceInTheBatchThatTheStepWrites) {
  expect_no_trace([] {
    Task task;
    Trainer trainer(task.net, *task.optimizer, [&](const Batch& batch) {
      Tensor x = batch[0];
      x.mul_(2);
      return task.step()({x, batch[1]});
    });
    Batch batch = rows(8);
    for (int i = 0; i < 3; ++i) trainer.step(batch);
    std::vector<Tensor> all = task.tensors();
    all.insert(all.end(), batch.begin(), batch.end());
    return all;
  });
  EXPECT_EQ(verified(), 3) << log.str();
}

TEST_F(VerifySteps, LeavesNoTraceInTensorsThatTheStepClosesOver) {
  expect_no_trace([] {
    Task task;
    Tensor counter = torch::ones({});
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
    Trainer trainer(task.net, *task.optimizer, [&](const Batch& batch) {
      counter.add_(1);
      return task.step()(batch).loss * counter * torch::rand({}, generator);
    });
    for (int i = 0; i < 5; ++i) trainer.step(rows(8));
    std::vector<Tensor> all = task.tensors();
    all.push_back(counter);
    all.push_back(generator.get_state());
    return all;
  });
  EXPECT_EQ(verified(), 3) << log.str();
}

TEST_F(VerifySteps, LeavesNoTraceWhereTheStepThrows) {
  verify(1);
  Task task;
  bool throws = true;
  Trainer trainer(task.net, *task.optimizer, [&](const Batch& batch) {
    const Tensor y = task.net->forward(batch[0]);
    if (throws) throw std::runtime_error("as told");
    return y.mean();
  });
  const auto before = task.tensors();
  EXPECT_THROW(trainer.step(rows(8)), std::runtime_error);
  EXPECT_TRUE(same(task.tensors(), before));
  throws = false;
  EXPECT_EQ(error_of([&] { trainer.step(rows(8)); }), "no error");
  EXPECT_EQ(verified(), 1) << log.str();
}

TEST_F(VerifySteps, SeesAStepThatReadsItsData) {
  expect_no_trace([] {
    Task task;
    Trainer trainer(task.net, *task.optimizer, [&](const Batch& batch) {
      const Tensor loss = task.step()(batch).loss;
      return batch[0].sum().gt(0).item<bool>() ? loss : loss * 2;
    });
    for (int i = 0; i < 5; ++i) trainer.step(rows(8, i));
    return task.tensors();
  });
  EXPECT_EQ(verified(), 3) << log.str();
}

}  // namespace
}  // namespace epl

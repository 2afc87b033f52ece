// debug.verify_steps: the plain program beside the first steps.
#include <gmock/gmock.h>

#include <iostream>
#include <map>
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
        "off by [-+.e\\d]+, worst gradient `[\\w.]+` off by [-+.e\\d]+(;.*)?\n");
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
  // Step 1 is looked at again: it is the plain program itself.
  for (int i = 0; i < 4; ++i) trainer.step({torch::tensor({1.0f})});
  EXPECT_EQ(log.str(),
            "epl: verify step 0: loss 2 (plain 2), worst parameter `weight` off by 0, worst "
            "gradient `weight` off by 0\n"
            "epl: verify step 2: loss 1 (plain 1), worst parameter `weight` off by 0, worst "
            "gradient `weight` off by 0\n");
}

// Their tensors are compared by name.
TEST_F(VerifySteps, TellsTwoModulesOfOneNameApart) {
  verify(2);
  const auto first = std::make_shared<Factor>();
  const auto second = std::make_shared<Factor>();
  torch::optim::SGD of_first(first->parameters(), 0.5);
  torch::optim::SGD of_second(second->parameters(), 0.25);
  Trainer trainer({{"net", first}, {"net", second}}, {of_first, of_second},
                  [&](const Batch& batch) {
                    return (first->weight * batch[0] + 2 * second->weight * batch[0]).sum();
                  });
  for (int i = 0; i < 3; ++i) trainer.step({torch::tensor({1.0f})});
  EXPECT_EQ(verified(), 2);
  EXPECT_EQ(first->weight.item<double>(), 2 - 3 * 0.5);
  EXPECT_EQ(second->weight.item<double>(), 2 - 3 * 0.25 * 2);
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
                "memory written through pointers, random numbers; docs/exactness.md");
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
  SmallTask task;
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
    SmallTask task;
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
  SmallTask task;
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
    SmallTask task;
    Trainer trainer(task.net, *task.optimizer, [&](const Batch& batch) {
      Tensor x = batch[0];
      x.mul_(2);
      return task.step()({x, batch[1]});
    });
    Batch batch;
    for (int i = 0; i < 4; ++i) trainer.step(batch = rows(8, i));
    std::vector<Tensor> all = task.tensors();
    all.insert(all.end(), batch.begin(), batch.end());
    return all;
  });
  EXPECT_EQ(verified(), 3) << log.str();
}

TEST_F(VerifySteps, LeavesNoTraceInTensorsThatTheStepClosesOver) {
  expect_no_trace([] {
    SmallTask task;
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
  SmallTask task;
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
    SmallTask task;
    Trainer trainer(task.net, *task.optimizer, [&](const Batch& batch) {
      const Tensor loss = task.step()(batch).loss;
      return batch[0].sum().gt(0).item<bool>() ? loss : loss * 2;
    });
    for (int i = 0; i < 9; ++i) trainer.step(rows(8, i));
    return task.tensors();
  });
  EXPECT_EQ(verified(), 3) << log.str();
}

// --- the reference is the undivided plain loop ---------------------------------------------------

Tensor centred(const Tensor& x) { return x - x.mean(0, true); }

struct Cut : VerifySteps {
  // What two steps on micro batches say, after two that are the plain program itself.
  static std::string error_of_steps(const std::function<Tensor(Factor&, const Batch&)>& loss,
                                    std::vector<Setting> more = {}, TrainerOptions options = {}) {
    more.push_back({"pipeline.num_micro_batch", 2});
    verify(2, more);
    auto net = std::make_shared<Factor>();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Trainer trainer(
        net, optimizer, [&](const Batch& batch) { return loss(*net, batch); }, options);
    return error_of([&] {
      for (int i = 0; i < 4; ++i) trainer.step({rows(8, i)[0]});
    });
  }
};

// Said "off by 0" when the plain step was cut into the same parts.
TEST_F(Cut, RowsThatLookAtEachOtherAreSeen) {
  EXPECT_THAT(error_of_steps([](Factor& net, const Batch& batch) {
                return (net.weight * centred(batch[0])).square().mean();
              }),
              testing::HasSubstr("step 2 is not what the plain program gives: `weight` has"));
}

TEST_F(Cut, ALossThatIsNoMeanIsSeen) {
  EXPECT_THAT(error_of_steps([](Factor& net, const Batch& batch) {
                return (net.weight * batch[0]).square().mean().sqrt();
              }),
              testing::HasSubstr("is not what the plain program gives"));
  EXPECT_THAT(error_of_steps([](Factor& net, const Batch& batch) {
                return (net.weight * batch[0]).square().sum();
              }),
              testing::HasSubstr("is not what the plain program gives"));
}

TEST_F(Cut, AMeanOverRowsIsTheUndividedOne) {
  EXPECT_EQ(error_of_steps([](Factor& net, const Batch& batch) {
              return (net.weight * batch[0]).square().mean();
            }),
            "no error");
  EXPECT_EQ(verified(), 2) << log.str();
  EXPECT_THAT(log.str(), testing::Not(testing::HasSubstr("was cut")));
}

// --- the exceptions of docs/exactness.md: the plain program is cut as well, and the log says why
// ---

const char* const kCut = "the plain program was cut into the same parts: ";

TEST_F(Cut, RandomNumbersAreAnException) {
  EXPECT_EQ(error_of_steps([](Factor& net, const Batch& batch) {
              return (net.weight * torch::dropout(batch[0], 0.5, true)).square().mean();
            }),
            "no error");
  EXPECT_THAT(log.str(),
              testing::HasSubstr(std::string(kCut) + "each part draws its own random numbers"));
}

TEST_F(Cut, BatchNormIsAnException) {
  EXPECT_EQ(
      error_of_steps([](Factor& net, const Batch& batch) {
        return (net.weight * torch::batch_norm(batch[0], {}, {}, {}, {}, true, 0.1, 1e-5, false))
            .exp()
            .mean();
      }),
      "no error");
  EXPECT_THAT(log.str(), testing::HasSubstr(std::string(kCut) +
                                            "batch norm takes its statistics from a part"));
}

TEST_F(Cut, StateIsAnException) {
  Tensor counter = torch::zeros({});
  EXPECT_EQ(error_of_steps([&](Factor& net, const Batch& batch) {
              counter.add_(1);
              return (net.weight * batch[0] * counter.clone()).square().mean();
            }),
            "no error");
  EXPECT_THAT(log.str(), testing::HasSubstr(std::string(kCut) + "the step writes `"));
}

TEST_F(Cut, SummedGradientsAreAnException) {
  EXPECT_EQ(
      error_of_steps(
          [](Factor& net, const Batch& batch) { return (net.weight * batch[0]).square().mean(); },
          {{"communication.gradients_reduce_method", "sum"}}),
      "no error");
  EXPECT_THAT(log.str(), testing::HasSubstr(std::string(kCut) +
                                            "communication.gradients_reduce_method = \"sum\""));
}

// --- what a recording cannot know ----------------------------------------------------------------

TEST_F(VerifySteps, NamesTheParameterWhereMemoryBehindFromBlobChanges) {
  verify(2);
  auto net = std::make_shared<Factor>();
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  std::vector<float> memory{1};
  Trainer trainer(net, optimizer, [&](const Batch& batch) {
    return (net->weight * batch[0] * torch::from_blob(memory.data(), {1}).clone()).sum();
  });
  trainer.step({torch::tensor({1.0f})});
  memory[0] = 3;
  const std::string error = error_of([&] { trainer.step({torch::tensor({1.0f})}); });
  if (error == "no error") {
    EXPECT_TRUE(net->weight.detach().equal(torch::tensor({0.0f}))) << "neither seen nor right";
  } else {
    EXPECT_THAT(error, testing::HasSubstr("weight"));
  }
}

// --- an optimizer of the user's own
// ---------------------------------------------------------------

// Momentum in members that nobody else knows of; save() and load() write nothing.
class OwnMomentum : public torch::optim::Optimizer {
 public:
  explicit OwnMomentum(std::vector<Tensor> parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                  std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  Tensor step(LossClosure = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (const auto& group : param_groups()) {
      for (Tensor parameter : group.params()) {
        if (!parameter.grad().defined()) continue;
        Tensor& speed = speeds_[parameter.unsafeGetTensorImpl()];
        speed = speed.defined() ? speed * 0.9 + parameter.grad() : parameter.grad().clone();
        parameter.sub_(speed * 0.1);
      }
    }
    return {};
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}

 private:
  std::map<c10::TensorImpl*, Tensor> speeds_;
};

// Was trained on by each step that was verified: 1.3e-2 off.
TEST_F(VerifySteps, LeavesNoTraceInAnOptimizerOfTheUsersOwn) {
  expect_no_trace([] {
    SmallTask task;
    OwnMomentum optimizer(task.net->parameters());
    Trainer trainer(task.net, optimizer, task.step());
    for (int i = 0; i < 5; ++i) trainer.step(rows(8, i));
    return task.tensors();
  });
  EXPECT_EQ(verified(), 3) << log.str();
  EXPECT_THAT(log.str(), testing::HasSubstr("OwnMomentum are not compared, only their gradients"));
}

// --- what gradients leave behind
// -------------------------------------------------------------------

// Two heads, one optimizer, a trainer for each: what the other's steps leave to momentum goes on.
TEST_F(VerifySteps, KnowsGradientsThatAnotherTrainerGave) {
  verify(3);
  const auto train = [](bool by_epl) {
    torch::manual_seed(1);
    auto one = std::make_shared<Factor>(), other = std::make_shared<Factor>();
    torch::optim::SGD optimizer({one->weight, other->weight},
                                torch::optim::SGDOptions(0.1).momentum(0.9));
    const auto step_of = [](std::shared_ptr<Factor> net) -> StepFunction {
      return [net](const Batch& batch) { return (net->weight * batch[0]).square().mean(); };
    };
    const std::vector<NamedModule> nets{{"one", one}, {"other", other}};
    Trainer first(nets, {optimizer}, step_of(one)), second(nets, {optimizer}, step_of(other));
    for (int i = 0; i < 6; ++i) {
      const Batch batch{rows(8, i)[0]};
      if (by_epl) {
        (i % 2 == 0 ? first : second).step(batch);
        continue;
      }
      optimizer.zero_grad();
      step_of(i % 2 == 0 ? one : other)(batch).loss.backward();
      optimizer.step();
    }
    return std::vector<Tensor>{one->weight.detach(), other->weight.detach()};
  };
  const std::vector<Tensor> plain = train(false);
  std::vector<Tensor> epl;
  const std::string error = error_of([&] { epl = train(true); });
  if (error == "no error") {
    EXPECT_TRUE(same(plain, epl)) << "neither seen nor right";
  } else {
    EXPECT_THAT(error, testing::HasSubstr("`one.weight` has"));
  }
}

}  // namespace
}  // namespace epl

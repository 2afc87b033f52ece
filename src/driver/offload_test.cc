// What a program sees of parameters that rest in a file, or in the memory of the host, and does to
// them between steps.
#include "offload/offload.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "driver/test_trainer.h"
#include "model/test_optimizers.h"

namespace epl {
namespace {

struct OffloadTest : TrainerFixture {
  OffloadTest() {
    std::string name = testing::TempDir() + "epl-offload-XXXXXX";
    folder = mkdtemp(name.data());
  }
  ~OffloadTest() override {
    EXPECT_TRUE(std::filesystem::is_empty(folder));
    std::filesystem::remove_all(folder);
  }

  void begin(const char* level) const {
    init(Config{{"offload.level", level}, {"offload.path", folder}});
  }
  static void begin_on_host(const char* level) { init(Config{{"offload.level", level}}); }
  // Both media, each with both levels.
  void for_each_way(const std::function<void(const std::string& way)>& run) const {
    for (const char* level : {"v0", "v1"}) {
      begin(level);
      run(concat(level, " file"));
      begin_on_host(level);
      run(concat(level, " host"));
    }
  }

  std::string folder;
};

std::string text_of_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Three steps without, and what the same program does with what rests in a file.
using Change = std::function<void(SmallTask& task, Trainer& trainer)>;
std::vector<torch::Tensor> trained_with(const Change& between) {
  SmallTask task;
  Trainer trainer = task.trainer();
  for (int i = 0; i < 4; ++i) {
    trainer.step(rows(4, static_cast<uint64_t>(i)));
    between(task, trainer);
  }
  return task.tensors();
}

void expect_alike(const OffloadTest& test, const Change& between) {
  init();
  const std::vector<torch::Tensor> in_memory = trained_with(between);
  test.for_each_way(
      [&](const std::string& way) { EXPECT_TRUE(same(in_memory, trained_with(between))) << way; });
}

bool lies_in_file(const torch::Tensor& tensor) {
  return HomeFile::is_home(tensor.storage().data_ptr());
}

// A trainer that was made without is told what it would need: as one says that was made with it.
TEST_F(OffloadTest, IsOneOfTheChangesThatWhatFitsTries) {
  for (const char* level : {"v0", "v1"}) {
    begin(level);
    SmallTask offloaded;
    const int64_t needs = offloaded.trainer().what_fits(rows(4), 1).rows.at(0).bytes;
    begin("");
    SmallTask task;
    Trainer trainer = task.trainer();
    const FittingReport report = trainer.what_fits(rows(4), 1);
    const std::string name = std::string("offload.level = \"") + level + "\"";
    const auto row = std::find_if(report.rows.begin(), report.rows.end(),
                                  [&](const FittingChange& each) { return each.str() == name; });
    ASSERT_NE(row, report.rows.end()) << report.str();
    EXPECT_EQ(row->bytes, needs) << report.str();
    EXPECT_FALSE(lies_in_file(task.net->parameters()[0]));
  }
}

TEST_F(OffloadTest, ParametersAndStatesRestInTheFile) {
  for (const char* level : {"v0", "v1"}) {
    begin(level);
    SmallTask task;
    Trainer trainer = task.trainer();
    trainer.step(rows(4));
    for (const torch::Tensor& parameter : task.net->parameters()) {
      EXPECT_TRUE(lies_in_file(parameter));
      const auto& state = static_cast<const torch::optim::AdamParamState&>(
          *task.optimizer->state().at(state_key(parameter)));
      EXPECT_EQ(lies_in_file(state.exp_avg()), std::string(level) == "v1");
      EXPECT_EQ(lies_in_file(state.exp_avg_sq()), std::string(level) == "v1");
    }
    for (const torch::Tensor& buffer : task.net->buffers()) EXPECT_FALSE(lies_in_file(buffer));
    const std::string state = trainer.state();
    EXPECT_NE(state.find("parameter first.weight f32[4,3]: R in role 0 on worker 0, file"),
              std::string::npos)
        << state;
    const std::string medium = std::string(level) == "v1" ? "file" : "pages";
    EXPECT_NE(state.find("state first.weight/exp_avg f32[4,3]: R in role 0 on worker 0, " + medium),
              std::string::npos)
        << state;
    EXPECT_NE(trainer.plan().find("fetch   "), std::string::npos);
    EXPECT_EQ(trainer.plan().find("states of ") != std::string::npos, std::string(level) == "v1");
  }
}

TEST_F(OffloadTest, WhatTheProgramReplacesIsTakenInAgain) {
  expect_alike(*this, [](SmallTask& task, Trainer&) {
    const torch::NoGradGuard no_grad;
    task.net->first->weight.set_data(task.net->first->weight * 0.5);
    task.net->head->bias.copy_(task.net->head->bias + 1);
  });
  begin("v0");
  SmallTask task;
  Trainer trainer = task.trainer();
  trainer.step(rows(4));
  task.net->first->weight.set_data(torch::ones({4, 3}));
  EXPECT_FALSE(lies_in_file(task.net->first->weight));
  trainer.step(rows(4));
  EXPECT_TRUE(lies_in_file(task.net->first->weight));
}

TEST_F(OffloadTest, ViewsThatTheProgramHoldsSeeTheTraining) {
  begin("v1");
  SmallTask task;
  const torch::Tensor view = task.net->first->weight.detach()[1];
  Trainer trainer = task.trainer();
  trainer.step(rows(4));
  EXPECT_TRUE(view.equal(task.net->first->weight.detach()[1]));
}

TEST_F(OffloadTest, WhatIsSavedIsLoaded) {
  const std::string file = testing::TempDir() + "epl-offload.pt";
  expect_alike(*this, [&](SmallTask& task, Trainer& trainer) {
    trainer.save(file);
    trainer.step(rows(4, 11));
    trainer.load(file);
    torch::save(task.net, file);
    torch::load(task.net, file);
    torch::save(*task.optimizer, file);
    torch::load(*task.optimizer, file);
  });
  std::filesystem::remove(file);
}

TEST_F(OffloadTest, IsEvaluatedAtAnyTime) {
  expect_alike(*this, [](SmallTask& task, Trainer& trainer) {
    const double loss = trainer.evaluate(task.step(), rows(4, 3)).loss.item<double>();
    task.net->eval();
    EXPECT_EQ(task.step()(rows(4, 3)).loss.item<double>(), loss);
    task.net->train();
  });
}

TEST_F(OffloadTest, ParametersThatAreFrozenForAWhileGoOn) {
  expect_alike(*this, [](SmallTask& task, Trainer&) {
    task.net->head->weight.set_requires_grad(!task.net->head->weight.requires_grad());
  });
}

TEST_F(OffloadTest, PlainStepsReadWhatTheyNeed) {
  const auto run = [] {
    SmallTask task;
    int calls = 0;
    Trainer trainer(task.net, *task.optimizer, [&](const Batch& batch) {
      // Another number in each call: no recording is right twice.
      return (task.net->forward(batch[0]) - batch[1]).square().mean() * (1 + ++calls);
    });
    for (int i = 0; i < 4; ++i) trainer.step(rows(4, static_cast<uint64_t>(i)));
    return task.tensors();
  };
  init();
  const auto in_memory = run();
  for_each_way([&](const std::string& way) { EXPECT_TRUE(same(in_memory, run())) << way; });
}

TEST_F(OffloadTest, TwoTrainersShareOnePlace) {
  const auto run = [] {
    SmallTask task;
    Trainer first = task.trainer();
    Trainer second = task.trainer();
    for (int i = 0; i < 3; ++i) {
      first.step(rows(4, 1));
      second.step(rows(2, 2));
    }
    return task.tensors();
  };
  init();
  const auto in_memory = run();
  for_each_way([&](const std::string& way) { EXPECT_TRUE(same(in_memory, run())) << way; });
}

// Counts its steps: one for each step of the trainer, with all parameters.
class CountingAdam : public torch::optim::Adam {
 public:
  using Adam::Adam;
  torch::Tensor step(LossClosure closure = nullptr) override {
    ++steps;
    return Adam::step(closure);
  }
  int steps = 0;
};

TEST_F(OffloadTest, OptimizersOfTheUsersOwnStepOnce) {
  const auto run = [](std::string* plan) {
    torch::manual_seed(1);
    auto net = std::make_shared<SmallNet>();
    CountingAdam own(net->first->parameters(), 0.1);
    torch::optim::SGD other(net->head->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    Trainer trainer({{"", net}}, {own, other}, [net](const Batch& batch) {
      return (net->forward(batch[0]) - batch[1]).square().mean();
    });
    for (int i = 0; i < 3; ++i) trainer.step(rows(4, static_cast<uint64_t>(i)));
    EXPECT_EQ(own.steps, 3);
    if (plan != nullptr) *plan = trainer.plan();
    std::vector<torch::Tensor> parameters;
    for (const auto& each : net->parameters()) parameters.push_back(each.detach().clone());
    return parameters;
  };
  init();
  const auto in_memory = run(nullptr);
  for_each_way([&](const std::string& way) {
    std::string plan;
    EXPECT_TRUE(same(in_memory, run(&plan))) << way;
    EXPECT_EQ(plan.find("keeps stays in memory: EPL does not know its rule") != std::string::npos,
              way.substr(0, 2) == "v1")
        << plan;
  });
}

// A metric that is a parameter, or a view of one, is read when all calls have run.
TEST_F(OffloadTest, MetricsMayBeParameters) {
  const auto run = [] {
    SmallTask task;
    std::vector<torch::Tensor> seen;
    Trainer trainer(task.net, *task.optimizer, [&](const Batch& batch) {
      const torch::Tensor loss = (task.net->forward(batch[0]) - batch[1]).square().mean();
      StepOutput output(loss);
      output.metrics["weight"] = task.net->first->weight.detach();
      output.metrics["row"] = task.net->first->weight.detach()[0];
      return output;
    });
    for (int i = 0; i < 4; ++i) {
      const StepResult result = trainer.step(rows(4, static_cast<uint64_t>(i)));
      for (const auto& [name, value] : result.metrics) seen.push_back(value);
    }
    for (const torch::Tensor& tensor : task.tensors()) seen.push_back(tensor);
    return seen;
  };
  init();
  const auto in_memory = run();
  for_each_way([&](const std::string& way) { EXPECT_TRUE(same(in_memory, run())) << way; });
}

// The step itself writes the teacher, which is in memory meanwhile and counted so.
TEST_F(OffloadTest, WhatTheStepWritesItselfIsCountedInMemory) {
  const auto run = [](std::string* plan, std::string* state) {
    torch::manual_seed(1);
    torch::nn::Linear net(64, 64);
    const torch::Tensor student = net->weight;
    const torch::Tensor teacher =
        net->register_parameter("teacher", student.detach().clone(), /*requires_grad=*/false);
    torch::optim::SGD optimizer({net->weight, net->bias}, 0.1);
    Trainer trainer(net, optimizer, [=](const Batch& batch) mutable {
      {
        const torch::NoGradGuard no_grad;
        teacher.mul_(0.5).add_(student, 0.5);
      }
      return (net->forward(batch[0]) - torch::mm(batch[0], teacher)).square().mean();
    });
    const Batch batch = {torch::full({4, 64}, 0.5)};
    for (int i = 0; i < 4; ++i) trainer.step(batch);
    if (plan != nullptr) {
      *plan = trainer.plan();
      *state = trainer.state();
      const MemoryReport memory = trainer.memory();
      const auto& shared = memory.workers.at(0).shared;
      EXPECT_EQ(shared[MemoryKind::kParameters] + shared[MemoryKind::kBuffers], 64 * 64 * 4)
          << memory.str();
    }
    return std::vector<torch::Tensor>{student.detach().clone(), teacher.clone()};
  };
  init();
  const auto in_memory = run(nullptr, nullptr);
  begin("v0");
  std::string plan;
  std::string state;
  EXPECT_TRUE(same(in_memory, run(&plan, &state)));
  EXPECT_NE(plan.find("`teacher` is in memory throughout the step, which writes it itself"),
            std::string::npos)
      << plan;
  EXPECT_EQ(state.find("parameter teacher f32[64,64]: R in role 0 on worker 0, file"),
            std::string::npos)
      << state;
}

// Each of two trainers has room for the states of its own parameters before each of its steps.
TEST_F(OffloadTest, StatesOfParametersThatWakeLaterHaveRoom) {
  const auto run = [] {
    SmallTask task;
    SmallTask other;
    Trainer first = task.trainer();
    Trainer second = other.trainer();
    task.net->head->weight.set_requires_grad(false);
    for (int i = 0; i < 4; ++i) {
      first.step(rows(4, static_cast<uint64_t>(i)));
      second.step(rows(2, static_cast<uint64_t>(i)));
      if (i == 1) task.net->head->weight.set_requires_grad(true);
    }
    return task.tensors();
  };
  init();
  const auto in_memory = run();
  for_each_way([&](const std::string& way) { EXPECT_TRUE(same(in_memory, run())) << way; });
}

// One vector of which two parameters are pieces.
struct Sharing : torch::nn::Module {
  Sharing() {
    const torch::Tensor both = torch::randn({2, 2048});
    first = register_parameter("first", both[0]);
    second = register_parameter("second", both[1]);
    own = register_parameter("own", torch::randn({2048}));
    foreign = register_parameter(
        "foreign", torch::from_blob(memory.data(), {2048}).requires_grad_(true), true);
    frozen = register_parameter("frozen", torch::randn({2048}), false);
  }
  std::vector<float> memory = std::vector<float>(2048, 0.5f);
  torch::Tensor first, second, own, foreign, frozen;
};

TEST_F(OffloadTest, WhatOthersShareStaysInMemory) {
  const auto run = [](std::string* plan) {
    torch::manual_seed(1);
    auto net = std::make_shared<Sharing>();
    torch::optim::SGD optimizer({net->first, net->second, net->own, net->foreign}, 0.1);
    Trainer trainer(net, optimizer, [net](const Batch& batch) {
      return (net->first * net->second + net->own * net->foreign * net->frozen * batch[0])
          .square()
          .mean();
    });
    for (int i = 0; i < 3; ++i) trainer.step({torch::full({1, 2048}, 0.5)});
    if (plan != nullptr) *plan = trainer.plan();
    EXPECT_EQ(lies_in_file(net->own), plan != nullptr);
    EXPECT_EQ(lies_in_file(net->frozen), plan != nullptr);
    EXPECT_FALSE(lies_in_file(net->first));
    EXPECT_EQ(net->foreign.data_ptr(), net->memory.data());
    return std::vector<torch::Tensor>{net->first.clone(), net->second.clone(), net->own.clone(),
                                      net->foreign.clone()};
  };
  init();
  const auto in_memory = run(nullptr);
  begin("v0");
  std::string plan;
  EXPECT_TRUE(same(in_memory, run(&plan)));
  EXPECT_NE(plan.find("`first` stays in memory: another tensor of the model lies in its memory"),
            std::string::npos)
      << plan;
  EXPECT_NE(plan.find("`foreign` stays in memory"), std::string::npos);
}

TEST_F(OffloadTest, AFolderThatIsNotThereIsAnErrorWhenTheTrainerIsMade) {
  init(Config{{"offload.level", "v0"}, {"offload.path", folder + "/none"}});
  SmallTask task;
  EXPECT_NE(text_of_error([&] { task.trainer(); }).find("there is no folder"), std::string::npos);
}

// What is near by plan is what the forecast and the account have.
TEST_F(OffloadTest, TheForecastHasWhatIsNear) {
  for (const char* level : {"v0", "v1"}) {
    begin(level);
    torch::nn::Sequential net;
    for (int i = 0; i < 32; ++i) net->push_back(torch::nn::Linear(128, 128));
    torch::optim::AdamW optimizer(net->parameters(), 1e-3);
    Trainer trainer(net, optimizer,
                    [&](const Batch& batch) { return net->forward(batch[0]).square().mean(); });
    const Batch batch = {torch::randn({4, 128})};
    const MemoryReport forecast = trainer.forecast(batch);
    for (int i = 0; i < 3; ++i) trainer.step(batch);
    const MemoryReport memory = trainer.memory();
    const auto& shared = forecast.workers.at(0).shared;
    const int64_t all = 32 * (128 * 128 + 128) * 4;
    const bool states = std::string(level) == "v1";
    EXPECT_EQ(shared[MemoryKind::kParameters], 0);
    EXPECT_EQ(shared[MemoryKind::kOptimizerState], states ? 0 : 2 * all);
    EXPECT_GT(shared[MemoryKind::kWindows], 0);
    EXPECT_LT(shared[MemoryKind::kWindows], (states ? 3 : 1) * all / 2) << forecast.str();
    EXPECT_EQ(shared[MemoryKind::kWindows], memory.workers.at(0).shared[MemoryKind::kWindows]);
    EXPECT_LE(memory.workers.at(0).measured_shared.value(), shared.total() + (256 << 10))
        << memory.str();
  }
}

}  // namespace
}  // namespace epl

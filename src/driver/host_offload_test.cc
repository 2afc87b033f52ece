// Parameters that rest in the memory of the host (offload.level without offload.path): what a
// program sees of them, which of them devices have windows of, and that windows are bounded.
#include <atomic>
#include <functional>
#include <limits>

#include "driver/test_trainer.h"
#include "model/test_optimizers.h"

namespace epl {
namespace {

struct HostOffload : TrainerFixture {
  static void begin(const char* level) { init(Config{{"offload.level", level}}); }
};

std::string text_of_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Runs it with all in memory, and with both levels: what it returns must be the same.
void expect_same(const std::function<std::vector<torch::Tensor>()>& run) {
  init();
  const auto in_memory = run();
  for (const char* level : {"v0", "v1"}) {
    HostOffload::begin(level);
    EXPECT_TRUE(same(in_memory, run())) << level;
  }
}

TEST_F(HostOffload, TensorsStayWhereTheyAreAndCountToTheHost) {
  for (const std::string level : {"v0", "v1"}) {
    begin(level.c_str());
    SmallTask task;
    std::vector<void*> places;
    for (const torch::Tensor& each : task.net->parameters()) places.push_back(each.data_ptr());
    Trainer trainer = task.trainer();
    for (int i = 0; i < 2; ++i) trainer.step(rows(4));
    size_t i = 0;
    for (const torch::Tensor& each : task.net->parameters()) {
      EXPECT_EQ(each.data_ptr(), places[i++]);
    }
    const std::string state = trainer.state();
    EXPECT_NE(state.find("parameter first.weight f32[4,3]: R in role 0 on worker 0, host"),
              std::string::npos)
        << state;
    const std::string medium = level == "v1" ? "host" : "pages";
    EXPECT_NE(state.find("state first.weight/exp_avg f32[4,3]: R in role 0 on worker 0, " + medium),
              std::string::npos)
        << state;
    EXPECT_NE(trainer.plan().find("fetch   "), std::string::npos);
    int64_t bytes = 0;
    for (const torch::Tensor& each : task.net->parameters()) {
      bytes += static_cast<int64_t>(each.nbytes()) * (level == "v1" ? 3 : 1);
    }
    const MemoryReport memory = trainer.memory();
    EXPECT_EQ(memory.workers.at(0).host, bytes) << memory.str();
    EXPECT_NE(memory.str().find("at rest in the host's memory"), std::string::npos);
  }
}

// A view of a parameter that the step closes over is another name of its memory.
TEST_F(HostOffload, WhatTheStepReachesUnderAnotherNameIsRead) {
  std::string plan;
  expect_same([&] {
    SmallTask task;
    const torch::Tensor row = task.net->first->weight.detach()[1];
    Trainer trainer(task.net, *task.optimizer, [&, row](const Batch& batch) {
      return ((task.net->forward(batch[0]) - batch[1]).square() * (1 + row.sum().abs())).mean();
    });
    for (int i = 0; i < 4; ++i) trainer.step(rows(4, static_cast<uint64_t>(i)));
    plan = trainer.plan();
    return task.tensors();
  });
  EXPECT_NE(plan.find("`first.weight` stays in memory: another tensor of the step lies in its "
                      "memory"),
            std::string::npos)
      << plan;
}

// ... and one that the step writes, too.
TEST_F(HostOffload, WhatTheStepWritesUnderAnotherNameIsRead) {
  expect_same([] {
    SmallTask task;
    const torch::Tensor bias = task.net->head->bias.detach();
    Trainer trainer(task.net, *task.optimizer, [&, bias](const Batch& batch) mutable {
      {
        const torch::NoGradGuard no_grad;
        bias.mul_(0.5);
      }
      return (task.net->forward(batch[0]) - batch[1]).square().mean();
    });
    for (int i = 0; i < 4; ++i) trainer.step(rows(4, static_cast<uint64_t>(i)));
    return task.tensors();
  });
}

// Memory that two storages name.
TEST_F(HostOffload, WhatIsReachedByAPointerIsRead) {
  expect_same([] {
    SmallTask task;
    torch::Tensor& bias = task.net->head->bias;
    const torch::Tensor alias = torch::from_blob(bias.data_ptr(), {2});
    Trainer trainer(task.net, *task.optimizer, [&, alias](const Batch& batch) {
      return ((task.net->forward(batch[0]) - batch[1]).square() * (1 + alias.sum().abs())).mean();
    });
    for (int i = 0; i < 4; ++i) trainer.step(rows(4, static_cast<uint64_t>(i)));
    return task.tensors();
  });
}

// Between steps a buffer that the step writes comes to lie in the memory of a parameter.
TEST_F(HostOffload, AStepThatWouldWriteUnderAWindowIsRefused) {
  begin("v0");
  SmallTask task;
  Trainer trainer = task.trainer();
  for (int i = 0; i < 3; ++i) trainer.step(rows(4));
  // Under another storage, which nobody counts.
  task.net->norm->running_mean.set_data(torch::from_blob(task.net->first->bias.data_ptr(), {4}));
  EXPECT_NE(text_of_error([&] { trainer.step(rows(4)); }).find("the step writes memory in which"),
            std::string::npos);
}

// What an operator makes of a parameter may be a view of it, and outlive the window.
TEST_F(HostOffload, WhatOperatorsMakeInMemoryOfTheirChoiceIsRead) {
  expect_same([] {
    torch::manual_seed(1);
    torch::nn::Linear net(16, 4);
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(10, 16).sparse(true));
    torch::optim::SGD optimizer({net->weight, net->bias, table->weight}, 0.1);
    torch::nn::Sequential both(table, net);
    const torch::Tensor places = torch::arange(16).unsqueeze(0);
    Trainer trainer(both, optimizer, [=](const Batch& batch) mutable {
      const torch::Tensor sparse =
          torch::sparse_coo_tensor(places, net->weight[0].detach(), {20}).coalesce();
      const torch::Tensor shift = sparse.to_dense().sum() * 0.01;
      return (net->forward(table->forward(batch[0])) + shift).square().mean();
    });
    for (int i = 0; i < 4; ++i) trainer.step({torch::tensor({1, 2, 3, 2})});
    return std::vector<torch::Tensor>{net->weight.detach().clone(), net->bias.detach().clone(),
                                      table->weight.detach().clone()};
  });
}

// Between steps two parameters come to lie in the same memory, and apart again.
TEST_F(HostOffload, ParametersMayComeToShareMemory) {
  expect_same([] {
    torch::manual_seed(1);
    torch::nn::Linear first(8, 8), second(8, 8);
    torch::nn::Sequential net(first, second);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    Trainer trainer(net, optimizer, [=](const Batch& batch) mutable {
      return net->forward(batch[0]).square().mean();
    });
    const Batch batch = {torch::full({4, 8}, 0.5)};
    std::vector<torch::Tensor> seen;
    for (int i = 0; i < 6; ++i) {
      if (i == 2) second->weight.set_data(first->weight.data());
      if (i == 4) second->weight.set_data(second->weight.detach().clone());
      trainer.step(batch);
      seen.push_back(first->weight.detach().clone());
      seen.push_back(second->weight.detach().clone());
    }
    return seen;
  });
}

// A parameter that is a part of a larger piece of memory, and one that lies transposed.
TEST_F(HostOffload, ParametersOfEveryShapeTrain) {
  expect_same([] {
    torch::manual_seed(1);
    auto net = std::make_shared<torch::nn::Module>();
    const torch::Tensor part = net->register_parameter("part", torch::randn({3, 8})[1]);
    const torch::Tensor turned = net->register_parameter("turned", torch::randn({4, 8}).t());
    const torch::Tensor one = net->register_parameter("one", torch::randn({}));
    const torch::Tensor none = net->register_parameter("none", torch::randn({0, 4}));
    torch::optim::AdamW optimizer({part, turned, one, none}, 0.1);
    Trainer trainer(net, optimizer, [=](const Batch& batch) {
      return (torch::mm(batch[0] * part, turned) * one).square().mean() + none.sum();
    });
    for (int i = 0; i < 4; ++i) trainer.step({torch::full({4, 8}, 0.5)});
    return std::vector<torch::Tensor>{part.detach().clone(), turned.detach().clone(),
                                      one.detach().clone()};
  });
}

// --- what is near -------------------------------------------------------------------------------

struct Layers {
  explicit Layers(int layers = 32, int width = 128) {
    torch::manual_seed(1);
    for (int i = 0; i < layers; ++i) net->push_back(torch::nn::Linear(width, width));
    optimizer = std::make_unique<torch::optim::AdamW>(net->parameters(), 1e-3);
    all = static_cast<int64_t>(layers) * (width * width + width) * 4;
    batch = {torch::randn({4, width})};
  }
  Trainer trainer() {
    return Trainer(net, *optimizer,
                   [this](const Batch& rows) { return net->forward(rows[0]).square().mean(); });
  }
  std::vector<torch::Tensor> parameters() const {
    std::vector<torch::Tensor> copies;
    for (const auto& each : net->parameters()) copies.push_back(each.detach().clone());
    return copies;
  }

  torch::nn::Sequential net;
  std::unique_ptr<torch::optim::AdamW> optimizer;
  int64_t all = 0;  // bytes of parameters
  Batch batch;
};

TEST_F(HostOffload, TheForecastHasWhatIsNear) {
  for (const std::string devices : {"1", "2"}) {
    set("EPL_DEVICES", devices);
    for (const std::string level : {"v0", "v1"}) {
      begin(level.c_str());
      Layers layers;
      Trainer trainer = layers.trainer();
      const MemoryReport forecast = trainer.forecast(layers.batch);
      for (int i = 0; i < 4; ++i) {
        trainer.step(layers.batch);
        const MemoryReport memory = trainer.memory();
        const auto& worker = memory.workers.at(0);
        // The first step on two devices runs as the plain program does.
        EXPECT_LE(worker.measured_shared.value_or(0), worker.shared.total() + 4096) << memory.str();
      }
      const auto& shared = forecast.workers.at(0).shared;
      const bool states = level == "v1";
      EXPECT_EQ(shared[MemoryKind::kParameters], 0);
      EXPECT_EQ(shared[MemoryKind::kOptimizerState], states ? 0 : 2 * layers.all);
      EXPECT_GT(shared[MemoryKind::kWindows], 0);
      EXPECT_LT(shared[MemoryKind::kWindows], (states ? 3 : 1) * layers.all / 2) << forecast.str();
      EXPECT_EQ(forecast.workers.at(0).host, (states ? 3 : 1) * layers.all);
      const MemoryReport memory = trainer.memory();
      const auto& worker = memory.workers.at(0);
      EXPECT_GE(worker.measured_shared.value(), worker.shared.total() / 2) << memory.str();
    }
  }
}

TEST_F(HostOffload, AModelAboveTheLimitTrains) {
  init();
  Layers in_memory;
  {
    Trainer trainer = in_memory.trainer();
    for (int i = 0; i < 3; ++i) trainer.step(in_memory.batch);
  }
  const int64_t limit = in_memory.all * 5 / 2;  // gradients are one of them
  init(Config{{"memory.limit", limit}});
  Layers refused;
  EXPECT_NE(text_of_error([&] { refused.trainer().step(refused.batch); }).find("a device needs"),
            std::string::npos);
  init(Config{{"memory.limit", limit}, {"offload.level", "v1"}});
  Layers away;
  Trainer trainer = away.trainer();
  for (int i = 0; i < 3; ++i) trainer.step(away.batch);
  EXPECT_TRUE(same(in_memory.parameters(), away.parameters()));
  const MemoryReport memory = trainer.memory();
  const auto& worker = memory.workers.at(0);
  EXPECT_LE(worker.measured_shared.value() + worker.devices.at(0).measured.value(), limit)
      << memory.str();
  init(Config{{"memory.limit", in_memory.all}, {"offload.level", "v1"}});
  Layers lower;
  EXPECT_NE(text_of_error([&] { lower.trainer().step(lower.batch); }).find("a device needs"),
            std::string::npos);
}

// One works in the window, and the other where the parameter rests.
TEST_F(HostOffload, WhatSeveralOptimizersUpdateHasNoWindow) {
  for (const bool own_first : {true, false}) {
    expect_same([&] {
      SmallTask task;
      OwnAdam own(task.net->parameters(), 0.01);
      OptimizerList both = {*task.optimizer, own};
      if (own_first) std::swap(both[0], both[1]);
      Trainer trainer({{"", task.net}}, both, task.step());
      for (int i = 0; i < 4; ++i) trainer.step(rows(4, static_cast<uint64_t>(i)));
      return task.tensors();
    });
  }
}

// A step that fails before its update has windows open; the one that comes next may run plainly.
TEST_F(HostOffload, AStepThatFailsLeavesNothingInWindows) {
  set("EPL_DEVICES", "2");
  expect_same([] {
    SmallTask task;
    Trainer trainer = task.trainer();
    for (int i = 0; i < 3; ++i) trainer.step(rows(4, static_cast<uint64_t>(i)));
    Batch bad = rows(4, 3);
    bad[1].fill_(std::numeric_limits<float>::quiet_NaN());
    EXPECT_ANY_THROW(trainer.step(bad));
    {
      const torch::NoGradGuard no_grad;
      for (auto& each : task.net->parameters()) each.mul_(0.5);
    }
    trainer.step(rows(3, 4));  // does not go into two devices
    for (int i = 5; i < 7; ++i) trainer.step(rows(4, static_cast<uint64_t>(i)));
    return task.tensors();
  });
}

// A plan that was made before an option asked for states has no room for them.
TEST_F(HostOffload, StatesThatAnOptionAsksForInMidTrainingAreUsedWhereTheyRest) {
  const auto run = [] {
    torch::manual_seed(1);
    torch::nn::Sequential net;
    for (int i = 0; i < 6; ++i) net->push_back(torch::nn::Linear(64, 64));
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01));
    Trainer trainer(net, optimizer,
                    [&](const Batch& rows) { return net->forward(rows[0]).square().mean(); });
    const Batch batch = {torch::randn({4, 64})};
    for (int i = 0; i < 6; ++i) {
      auto& options = static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options());
      if (i == 3) options.momentum(0.9);
      trainer.step(batch);
    }
    std::vector<torch::Tensor> copies;
    for (const auto& each : net->parameters()) copies.push_back(each.detach().clone());
    return copies;
  };
  expect_same(run);
}

// One group of the update fails when others have run.
TEST_F(HostOffload, AnUpdateThatFailsLeavesNothingInWindows) {
  begin("v1");
  Layers layers(8, 64);
  Trainer trainer = layers.trainer();
  trainer.step(layers.batch);
  const auto before = layers.parameters();
  // The state of the last parameter is none that its rule knows, nor LibTorch's own step().
  const torch::Tensor last = layers.net->parameters().back();
  auto& state =
      static_cast<torch::optim::AdamWParamState&>(*layers.optimizer->state().at(state_key(last)));
  const torch::Tensor good = state.exp_avg();
  state.exp_avg(torch::zeros({3}));
  EXPECT_ANY_THROW(trainer.step(layers.batch));
  // What the program puts there now is what the next step reads.
  state.exp_avg(good);
  {
    const torch::NoGradGuard no_grad;
    size_t i = 0;
    for (auto& each : layers.net->parameters()) each.copy_(before[i++]);
  }
  EXPECT_TRUE(same(before, layers.parameters()));
  const double loss =
      trainer
          .evaluate([&](const Batch& rows) { return layers.net->forward(rows[0]).square().mean(); },
                    layers.batch)
          .loss.item<double>();
  EXPECT_EQ(trainer.step(layers.batch).loss, loss);
}

}  // namespace
}  // namespace epl

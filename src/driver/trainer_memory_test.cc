// trainer.forecast(), what_fits() and memory(): what they say, and that what is asked beside steps
// leaves no trace.
#include "driver/test_trainer.h"
#include "runtime/device_memory.h"

namespace epl {
namespace {

using torch::Tensor;
using TrainerMemory = TrainerFixture;

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// All that a step function can change: parameters, statistics, dropout's numbers and those of a
// generator of its own, a tensor that it closes over, one that C++ writes through its pointer.
struct BusyTask {
  explicit BusyTask(bool through_pointer = false) : through_pointer(through_pointer) {
    torch::manual_seed(3);
    net = torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::BatchNorm1d(8),
                                torch::nn::Dropout(0.5), torch::nn::Linear(8, 4));
    optimizer = std::make_unique<torch::optim::Adam>(net->parameters(), 0.01);
    net->register_buffer("seen", torch::zeros({1}));
  }

  Trainer trainer() {
    return Trainer(net, *optimizer, [this](const Batch& batch) {
      outside.add_(1);
      if (through_pointer) net->named_buffers()["seen"].data_ptr<float>()[0] += 1;
      const Tensor noise = torch::randn({batch[0].size(0), 6}, own);
      return net->forward(batch[0] + 0.1 * noise).square().mean();
    });
  }

  std::vector<Tensor> all() const {
    std::vector<Tensor> tensors;
    for (const Tensor& tensor : net->parameters()) tensors.push_back(tensor.detach().clone());
    for (const Tensor& tensor : net->parameters()) {
      if (tensor.grad().defined()) tensors.push_back(tensor.grad().clone());
    }
    for (const Tensor& tensor : net->buffers()) tensors.push_back(tensor.clone());
    tensors.push_back(outside.clone());
    tensors.push_back(own.get_state());
    tensors.push_back(at::detail::getDefaultCPUGenerator().get_state());
    return tensors;
  }

  bool through_pointer;
  torch::nn::Sequential net{nullptr};
  std::unique_ptr<torch::optim::Adam> optimizer;
  Tensor outside = torch::zeros({2});
  at::Generator own = at::make_generator<at::CPUGeneratorImpl>(5);
};

Batch some_rows(uint64_t seed = 1) {
  return {torch::randn({8, 6}, at::make_generator<at::CPUGeneratorImpl>(seed))};
}

TEST_F(TrainerMemory, ForecastLeavesNoTrace) {
  BusyTask task;
  Trainer trainer = task.trainer();
  task.net->parameters()[0].mutable_grad() = torch::ones({8, 6});
  const Batch batch = some_rows();
  const Tensor rows = batch[0].clone();
  const std::vector<Tensor> before = task.all();
  trainer.forecast(batch);
  EXPECT_TRUE(same(task.all(), before));
  EXPECT_TRUE(batch[0].equal(rows));
  EXPECT_TRUE(task.optimizer->state().empty());
  trainer.step(batch);
  trainer.step(batch);
  const std::vector<Tensor> trained = task.all();
  trainer.forecast(some_rows(2));
  EXPECT_TRUE(same(task.all(), trained)) << "between steps";
}

TEST_F(TrainerMemory, ForecastTakesBackWhatWasWrittenThroughPointers) {
  BusyTask task(/*through_pointer=*/true);
  Trainer trainer = task.trainer();
  const std::vector<Tensor> before = task.all();
  EXPECT_NE(error_of([&] {
              trainer.forecast(some_rows());
            }).find("such a step runs as the plain program would"),
            std::string::npos);
  EXPECT_TRUE(same(task.all(), before));
}

TEST_F(TrainerMemory, TrainingGoesOnAsWithoutAForecast) {
  const auto train = [](bool forecasts) {
    BusyTask task;
    Trainer trainer = task.trainer();
    for (int step = 0; step < 4; ++step) {
      if (forecasts) trainer.forecast(some_rows(step == 2 ? 7 : 1));
      trainer.step(some_rows(static_cast<uint64_t>(step)));
    }
    return task.all();
  };
  EXPECT_TRUE(same(train(true), train(false)));
}

// A recording is replayed only in steps that were seen twice: what a forecast records is no look.
TEST_F(TrainerMemory, ForecastDoesNotFreezeNumbersOfTheProgram) {
  const auto train = [](bool forecasts) {
    SmallTask task;
    double factor = 1;
    Trainer trainer(task.net, *task.optimizer, [&](const Batch& batch) {
      return (task.net->forward(batch[0]) * factor - batch[1]).square().mean();
    });
    for (int step = 0; step < 4; ++step) {
      if (forecasts) trainer.forecast(rows(6));
      factor = 1 + step;
      trainer.step(rows(6));
    }
    return task.tensors();
  };
  EXPECT_TRUE(same(train(true), train(false)));
}

TEST_F(TrainerMemory, TellsWhatIsForecastAndMeasured) {
  torch::nn::Sequential net(torch::nn::Linear(512, 1024), torch::nn::ReLU(),
                            torch::nn::Linear(1024, 512));
  torch::optim::Adam optimizer(net->parameters(), 1e-3);
  Trainer trainer(net, optimizer,
                  [&](const Batch& batch) { return net->forward(batch[0]).square().mean(); });
  const Batch batch = {torch::randn({64, 512})};
  EXPECT_NE(error_of([&] { trainer.memory(); }).find("there is no plan before the first step"),
            std::string::npos);
  const MemoryReport before = trainer.forecast(batch);
  EXPECT_FALSE(before.workers.at(0).measured().has_value());
  for (int step = 0; step < 4; ++step) trainer.step(batch);
  const MemoryReport report = trainer.memory();
  const auto& worker = report.workers.at(0);
  const int64_t parameters = (512 * 1024 * 2 + 1024 + 512) * 4;
  EXPECT_EQ(worker.shared[MemoryKind::kParameters], parameters);
  EXPECT_EQ(worker.shared[MemoryKind::kOptimizerState], 2 * parameters);
  const auto& device = worker.devices.at(0);
  EXPECT_EQ(device.bytes[MemoryKind::kBatch], 64 * 512 * 4);
  EXPECT_GE(device.bytes[MemoryKind::kGradients], parameters - (1024 + 512) * 4);
  EXPECT_GE(trainer.forecast({torch::randn({4096, 512})})
                .workers.at(0)
                .devices.at(0)
                .bytes[MemoryKind::kSaved],
            4096 * 1024 * 4)
      << "of more rows activations are most";
  EXPECT_NEAR(static_cast<double>(*worker.measured()), static_cast<double>(worker.peak()),
              0.01 * static_cast<double>(worker.peak()))
      << report.str();
  EXPECT_GT(report.recording, parameters) << "gradients and activations";
  EXPECT_EQ(before.workers[0].peak(), worker.peak()) << before.str() << report.str();
}

// The kernel of logdet factorises a copy of its argument, which is no tensor of the step.
TEST_F(TrainerMemory, KnowsWhatKernelsHoldBesides) {
  auto net = std::make_shared<torch::nn::LinearImpl>(64, 64);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, [&](const Batch& batch) {
    const Tensor product = net->forward(batch[0]);
    const Tensor square = torch::matmul(product.transpose(1, 2), product) + torch::eye(64);
    return torch::logdet(square).mean();
  });
  const MemoryReport report = trainer.forecast({torch::randn({4, 64, 64})});
  const auto& device = report.workers.at(0).devices.at(0);
  EXPECT_GT(device.bytes[MemoryKind::kWorkspace], 0) << report.str();
  EXPECT_FALSE(device.workspace_at.empty());
}

// --- what would fit
// -------------------------------------------------------------------------------

TEST_F(TrainerMemory, WhatFitsLeavesNoTrace) {
  BusyTask task;
  Trainer trainer = task.trainer();
  task.net->parameters()[0].mutable_grad() = torch::ones({8, 6});
  const Batch batch = some_rows();
  const Tensor rows = batch[0].clone();
  const std::vector<Tensor> before = task.all();
  EXPECT_GT(trainer.what_fits(batch, 1).rows.size(), 3U);
  EXPECT_TRUE(same(task.all(), before));
  EXPECT_TRUE(batch[0].equal(rows));
  trainer.step(batch);
  const std::vector<Tensor> trained = task.all();
  trainer.what_fits(some_rows(2), 1);
  EXPECT_TRUE(same(task.all(), trained)) << "between steps";
}

TEST_F(TrainerMemory, TrainingGoesOnAsWithoutAskingWhatFits) {
  const auto train = [](bool asks) {
    BusyTask task;
    Trainer trainer = task.trainer();
    for (int step = 0; step < 4; ++step) {
      if (asks) trainer.what_fits(some_rows(step == 2 ? 7 : 1), 1);
      trainer.step(some_rows(static_cast<uint64_t>(step)));
    }
    return task.all();
  };
  EXPECT_TRUE(same(train(true), train(false)));
}

const FittingChange* row_named(const FittingReport& report, const std::string& name) {
  for (const FittingChange& row : report.rows) {
    if (row.str() == name) return &row;
  }
  return nullptr;
}

// What changes more than the order of sums is not recommended where something else fits.
TEST_F(TrainerMemory, WhatFitsMarksWhatChangesNumbers) {
  BusyTask task;
  Trainer trainer = task.trainer();
  const FittingReport report = trainer.what_fits(some_rows(), 1);
  const FittingChange* const micro = row_named(report, "pipeline.num_micro_batch = 2");
  ASSERT_NE(micro, nullptr) << report.str();
  EXPECT_TRUE(micro->changes_numbers);
  EXPECT_EQ(micro->note,
            "other numbers: batch norm of fewer rows; sums and random numbers in another order");
  const FittingChange* const lower = row_named(report, "amp.level = \"O1\"");
  ASSERT_NE(lower, nullptr) << report.str();
  EXPECT_TRUE(lower->changes_numbers);
  // Where oneDNN has begun to compute on tiles, no product in bfloat16 may run.
  EXPECT_TRUE(lower->bytes > 0 || lower->note.find("tiles") != std::string::npos) << lower->note;
  const FittingChange* const again = row_named(report, "gradient_checkpoint.type = \"auto\"");
  ASSERT_NE(again, nullptr) << report.str();
  EXPECT_FALSE(again->changes_numbers);
  EXPECT_EQ(row_named(report, "zero.level = \"v0\""), nullptr) << "on one worker";
}

// Twice the micro batches of a mean that are summed up have twice the gradients.
TEST_F(TrainerMemory, WhatFitsKnowsLossesThatPartsDoNotAddUpTo) {
  for (const char* method : {"mean", "sum"}) {
    for (const bool sums : {false, true}) {
      init(Config{{"communication.gradients_reduce_method", method}});
      auto net = std::make_shared<torch::nn::LinearImpl>(6, 4);
      torch::optim::SGD optimizer(net->parameters(), 0.1);
      Trainer trainer(net, optimizer, [&](const Batch& batch) {
        const Tensor squares = net->forward(batch[0]).square();
        return sums ? squares.sum() : squares.mean();
      });
      const FittingReport report = trainer.what_fits(some_rows(), 1);
      const FittingChange* const micro = row_named(report, "pipeline.num_micro_batch = 2");
      ASSERT_NE(micro, nullptr) << report.str();
      EXPECT_EQ(micro->changes_numbers, sums != (std::string(method) == "sum")) << report.str();
    }
  }
}

TEST_F(TrainerMemory, WhatFitsCutsNoOddRows) {
  BusyTask task;
  Trainer trainer = task.trainer();
  const FittingReport report = trainer.what_fits({torch::randn({7, 6})}, 1);
  EXPECT_EQ(row_named(report, "pipeline.num_micro_batch = 2"), nullptr) << report.str();
}

TEST_F(TrainerMemory, WhatFitsIsRefusedForStepsThatRunPlainly) {
  BusyTask task(/*through_pointer=*/true);
  Trainer trainer = task.trainer();
  EXPECT_NE(error_of([&] {
              trainer.what_fits(some_rows(), 1);
            }).find("such a step runs as the plain program would"),
            std::string::npos);
}

TEST_F(TrainerMemory, ALimitThatCannotBeKeptNamesWhatFits) {
  init(Config{{"memory.limit", 1}});
  BusyTask task;
  Trainer trainer = task.trainer();
  const std::string message = error_of([&] { trainer.step(some_rows()); });
  EXPECT_NE(message.find("trainer.what_fits(batch, limit)"), std::string::npos) << message;
  EXPECT_EQ(trainer.what_fits(some_rows(), 1).rows.at(0).note, "without memory.limit");
}

}  // namespace
}  // namespace epl

// Workers that drift apart: one of them loads a file, changes a learning rate or a parameter, or
// hands in other rows than the rest. The replicas used to train on, each with numbers of its own;
// now every worker hears of it before the parameters are touched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/models/mlp.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

using testing::HasSubstr;
using torch::Tensor;

struct Training {
  Training() {
    torch::manual_seed(1);
    net = std::make_shared<models::Mlp>(8, 16, 2, 4);
    optimizer = std::make_unique<torch::optim::SGD>(net->parameters(), 0.1);
    trainer = std::make_unique<Trainer>(net, *optimizer, [this](const Batch& batch) {
      return cross_entropy(net->forward(batch[0]), batch[1]);
    });
  }
  std::string step(int64_t rows = 8) {
    try {
      trainer->step({torch::randn({rows, 8}), classes(4, {rows})});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  std::shared_ptr<models::Mlp> net;
  std::unique_ptr<torch::optim::SGD> optimizer;
  std::unique_ptr<Trainer> trainer;
};

// Some steps, what one worker does on its own, and what the next steps say on every worker.
void expect_to_hear(const std::function<void(int worker, Training& training)>& alone,
                    const std::string& what, int64_t rows_of_worker_1 = 8) {
  run_on_workers({1, 1}, [&](int worker) {
    epl::init();
    Training training;
    for (int i = 0; i < 2; ++i) EXPECT_EQ(training.step(), "no error");
    alone(worker, training);
    std::string said = "no error";
    for (int i = 0; i < 2 && said == "no error"; ++i) {
      said = training.step(worker == 1 ? rows_of_worker_1 : 8);
    }
    EXPECT_THAT(said, HasSubstr(what));
  });
}

TEST(Drift, ALearningRateThatOneWorkerChanges) {
  expect_to_hear(
      [](int worker, Training& training) {
        if (worker != 0) return;
        auto& options = training.optimizer->param_groups()[0].options();
        static_cast<torch::optim::SGDOptions&>(options).lr(0.01);
      },
      "worker 1 has other options of its optimizers");
}

TEST(Drift, AFileThatOneWorkerLoads) {
  const auto path = std::filesystem::temp_directory_path() / "epl_drift_test.pt";
  expect_to_hear(
      [&](int worker, Training& training) {
        if (worker != 0) return;
        training.trainer->save(path.string());
        training.trainer->load(path.string());
      },
      "worker 1 has 0 calls of trainer.load() where worker 0 has 1");
  std::filesystem::remove(path);
}

TEST(Drift, AParameterThatOneWorkerChanges) {
  expect_to_hear(
      [](int worker, Training& training) {
        const torch::NoGradGuard no_grad;
        if (worker == 1) training.net->parameters()[0].mul_(1.5);
      },
      "worker 1 has other parameters than worker 0");
}

TEST(Drift, FewerRowsOnOneWorker) {
  expect_to_hear([](int, Training&) {},
                 "worker 1 has 6 rows for each of its devices where worker 0 has 8", 6);
}

}  // namespace
}  // namespace epl::parity

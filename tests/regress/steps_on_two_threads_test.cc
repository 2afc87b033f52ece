// Two trainers on two threads with several devices crashed, hung or ended as an internal error: the
// devices of a job are one team, which had neither a lock nor a check. Steps that threads ask for
// at the same time now run one after the other, and a step inside of a step is refused.
#include <epl/epl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/parity/on_devices.h"

namespace epl {
namespace {

struct Training {
  explicit Training(uint64_t seed) {
    torch::manual_seed(seed);
    net = torch::nn::Sequential(torch::nn::Linear(6, 32), torch::nn::Tanh(),
                                torch::nn::Linear(32, 3));
    batch = {torch::randn({16, 6}), torch::randn({16, 3})};
    optimizer = std::make_unique<torch::optim::Adam>(net->parameters(), 0.01);
    trainer = std::make_unique<Trainer>(net, *optimizer, [this](const Batch& rows) {
      return (net->forward(rows[0]) - rows[1]).square().mean();
    });
  }
  void train() {
    // More shapes than one: recordings of both threads come in between.
    for (int i = 0; i < 60; ++i) {
      const int64_t rows = i % 3 == 2 ? 8 : 16;
      trainer->step({batch[0].narrow(0, 0, rows), batch[1].narrow(0, 0, rows)});
    }
  }

  torch::nn::Sequential net{nullptr};
  Batch batch;
  std::unique_ptr<torch::optim::Adam> optimizer;
  std::unique_ptr<Trainer> trainer;
};

void train_side_by_side(int devices) {
  const parity::OnDevices some(devices);
  init();
  Training alone(1);
  alone.train();
  Training first(1);
  Training second(2);
  std::thread other([&] { second.train(); });
  first.train();
  other.join();
  for (size_t i = 0; i < alone.net->parameters().size(); ++i) {
    EXPECT_TRUE(alone.net->parameters()[i].equal(first.net->parameters()[i])) << "parameter " << i;
  }
}

TEST(TrainersOnTwoThreads, TakeTurnsOnTheDevices) { train_side_by_side(2); }

TEST(TrainersOnTwoThreads, TakeTurnsOnOneDevice) { train_side_by_side(1); }

TEST(TrainersOnTwoThreads, AStepInsideOfAStepIsRefusedByName) {
  init();
  Training inner(1);
  Training outer(2);
  Trainer nested(outer.net, *outer.optimizer, [&](const Batch& rows) {
    inner.trainer->step(inner.batch);
    return outer.net->forward(rows[0]).square().mean();
  });
  try {
    nested.step(outer.batch);
    FAIL() << "it was trained";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("a step is asked for while another one runs"));
  }
  outer.trainer->step(outer.batch);  // the devices are free again
}

}  // namespace
}  // namespace epl

// zero.level = "v2" between steps: what a program may do with parameters of which workers keep
// parts, how much of them is in memory, and files.
#include <gmock/gmock.h>
#include <unistd.h>

#include "job/job.h"
#include "runtime/test_pages.h"
#include "tests/parity/zero_programs.h"

namespace epl::parity {
namespace {

using testing::HasSubstr;

const Exactness kAmplified =
    within(1e-2, "Adam makes whole steps of rounding where a gradient is almost 0");

struct SpreadTraining {
  SpreadTraining()
      : net(wide_net()), optimizer(net->parameters(), torch::optim::AdamWOptions(0.01)) {}
  Trainer trainer() { return Trainer(net, optimizer, classification(net)); }
  torch::Tensor large() const { return net->parameters()[0]; }

  std::shared_ptr<models::Mlp> net;
  torch::optim::AdamW optimizer;
};

Batch rows_of(int step, int worker, int workers) {
  torch::manual_seed(100 + step);
  Batch own;
  for (const auto& tensor : wide_batch(step)) {
    const int64_t each = tensor.size(0) / workers;
    own.push_back(tensor.narrow(0, worker * each, each));
  }
  return own;
}

void train(Trainer& trainer, int first, int steps, int worker, int workers = 2) {
  for (int i = first; i < first + steps; ++i) trainer.step(rows_of(i, worker, workers));
}

// Some steps on two workers, and what they do then.
void after_steps(const std::function<void(SpreadTraining&, Trainer&, int worker)>& work) {
  run_on_workers({1, 1}, [&](int worker) {
    epl::init(Config{{"zero.level", "v2"}});
    torch::manual_seed(3);
    SpreadTraining training;
    Trainer trainer = training.trainer();
    train(trainer, 0, 4, worker);
    work(training, trainer, worker);
  });
}

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "none";
}

std::string refusal(const std::function<void()>& work) { return error_of(work); }

// --- what the program sees
// ------------------------------------------------------------------------------

TEST(SpreadParameters, AreRefusedByEveryOperatorBetweenSteps) {
  after_steps([](SpreadTraining& training, Trainer& trainer, int) {
    const torch::NoGradGuard no_grad;
    torch::Tensor weight = training.large();
    const auto expected = testing::AllOf(HasSubstr("trainer.gather_parameters()"),
                                         HasSubstr("zero.level = \"v2\""), HasSubstr("weight"));
    EXPECT_THAT(error_of([&] { weight.sum(); }), expected);
    EXPECT_THAT(error_of([&] { weight.clone(); }), expected);
    EXPECT_THAT(error_of([&] { weight.detach(); }), expected);
    EXPECT_THAT(error_of([&] { weight.zero_(); }), expected);
    EXPECT_THAT(error_of([&] { weight.copy_(torch::zeros({256, 256})); }), expected);
    EXPECT_THAT(error_of([&] { weight.set_data(torch::zeros({256, 256})); }), expected);
    EXPECT_THAT(error_of([&] { torch::cat({torch::ones({256, 256}), weight}); }), expected);
    EXPECT_THAT(error_of([&] { training.net->to(torch::kDouble); }), expected);
    EXPECT_THAT(error_of([&] { training.net->forward(torch::zeros({1, 256})); }), expected);
    EXPECT_NE(error_of([&] { weight.data_ptr(); }), "none");
    EXPECT_NE(error_of([&] { weight.storage(); }), "none");
    EXPECT_EQ(weight.size(0), 256);
    EXPECT_TRUE(weight.requires_grad());
    EXPECT_THAT(error_of([&] { trainer.evaluate(classification(training.net), rows_of(0, 0, 2)); }),
                HasSubstr("trainer.gather_parameters()"));
    EXPECT_THAT(trainer.plan(), testing::AllOf(HasSubstr("each keep a part of 512.0 KiB"),
                                               HasSubstr("spread 131072"), HasSubstr("fetch")));
  });
}

TEST(SpreadParameters, AreNeverWrittenToAFileByParts) {
  const std::string path = testing::TempDir() + "spread_net" + std::to_string(getpid());
  after_steps([&](SpreadTraining& training, Trainer&, int) {
    EXPECT_NE(error_of([&] { torch::save(training.net, path); }), "none");
  });
  unlink(path.c_str());
}

TEST(SpreadParameters, AreOfUseOnceTheyAreGathered) {
  const std::string path = testing::TempDir() + "spread_gathered" + std::to_string(getpid());
  after_steps([&](SpreadTraining& training, Trainer& trainer, int worker) {
    trainer.gather_parameters();
    const torch::Tensor before = training.large().detach().clone();
    EXPECT_GT(before.abs().min().item<float>(), 0);
    EXPECT_TRUE(training.large().requires_grad());
    EXPECT_NO_THROW(trainer.evaluate(classification(training.net), rows_of(0, 0, 2)));
    if (worker == 0) torch::save(training.net, path);
    {
      const torch::NoGradGuard no_grad;
      training.large().mul_(2);  // on all workers
    }
    train(trainer, 4, 2, worker);
    EXPECT_NE(error_of([&] { training.large().sum(); }), "none");
    trainer.gather_parameters();
    EXPECT_LT((training.large().detach() - 2 * before).abs().max().item<float>(), 0.1);
  });
  auto loaded = wide_net();
  torch::load(loaded, path);
  unlink(path.c_str());
  EXPECT_GT(loaded->parameters()[0].abs().sum().item<float>(), 0);
}

// What one worker alone changes is seen, as ever.
TEST(SpreadParameters, ThatOneWorkerAloneChangesAreSeen) {
  const std::string said = refusal([] {
    after_steps([](SpreadTraining& training, Trainer& trainer, int worker) {
      trainer.gather_parameters();
      const torch::NoGradGuard no_grad;
      if (worker == 0) training.large().mul_(2);
      train(trainer, 4, 2, worker);
    });
  });
  EXPECT_THAT(said, HasSubstr("has other parameters"));
}

TEST(SpreadParameters, WhoseMemorySomebodyHoldsStayWholeFromThenOn) {
  after_steps([](SpreadTraining& training, Trainer& trainer, int worker) {
    trainer.gather_parameters();
    const torch::Tensor kept = training.large().detach();
    const torch::Tensor before = kept.clone();
    train(trainer, 4, 3, worker);
    EXPECT_TRUE(torch::equal(kept, training.large()));
    EXPECT_FALSE(torch::equal(kept, before));
    EXPECT_THAT(trainer.plan(), HasSubstr("whose memory other tensors show as well"));
    EXPECT_NE(error_of([&] { training.net->parameters()[2].sum(); }), "none");
  });
}

// A view that is there from the start sees the same numbers as ever: its parameter stays whole.
TEST(SpreadParameters, StayWholeWhereTheProgramHoldsAView) {
  run_on_workers({1, 1}, [&](int worker) {
    epl::init(Config{{"zero.level", "v2"}});
    torch::manual_seed(3);
    SpreadTraining training;
    const torch::Tensor kept = training.large().detach();
    Trainer trainer = training.trainer();
    train(trainer, 0, 4, worker);
    EXPECT_TRUE(torch::equal(kept, training.large()));
    EXPECT_THAT(trainer.plan(), HasSubstr("whose memory other tensors show as well"));
  });
}

TEST(SpreadParameters, MayBeReplacedOnceTheyAreGathered) {
  after_steps([](SpreadTraining& training, Trainer& trainer, int worker) {
    trainer.gather_parameters();
    const torch::Tensor other = training.large().detach().clone() * 2;
    training.large().set_data(other.clone());
    train(trainer, 4, 2, worker);
    EXPECT_NE(error_of([&] { training.large().sum(); }), "none");
    trainer.gather_parameters();
    const float moved = (training.large().detach() - other).abs().max().item<float>();
    EXPECT_GT(moved, 0);
    EXPECT_LT(moved, 0.1);
  });
}

TEST(SpreadParameters, AreTrainedOnByASecondTrainer) {
  after_steps([](SpreadTraining& training, Trainer& trainer, int worker) {
    Trainer second = training.trainer();
    train(second, 4, 4, worker);
    EXPECT_NE(error_of([&] { training.large().sum(); }), "none");
    train(trainer, 8, 2, worker);
    second.gather_parameters();
    EXPECT_GT(training.large().detach().abs().sum().item<float>(), 0);
  });
}

TEST(SpreadParameters, AreHiddenFromCodeThatGivesRows) {
  after_steps([](SpreadTraining& training, Trainer& trainer, int worker) {
    trainer.step([&] {
      EXPECT_THAT(error_of([&] { training.large().sum(); }), HasSubstr("gather_parameters"));
      return rows_of(4, worker, 2);
    });
  });
}

TEST(SpreadParameters, StayWholeOnOneWorker) {
  run_on_workers({2}, [](int) {
    epl::init(Config{{"zero.level", "v2"}});
    SpreadTraining training;
    Trainer trainer = training.trainer();
    train(trainer, 0, 3, 0, 1);
    EXPECT_THAT(trainer.plan(), HasSubstr("there is nothing to be cut"));
    EXPECT_NO_THROW(training.large().sum());
  });
}

// --- memory
// ---------------------------------------------------------------------------------------

TEST(SpreadParameters, TakeTheMemoryOfTheirShare) {
  after_steps([](SpreadTraining& training, Trainer& trainer, int worker) {
    SpreadParameters& spread = Job::current()->spread();
    int large = 0;
    for (const auto& parameter : training.net->parameters()) {
      const auto memory = spread.find(parameter);
      if (memory == nullptr) continue;
      ++large;
      EXPECT_NEAR(resident_share(memory->tensor()), 0.5, 0.02);
    }
    EXPECT_EQ(large, 2);
    const MemoryReport report = trainer.memory();
    const MemoryReport::Worker& here = report.workers.at(static_cast<size_t>(worker));
    ASSERT_TRUE(here.measured_shared.has_value());
    EXPECT_NEAR(here.shared.total(), *here.measured_shared, 64 << 10) << report.str();
    EXPECT_GT(here.shared[MemoryKind::kWindows], 0);
  });
}

TEST(SpreadParameters, AreForecastAsTheyAreKept) {
  after_steps([](SpreadTraining&, Trainer& trainer, int worker) {
    const MemoryReport after = trainer.memory();
    const MemoryReport before = trainer.forecast(rows_of(0, worker, 2));
    EXPECT_EQ(before.workers.at(static_cast<size_t>(worker)).peak(),
              after.workers.at(static_cast<size_t>(worker)).peak())
        << before.str() << after.str();
    train(trainer, 4, 2, worker);
  });
}

// --- files
// ----------------------------------------------------------------------------------------

void train_and_save(int workers, const std::string& from, int first, int steps,
                    const std::string& to) {
  run_on_workers(std::vector<int>(static_cast<size_t>(workers), 1), [&](int worker) {
    epl::init(Config{{"zero.level", "v2"}});
    torch::manual_seed(3);
    SpreadTraining training;
    Trainer trainer = training.trainer();
    if (!from.empty()) trainer.load(from);
    train(trainer, first, steps, worker, workers);
    trainer.save(to);
    if (first == 0) {  // a file may be loaded in mid-training as well
      train(trainer, first + steps, 2, worker, workers);
      trainer.load(to);
      train(trainer, first + steps, 1, worker, workers);
    }
  });
}

TEST(SpreadParameters, OfAFileGoOnWithAnyNumberOfWorkers) {
  const std::string path = testing::TempDir() + "spread_file" + std::to_string(getpid());
  train_and_save(2, "", 0, 4, path + "a");
  torch::manual_seed(3);
  SpreadTraining plain;
  for (int i = 0; i < 6; ++i) {
    plain.optimizer.zero_grad();
    classification(plain.net)(rows_of(i, 0, 1)).loss.backward();
    plain.optimizer.step();
  }
  for (int workers : {1, 2, 3}) {
    SCOPED_TRACE(workers);
    train_and_save(workers, path + "a", 4, 2, path + "b");
    run_on_workers({1}, [&](int) {
      epl::init();
      SpreadTraining loaded;
      loaded.trainer().load(path + "b");
      EXPECT_TRUE(same_modules(*plain.net, *loaded.net, kAmplified));
    });
  }
  unlink((path + "a").c_str());
  unlink((path + "b").c_str());
}

}  // namespace
}  // namespace epl::parity

// zero.level: the states that workers keep parts of, in memory and in files, and what is refused.
#include <gmock/gmock.h>
#include <unistd.h>

#include "config/libtorch.h"
#include "tests/parity/zero_programs.h"

namespace epl::parity {
namespace {

// --- states
// ---------------------------------------------------------------------------------------

const Exactness kMoments = within(1e-4, "sums over workers in another order");
const Exactness kAmplified =
    within(1e-2, "Adam makes whole steps of rounding where a gradient is almost 0");

struct Training {
  Training() : net(wide_net()), optimizer(net->parameters(), torch::optim::AdamWOptions(0.01)) {}
  Trainer trainer() { return Trainer(net, optimizer, classification(net)); }

  std::shared_ptr<models::Mlp> net;
  torch::optim::AdamW optimizer;
};

std::vector<Batch> batches_of_steps(int steps) {
  torch::manual_seed(7);
  std::vector<Batch> batches;
  for (int i = 0; i < steps; ++i) batches.push_back(wide_batch(i));
  return batches;
}

Batch rows_of(const Batch& batch, int worker, int workers) {
  Batch own;
  for (const auto& tensor : batch) {
    const int64_t each = tensor.size(0) / workers;
    own.push_back(tensor.narrow(0, worker * each, each));
  }
  return own;
}

void init_with(const std::string& level) { epl::init(Config{{"zero.level", level}}); }

// Trains on some workers from a file where there is one, and saves another one.
void train_and_save(int workers, const std::string& from, int first, int steps,
                    const std::string& to) {
  run_on_workers(std::vector<int>(static_cast<size_t>(workers), 1), [&](int worker) {
    init_with("v0");
    torch::manual_seed(3);
    Training training;
    Trainer trainer = training.trainer();
    if (!from.empty()) trainer.load(from);
    const std::vector<Batch> batches = batches_of_steps(first + steps);
    for (int i = first; i < first + steps; ++i) {
      trainer.step(rows_of(batches[static_cast<size_t>(i)], worker, workers));
    }
    trainer.save(to);
  });
}

// The plain loop on all rows.
void train_plainly(Training& training, int first, int steps) {
  const std::vector<Batch> batches = batches_of_steps(first + steps);
  for (int i = first; i < first + steps; ++i) {
    training.optimizer.zero_grad();
    classification(training.net)(batches[static_cast<size_t>(i)]).loss.backward();
    training.optimizer.step();
  }
}

struct TemporaryFile {
  explicit TemporaryFile(const std::string& name)
      : path(testing::TempDir() + name + std::to_string(getpid())) {}
  ~TemporaryFile() { unlink(path.c_str()); }
  const std::string path;
};

TEST(ZeroStates, OfAFileGoOnWithAnyNumberOfWorkers) {
  const TemporaryFile first("zero_first"), second("zero_second");
  train_and_save(2, "", 0, 3, first.path);
  torch::manual_seed(3);
  Training plain;
  train_plainly(plain, 0, 5);
  for (int workers : {1, 2, 3}) {
    SCOPED_TRACE(workers);
    train_and_save(workers, first.path, 3, 2, second.path);
    run_on_workers({1}, [&](int) {
      init_with("");
      Training loaded;
      Trainer trainer = loaded.trainer();
      trainer.load(second.path);
      EXPECT_TRUE(same_modules(*plain.net, *loaded.net, kAmplified));
      const auto parameters = loaded.net->parameters();
      const auto expected = plain.net->parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        const auto& here = static_cast<torch::optim::AdamWParamState&>(
            *loaded.optimizer.state().at(state_key(parameters[i])));
        const auto& there = static_cast<torch::optim::AdamWParamState&>(
            *plain.optimizer.state().at(state_key(expected[i])));
        EXPECT_EQ(here.step(), 5);
        EXPECT_TRUE(same_tensor("exp_avg", there.exp_avg(), here.exp_avg(), kMoments));
        EXPECT_TRUE(same_tensor("exp_avg_sq", there.exp_avg_sq(), here.exp_avg_sq(), kMoments));
      }
    });
  }
}

std::string error_of_saving(torch::optim::Optimizer& optimizer, const std::string& path) {
  try {
    torch::save(optimizer, path);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

// A file of zeros is never written: torch::save() of a part is refused, and of all is LibTorch's.
TEST(ZeroStates, AreSavedByTheProgramOnceTheyAreGathered) {
  const TemporaryFile file("zero_optimizer"), early("zero_early");
  run_on_workers({1, 1}, [&](int worker) {
    init_with("v0");
    torch::manual_seed(3);
    Training training;
    Trainer trainer = training.trainer();
    const std::vector<Batch> batches = batches_of_steps(4);
    for (int i = 0; i < 2; ++i) trainer.step(rows_of(batches[static_cast<size_t>(i)], worker, 2));
    const std::string expected = "trainer.gather_optimizer_states()";
    EXPECT_THAT(error_of_saving(training.optimizer, early.path), testing::HasSubstr(expected));
    trainer.gather_optimizer_states();
    EXPECT_EQ(error_of_saving(training.optimizer, file.path) == "none", worker == 0);
    for (int i = 2; i < 4; ++i) trainer.step(rows_of(batches[static_cast<size_t>(i)], worker, 2));
    EXPECT_THAT(error_of_saving(training.optimizer, early.path), testing::HasSubstr(expected));
    trainer.gather_optimizer_states();
    if (worker == 0) torch::save(training.optimizer, file.path);
  });
  unlink(early.path.c_str());
  Training loaded;
  torch::manual_seed(3);
  Training plain;
  train_plainly(plain, 0, 4);
  torch::load(loaded.optimizer, file.path);
  const auto parameters = loaded.net->parameters();
  const auto expected = plain.net->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& here = static_cast<torch::optim::AdamWParamState&>(
        *loaded.optimizer.state().at(state_key(parameters[i])));
    const auto& there = static_cast<torch::optim::AdamWParamState&>(
        *plain.optimizer.state().at(state_key(expected[i])));
    EXPECT_EQ(here.step(), 4);
    EXPECT_TRUE(same_tensor("exp_avg", there.exp_avg(), here.exp_avg(), kMoments));
  }
}

// The share of each worker, forecast and by the devices' account.
TEST(ZeroStates, TakeTheMemoryOfTheirShare) {
  for (const std::string level : {"", "v0"}) {
    SCOPED_TRACE(level);
    run_on_workers({1, 1}, [&](int worker) {
      init_with(level);
      torch::manual_seed(3);
      Training training;
      Trainer trainer = training.trainer();
      const std::vector<Batch> batches = batches_of_steps(3);
      for (const Batch& batch : batches) trainer.step(rows_of(batch, worker, 2));
      int64_t bytes = 0;
      for (const auto& parameter : training.net->parameters()) {
        bytes += 2 * static_cast<int64_t>(parameter.nbytes());
      }
      const MemoryReport report = trainer.memory();
      const auto here = static_cast<size_t>(worker);
      const int64_t forecast = report.workers.at(here).shared[MemoryKind::kOptimizerState];
      const double share = static_cast<double>(forecast) / static_cast<double>(bytes);
      EXPECT_NEAR(share, level.empty() ? 1 : 0.5, 0.02);
      EXPECT_NE(trainer.plan().find(level.empty() ? "reduce" : "to ranges"), std::string::npos);
    });
  }
}

// One worker has one state for all of its devices.
TEST(ZeroStates, HaveNothingToBeCutOnOneWorker) {
  run_on_workers({2}, [](int) {
    init_with("v0");
    Training training;
    Trainer trainer = training.trainer();
    for (const Batch& batch : batches_of_steps(2)) trainer.step(batch);
    EXPECT_THAT(trainer.plan(), testing::HasSubstr("there is nothing to be cut"));
  });
}

// --- what a hostile reading found
// -----------------------------------------------------------------

// Which expert C++ takes differs from worker to worker: they record different steps, and nobody may
// own what the others do not know of.
TEST(Zero, HasNoOwnersWhereWorkersRecordDifferentSteps) {
  struct Experts : torch::nn::Module {
    Experts() {
      for (auto* expert : {&first, &second}) {
        const std::string name = expert == &first ? "first" : "second";
        *expert = register_module(name, torch::nn::Linear(256, 256));
      }
    }
    torch::nn::Linear first{nullptr}, second{nullptr};
  };
  const auto make = [] {
    auto net = std::make_shared<Experts>();
    return program(net, std::make_shared<torch::optim::AdamW>(net->parameters()),
                   [net](const Batch& batch) {
                     const bool first = batch[0].sum().item<float>() > 0;
                     return (first ? net->first : net->second)->forward(batch[0]).square().mean();
                   });
  };
  const auto batch = [](int) {
    return Batch{torch::cat({torch::rand({12, 256}), -torch::rand({12, 256})})};
  };
  EXPECT_TRUE(same_bits(make, batch,
                        Variant().steps(4).workers({1, 1}).differs_by_rows("experts by worker")));
}

std::string refusal(const std::function<void(int worker)>& work) {
  try {
    run_on_workers({1, 1}, work);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "none";
}

TEST(Zero, RefusesAnotherOrderInMemoryInMidTraining) {
  const std::string said = refusal([](int worker) {
    init_with("v0");
    torch::manual_seed(3);
    auto net = std::make_shared<torch::nn::Conv2dImpl>(torch::nn::Conv2dOptions(64, 64, 3));
    torch::optim::AdamW optimizer(net->parameters());
    Trainer trainer(net, optimizer,
                    [net](const Batch& batch) { return net->forward(batch[0]).square().mean(); });
    torch::manual_seed(4 + worker);
    const auto images = [] { return Batch{torch::randn({2, 64, 5, 5})}; };
    for (int i = 0; i < 3; ++i) trainer.step(images());
    net->weight.set_data(net->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
    for (int i = 0; i < 2; ++i) trainer.step(images());
  });
  EXPECT_THAT(said, testing::HasSubstr("channels_last and other orders before the first step"));
}

TEST(Zero, RefusesAnotherOptimizerForWhatIsCut) {
  const std::string said = refusal([](int worker) {
    init_with("v0");
    torch::manual_seed(3);
    Training training;
    Trainer trainer = training.trainer();
    const std::vector<Batch> batches = batches_of_steps(3);
    for (const Batch& batch : batches) trainer.step(rows_of(batch, worker, 2));
    Normed normed(training.net->parameters());
    Trainer second(training.net, normed, classification(training.net));
    for (const Batch& batch : batches) second.step(rows_of(batch, worker, 2));
  });
  EXPECT_THAT(said, testing::HasSubstr("workers keep parts of the states of"));
}

// On one worker alone: what its owners make of it would come to the others without a word.
TEST(ZeroStates, ThatOneWorkerAloneLoadsAreRefused) {
  const TemporaryFile file("zero_of_chief");
  for (bool of_optimizer : {true, false}) {
    const std::string said = refusal([&](int worker) {
      init_with("v0");
      torch::manual_seed(3);
      Training training;
      Training other;
      train_plainly(other, 0, 2);
      Trainer trainer = training.trainer();
      const std::vector<Batch> batches = batches_of_steps(8);
      for (int i = 0; i < 8; ++i) {
        if (i == 5 && worker == 0 && of_optimizer) {
          torch::save(other.optimizer, file.path);
          torch::load(training.optimizer, file.path);
        } else if (i == 5 && worker == 0) {
          const torch::NoGradGuard no_grad;
          training.net->parameters()[0].copy_(other.net->parameters()[0]);
        }
        trainer.step(rows_of(batches[static_cast<size_t>(i)], worker, 2));
      }
    });
    EXPECT_THAT(said, testing::HasSubstr(of_optimizer ? "has other states of its optimizers"
                                                      : "has other parameters"));
  }
}

// The program's own step() would go on with moments of which other workers have newer ones.
TEST(ZeroStates, AreHiddenFromThePlainLoop) {
  run_on_workers({1, 1}, [&](int worker) {
    init_with("v0");
    torch::manual_seed(3);
    Training training;
    Trainer trainer = training.trainer();
    const std::vector<Batch> batches = batches_of_steps(3);
    for (const Batch& batch : batches) trainer.step(rows_of(batch, worker, 2));
    classification(training.net)(batches[0]).loss.backward();
    EXPECT_THROW(training.optimizer.step(), c10::Error);
    training.optimizer.zero_grad();
    for (const Batch& batch : batches) trainer.step(rows_of(batch, worker, 2));
  });
}

// There is nothing to be gathered of what no step keeps.
TEST(ZeroStates, AreSavedWhereTheOptimizerKeepsNone) {
  const TemporaryFile file("zero_without_states");
  run_on_workers({1, 1}, [&](int worker) {
    init_with("v0");
    torch::manual_seed(3);
    auto net = wide_net();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Trainer trainer(net, optimizer, classification(net));
    for (const Batch& batch : batches_of_steps(3)) {
      trainer.step(rows_of(batch, worker, 2));
      trainer.save(file.path);
    }
  });
}

TEST(ZeroStates, AreSavedAfterALayerWasReplaced) {
  const TemporaryFile file("zero_replaced");
  run_on_workers({1, 1}, [&](int worker) {
    init_with("v0");
    torch::manual_seed(3);
    Training training;
    Trainer trainer = training.trainer();
    const std::vector<Batch> batches = batches_of_steps(6);
    for (int i = 0; i < 6; ++i) {
      if (i == 3) {
        auto& parameters = training.optimizer.param_groups()[0].params();
        parameters.erase(parameters.begin());
      }
      trainer.step(rows_of(batches[static_cast<size_t>(i)], worker, 2));
    }
    trainer.save(file.path);
  });
}

TEST(ZeroStates, AreSavedByATrainerThatHasNotStepped) {
  const TemporaryFile file("zero_other_trainer");
  run_on_workers({1, 1}, [&](int worker) {
    init_with("v0");
    torch::manual_seed(3);
    Training training;
    Trainer trainer = training.trainer();
    for (const Batch& batch : batches_of_steps(3)) trainer.step(rows_of(batch, worker, 2));
    Trainer second = training.trainer();
    second.save(file.path);
  });
}

}  // namespace
}  // namespace epl::parity

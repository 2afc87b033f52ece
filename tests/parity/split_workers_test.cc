// Operators cut over devices of several workers, which are processes.
#include <unistd.h>

#include <regex>

#include "job/job.h"
#include "tests/models/programs.h"
#include "tests/parity/split_models.h"

namespace epl::parity {
namespace {

class SplitWorkers : public testing::TestWithParam<std::string> {
 protected:
  testing::AssertionResult trains(int devices, std::vector<int> workers, int micro_batches = 1) {
    const Variant variant = Variant()
                                .steps(3)
                                .stages(devices)
                                .workers(std::move(workers))
                                .micro_batches(micro_batches)
                                .without_states();
    return trains_split(split_models().at(GetParam()), devices, variant);
  }
};

TEST_P(SplitWorkers, TrainOverTwo) { EXPECT_TRUE(trains(2, {1, 1})); }
TEST_P(SplitWorkers, TrainWithSeveralDevicesEach) { EXPECT_TRUE(trains(4, {2, 2}, 2)); }
TEST_P(SplitWorkers, TrainInReplicasWithinEach) { EXPECT_TRUE(trains(2, {2, 2})); }

INSTANTIATE_TEST_SUITE_P(Models, SplitWorkers,
                         testing::Values("mlp", "uneven classifier", "colocated classifier", "gpt",
                                         "conv", "tied", "mixture top 2"),
                         models::test_name);

// Each worker hands in its part of the rows, of all tensors: one that the step did not read was
// expected whole, and the first step ended with "sizes must match".
TEST(SplitBatches, MayHoldATensorThatNobodyReads) {
  SplitModel model = split_models().at("mlp");
  const MakeBatch read = model.batch;
  model.batch = [read](int step) {
    Batch batch = read(step);
    batch.push_back(torch::randn({batch[0].size(0), 3}));
    return batch;
  };
  const Variant variant = Variant().steps(3).stages(2).workers({1, 1}).without_states();
  EXPECT_TRUE(trains_split(model, 2, variant));
}

// The first worker is three times as fast, so that it has three quarters of what is cut. Workers
// read half of the rows each.
class SplitShares : public testing::TestWithParam<std::string> {
 protected:
  static void make_the_first_faster() {
    std::vector<DeviceSpeed> speeds(2);
    speeds[0].flops_per_second *= 3;
    Job::current()->set_speeds(speeds);
  }

  static Program seeded(const SplitModel& model) {
    torch::manual_seed(1);
    return model.make(2);
  }

  static double step_plainly(const Turn& turn, const Batch& batch) {
    turn.optimizers[0]->zero_grad();
    const torch::Tensor loss = turn.step(batch).loss;
    loss.backward();
    turn.optimizers[0]->step();
    return loss.item<double>();
  }

  static Batch half_of(const Batch& batch, int64_t worker) {
    Batch half;
    for (const torch::Tensor& rows : batch) half.push_back(rows.chunk(2).at(worker));
    return half;
  }

  static void expect_uneven_pieces(const std::string& plan) {
    const std::regex pieces(R"(is cut in dim \d+: (\d+), (\d+)\n)");
    int cut = 0;
    for (std::sregex_iterator found(plan.begin(), plan.end(), pieces), end; found != end; ++found) {
      EXPECT_GT(std::stoi((*found)[1]), 2 * std::stoi((*found)[2])) << (*found)[0];
      ++cut;
    }
    EXPECT_GT(cut, 0);
  }
};

TEST_P(SplitShares, TrainAsThePlainLoopDoes) {
  run_on_workers({1, 1}, [](int worker) {
    epl::init();
    make_the_first_faster();
    const SplitModel& model = split_models().at(GetParam());
    const Turn plain = seeded(model).turns[0];
    const Turn turn = seeded(model).turns[0];
    Trainer trainer(turn.modules, {*turn.optimizers[0]}, turn.step);
    for (int i = 0; i < 4; ++i) {
      torch::manual_seed(100 + i);
      const Batch batch = model.batch(i);
      const double loss = step_plainly(plain, batch);
      EXPECT_NEAR(trainer.step(half_of(batch, worker)).loss, loss, 1e-5) << "step " << i;
      EXPECT_TRUE(same_modules(*plain.modules[0].module, *turn.modules[0].module, model.exactness));
    }
    expect_uneven_pieces(trainer.plan());
  });
}

INSTANTIATE_TEST_SUITE_P(Models, SplitShares,
                         testing::Values("mlp", "uneven classifier", "gpt", "conv", "tied"),
                         models::test_name);

// The states of the optimizer lie with the pieces; in the file they are all together. Stage b is on
// workers that have a piece each, worker 0 may have none.
TEST(SplitFiles, HoldThePiecesOfAllWorkers) {
  const std::string path = testing::TempDir() + "epl_split_" + std::to_string(getpid()) + ".pt";
  const std::vector<std::pair<std::vector<int>, bool>> layouts = {
      {{1, 1}, false}, {{1, 1, 1}, true}, {{1, 2}, true}};
  for (const auto& [workers, staged] : layouts) {
    run_on_workers(workers, [&path, stages = staged](int) {
      epl::init(Config{{"pipeline.num_micro_batch", 2}});
      struct Training {
        explicit Training(bool stages)
            : trainer(net, optimizer, [this, stages](const Batch& batch) {
                torch::Tensor x = batch[0];
                if (stages) {
                  const With scope(replicate(1, "a"));
                  x = torch::tanh(x);
                }
                const With scope(split(2, "b"));
                return cross_entropy(net->forward(x), batch[1]);
              }) {}
        void step(int number) {
          torch::manual_seed(100 + number);
          trainer.step({torch::randn({8, 6}), classes(5, {8})});
        }
        std::shared_ptr<torch::nn::LinearImpl> net = std::make_shared<torch::nn::LinearImpl>(6, 5);
        torch::optim::Adam optimizer{net->parameters(), 0.1};
        Trainer trainer;
      };
      Training first(stages);
      for (int i = 0; i < 3; ++i) first.step(i);
      first.trainer.save(path);
      for (int i = 3; i < 6; ++i) first.step(i);
      Training second(stages);
      second.step(0);
      second.trainer.load(path);
      for (int i = 3; i < 6; ++i) second.step(i);
      EXPECT_TRUE(first.net->weight.equal(second.net->weight));
      EXPECT_TRUE(first.net->bias.equal(second.net->bias));
    });
    unlink(path.c_str());
  }
}

}  // namespace
}  // namespace epl::parity

// What workers hold of parameters that are cut over them, and what stays where it is.
#include <unistd.h>

#include <functional>
#include <iostream>
#include <set>
#include <sstream>

#include "config/libtorch.h"
#include "config/test_environment.h"
#include "runtime/test_pages.h"
#include "tests/parity/split_pair.h"

namespace epl::parity {
namespace {

const Config kPiecesStay{{"pipeline.gather_parameters", false}};

TEST(SplitMemory, OfAWorkerIsThatOfItsPieces) {
  const std::string path = testing::TempDir() + "epl_pieces_" + std::to_string(getpid()) + ".pt";
  run_on_workers({1, 1}, [&](int) {
    epl::init(kPiecesStay);
    const int64_t kClasses = 40'000;
    Adam pair(256, kClasses, 2, torch::optim::AdamOptions(1e-3));
    const auto expect_half = [&] {
      const torch::Tensor& weight = pair.net->head->weight;
      EXPECT_LT(resident_share(weight), 0.6);
      auto& states = pair.optimizer.state();
      const auto& state =
          static_cast<const torch::optim::AdamParamState&>(*states.at(epl::state_key(weight)));
      EXPECT_LT(resident_share(state.exp_avg()), 0.6);
      EXPECT_LT(resident_share(state.exp_avg_sq()), 0.6);
      EXPECT_GT(resident_share(state.exp_avg()), 0.4);
    };
    for (int i = 0; i < 2; ++i) pair.step(batch_of(8, kClasses, i));
    expect_half();
    pair.trainer.save(path);  // brings all of it together
    pair.expect_equal();
    pair.step(batch_of(8, kClasses, 2));
    expect_half();
    pair.step(batch_of(5, kClasses, 3));  // is recorded, with the whole parameters
    pair.trainer.gather_parameters();
    pair.expect_equal();
    pair.trainer.load(path);
    pair.step(batch_of(8, kClasses, 4));
    expect_half();
  });
  unlink(path.c_str());
}

// The same for stages: each worker holds the parameters of its own.
TEST(SplitMemory, OfAStageIsThatOfItsParameters) {
  run_on_workers({1, 1}, [](int worker) {
    epl::init(Config{{"pipeline.gather_parameters", false}, {"pipeline.num_micro_batch", 2}});
    const auto fresh = [] { return Sgd::fresh(2000, 2000); };
    const auto plain = fresh(), net = fresh();
    torch::optim::SGD plain_optimizer(plain->parameters(), 0.1), optimizer(net->parameters(), 0.1);
    Trainer trainer(net, optimizer, [&](const Batch& batch) {
      torch::Tensor x;
      {
        const With scope(replicate(1, "body"));
        x = torch::tanh(net->body(batch[0]));
      }
      const With scope(replicate(1, "head"));
      return cross_entropy(net->head(x), batch[1]);
    });
    for (int i = 0; i < 3; ++i) {
      const Batch batch = batch_of(i == 2 ? 4 : 8, 2000, i);  // the last one is recorded again
      plain_optimizer.zero_grad();
      plain->loss_of(batch).backward();
      plain_optimizer.step();
      trainer.step(batch);
    }
    const double share = resident_share(net->head->weight);
    EXPECT_TRUE(worker == 0 ? share < 0.1 : share > 0.9) << share;
    trainer.gather_parameters();
    for (const auto& parameter : plain->named_parameters()) {
      const torch::Tensor other = net->named_parameters()[parameter.key()];
      EXPECT_TRUE(torch::allclose(parameter.value(), other, 1e-4, 1e-6)) << parameter.key();
    }
  });
}

TEST(SplitMemory, ThatIsNotHereIsNoZeros) {
  run_on_workers({1, 1}, [](int) {
    epl::init(kPiecesStay);
    Sgd pair(256, 5000, 2, torch::optim::SGDOptions(0.1));
    const Batch batch = batch_of(8, 5000, 0);
    const auto loss = [&] {
      const auto answer =
          pair.trainer.evaluate([&](const Batch& own) { return pair.net->loss_of(own); }, batch);
      return answer.loss.item<float>();
    };
    EXPECT_NEAR(loss(), pair.plain->loss_of(batch).item<float>(), 1e-5);
    pair.step(batch);
    EXPECT_EQ(error_of(loss),
              "epl: 2.5 MiB of the parameters lie on other workers since the last step\n"
              "  asked by: epl::Trainer::evaluate\n"
              "  try:      trainer.gather_parameters() on all workers before, or "
              "pipeline.gather_parameters = true");
    pair.trainer.gather_parameters();
    EXPECT_NEAR(loss(), pair.plain->loss_of(batch).item<float>(), 1e-5);
  });
}

// What no step needs is said once, with what to do about it.
TEST(SplitMemory, ThatIsFetchedForNobodyIsSaid) {
  run_on_workers({1, 1}, [](int worker) {
    std::ostringstream said;
    std::streambuf* const before = std::clog.rdbuf(said.rdbuf());
    epl::init();
    Sgd pair(256, 5000, 2, torch::optim::SGDOptions(0.1));
    for (int i = 0; i < 2; ++i) pair.step(batch_of(8, 5000, i));
    pair.expect_equal();  // without being asked
    std::clog.rdbuf(before);
    const std::string words = "epl: after each step worker 0 fetches 2.5 MiB of parameters";
    const std::string all = said.str();
    EXPECT_EQ(all.find(words) != std::string::npos, worker == 0) << all;
    EXPECT_EQ(all.rfind(words), all.find(words)) << all;
  });
}

std::string notes_of(const Trainer& trainer) {
  const std::string plan = trainer.plan();
  return plan.substr(0, plan.find("program 0"));
}

// Few rows are cheap to sum over devices, many are not: layers may be cut otherwise for another
// batch. Over workers the pieces and the states of the optimizer cannot follow.
TEST(SplitLayouts, StayForBatchesOfOtherSizes) {
  const auto train = [](const std::function<void(Adam&)>& look) {
    Adam pair(512, 1000, 2, torch::optim::AdamOptions(1e-3));
    for (int i = 0; i < 6; ++i) {
      pair.step(batch_of(i % 2 == 0 ? 8 : 512, 1000, i));
      look(pair);
    }
    pair.trainer.gather_parameters();
    pair.expect_equal();
  };
  const auto count_layouts = [&](std::set<std::string>& found) {
    train([&](const Adam& pair) {
      const std::string notes = notes_of(pair.trainer);
      found.insert(notes.substr(notes.find("note")));
    });
  };
  run_on_workers({2}, [&](int) {
    epl::init(kPiecesStay);
    std::set<std::string> found;
    count_layouts(found);
    EXPECT_EQ(found.size(), 2u) << "the batches are no test: they are cut alike anyway";
  });
  for (const bool gathers : {true, false}) {
    run_on_workers({1, 1}, [&](int) {
      epl::init(Config{{"pipeline.gather_parameters", gathers}});
      std::set<std::string> found;
      count_layouts(found);
      EXPECT_EQ(found.size(), 1u);
    });
  }
}

// A worker that gets fewer rows than the others would wait for them, and they for it.
TEST(SplitLayouts, AreThoseOfAllWorkersAtOnce) {
  for (const bool gathers : {true, false}) {
    run_on_workers({1, 1}, [&](int worker) {
      epl::init(Config{{"pipeline.gather_parameters", gathers}});
      Sgd pair(96, 64, 2, torch::optim::SGDOptions(0.1));
      for (int i = 0; i < 2; ++i) pair.step(batch_of(8, 64, i));
      const std::string error = error_of([&] { pair.step(batch_of(worker == 0 ? 8 : 5, 64, 2)); });
      EXPECT_NE(error.find("differs from worker 0 in the batch: its line 1 is\n"
                           "    another shape than before: [5, 16], [5]\n"
                           "  and on worker 0\n    the shape of the step before"),
                std::string::npos)
          << error;
    });
  }
}

// Divides the gradient by its norm, which is not that of a piece.
struct ByNorm : torch::optim::Optimizer {
  explicit ByNorm(std::vector<torch::Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  torch::Tensor step(LossClosure) override {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : param_groups()[0].params()) {
      if (parameter.grad().defined()) parameter -= 0.1 * parameter.grad() / parameter.grad().norm();
    }
    return {};
  }
};

TEST(SplitLayouts, CannotBeUpdatedByWhatSeesPieces) {
  run_on_workers({1, 1}, [](int) {
    epl::init();
    const auto net = Sgd::fresh(96, 64);
    ByNorm optimizer(net->parameters());
    Trainer trainer(net, optimizer, [&](const Batch& batch) {
      const With scope(split(2, "all"));
      return net->loss_of(batch);
    });
    const std::string error = error_of([&] { trainer.step(batch_of(8, 64, 0)); });
    EXPECT_NE(error.find("`body.weight` is cut over several workers, and LibTorch "),
              std::string::npos)
        << error;
    EXPECT_NE(error.find("ByNorm would see a piece of it where it expects the whole"),
              std::string::npos)
        << error;
  });
  run_on_workers({2}, [](int) {  // one worker has all pieces
    epl::init();
    const auto net = Sgd::fresh(96, 64), plain = Sgd::fresh(96, 64);
    ByNorm optimizer(net->parameters()), plain_optimizer(plain->parameters());
    Trainer trainer(net, optimizer, [&](const Batch& batch) {
      const With scope(split(2, "all"));
      return net->loss_of(batch);
    });
    trainer.step(batch_of(8, 64, 0));
    plain->loss_of(batch_of(8, 64, 0)).backward();
    plain_optimizer.step({});
    for (const auto& parameter : plain->named_parameters()) {
      const torch::Tensor other = net->named_parameters()[parameter.key()];
      EXPECT_TRUE(torch::allclose(parameter.value(), other, 1e-4, 1e-5)) << parameter.key();
    }
  });
}

// A layer that is frozen in mid-training goes on by its momentum, each piece where it lies.
TEST(SplitLayouts, OfFrozenLayersStay) {
  for (const bool gathers : {true, false}) {
    run_on_workers({1, 1}, [&](int) {
      epl::init(Config{{"pipeline.gather_parameters", gathers}});
      Sgd pair(96, 64, 2, torch::optim::SGDOptions(0.1).momentum(0.9));
      for (int i = 0; i < 6; ++i) {
        if (i == 3) {
          for (const auto& net : {pair.plain, pair.net}) net->body->weight.set_requires_grad(false);
        }
        pair.step(batch_of(8, 64, i));
        const bool cut =
            pair.trainer.plan().find("`body.weight` f32[96,16] is cut") != std::string::npos;
        EXPECT_TRUE(cut || i >= 3);
      }
      pair.trainer.gather_parameters();
      pair.expect_equal();
    });
  }
}

}  // namespace
}  // namespace epl::parity

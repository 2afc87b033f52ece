// trainer.what_fits(): what it recommends trains within the limit, and trains the plain loop's
// parameters.
#include <gmock/gmock.h>

#include "tests/models/mlp.h"
#include "tests/parity/on_devices.h"
#include "tests/parity/parity.h"
#include "tests/parity/pipelines.h"

namespace epl::parity {
namespace {

const Exactness kRounding = within(1e-5, "sums in another order");

// Backward reads what tanh and sigmoid made: many rows, and few parameters.
struct Waves : torch::nn::Module {
  Waves() {
    for (int i = 0; i < 6; ++i) {
      linear.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(16, 16)));
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& layer : linear) x = torch::tanh(layer->forward(x)) + torch::sigmoid(x);
    return x;
  }
  std::vector<torch::nn::Linear> linear;
};

Program waves() {
  auto net = std::make_shared<Waves>();
  return program(net, sgd(*net, 0.1, 0.9), classification(net));
}

MakeBatch rows_of(int64_t count) {
  return [count](int) { return Batch{torch::randn({count, 16}), classes(16, {count})}; };
}

// Of a fresh trainer, under these settings.
template <typename Ask>
auto ask_trainer(const MakeProgram& make, const std::vector<Setting>& settings, const Ask& ask) {
  init(Config(settings));
  torch::manual_seed(1);
  const Program made = make();
  const Turn& turn = made.turns.at(0);
  Trainer trainer(turn.modules, {*turn.optimizers.at(0)}, turn.step);
  return ask(trainer);
}

FittingReport report_on(const MakeProgram& make, const MakeBatch& batch, int64_t limit,
                        const std::vector<Setting>& settings = {}) {
  return ask_trainer(make, settings,
                     [&](Trainer& trainer) { return trainer.what_fits(batch(0), limit); });
}

// The changes, and the limit itself.
std::vector<Setting> applied(const FittingReport& report) {
  std::vector<Setting> settings;
  for (const Setting& change : report.recommended().changes) {
    if (change.key != "memory.limit") settings.push_back(change);
  }
  settings.push_back(Setting("memory.limit", report.limit));
  return settings;
}

// Within the limit by the forecast, and as the plain loop does.
testing::AssertionResult trains_as_recommended(const MakeProgram& make, const MakeBatch& batch,
                                               const FittingReport& report,
                                               const Exactness& exactness) {
  const std::vector<Setting> settings = applied(report);
  const int64_t forecast = ask_trainer(make, settings, [&](Trainer& trainer) {
    return trainer.forecast(batch(0)).workers.at(0).peak();
  });
  init();
  if (forecast > report.limit) {
    return testing::AssertionFailure() << forecast << " bytes are forecast\n" << report.str();
  }
  Variant variant;
  for (const Setting& change : settings) {
    const bool cuts = change.key == "pipeline.num_micro_batch";
    if (cuts) variant.micro_batches(static_cast<int>(*change.value.get_if<int64_t>()));
    if (!cuts) variant.with(change.key, change.value);
  }
  return parity(make, batch, exactness, variant);
}

int64_t bytes_of_row(const FittingReport& report, const std::string& name) {
  for (const FittingChange& row : report.rows) {
    if (row.str() == name) return row.bytes;
  }
  ADD_FAILURE() << name << " is in no row of\n" << report.str();
  return 0;
}

constexpr const char* kAgain = "gradient_checkpoint.type = \"auto\"";

TEST(WhatFits, IsTheConfigurationAsItIsWhereAllFits) {
  const MakeBatch batch = rows_of(512);
  const int64_t now = report_on(waves, batch, 1).rows.at(0).bytes;
  const FittingReport report = report_on(waves, batch, now);
  EXPECT_EQ(report.rows.size(), 1U);
  EXPECT_TRUE(report.recommended().fits);
  EXPECT_EQ(report.recommended().str(), "as it is");
  const FittingReport less = report_on(waves, batch, now - 1);
  EXPECT_FALSE(less.rows.at(0).fits);
  EXPECT_FALSE(less.recommended().changes.empty());
}

// Rows that cannot be halved: what remains is to compute some again.
TEST(WhatFits, RecommendsRecomputationWithinTheLimit) {
  const MakeBatch batch = rows_of(511);
  const FittingReport least = report_on(waves, batch, 1);
  const int64_t limit = (least.rows.at(0).bytes + bytes_of_row(least, kAgain)) / 2;
  const FittingReport report = report_on(waves, batch, limit);
  EXPECT_EQ(report.recommended().str(), "memory.limit = " + std::to_string(limit));
  EXPECT_TRUE(report.recommended().fits);
  EXPECT_GT(report.recommended().seconds_vs_now, 1);
  EXPECT_LE(report.recommended().bytes, limit);
  EXPECT_TRUE(trains_as_recommended(waves, batch, report, bit_equal()));
}

// A limit once reached 316544 bytes where "auto" stopped above: buffers lay otherwise in its arena.
TEST(WhatFits, KnowsNoLimitThatNeedsLessThanTheLeastRecomputation) {
  for (const int64_t rows : {511, 512}) {
    const MakeBatch batch = rows_of(rows);
    const int64_t least = bytes_of_row(report_on(waves, batch, 1), kAgain);
    const auto keeps = [&](int64_t limit) {
      return ask_trainer(waves, {{"memory.limit", limit}}, [&](Trainer& trainer) {
        try {
          trainer.forecast(batch(0));
        } catch (const Error&) {
          return false;
        }
        return true;
      });
    };
    EXPECT_TRUE(keeps(least));
    for (int64_t below = least - 1; below > least * 9 / 10; below -= least / 90) {
      EXPECT_FALSE(keeps(below)) << below << " of " << least << ", " << rows << " rows";
    }
    std::cout << rows << " rows: at least " << least << " bytes\n";
  }
  init();
}

TEST(WhatFits, RecommendsMoreMicroBatchesWhereRecomputationIsNotEnough) {
  const MakeBatch batch = rows_of(512);
  const FittingReport least = report_on(waves, batch, 1);
  const int64_t again = bytes_of_row(least, kAgain);
  const int64_t both = bytes_of_row(least, std::string(kAgain) + ", pipeline.num_micro_batch = 2");
  ASSERT_LT(both, again);
  const FittingReport report = report_on(waves, batch, both);
  const FittingChange& best = report.recommended();
  EXPECT_TRUE(best.fits);
  EXPECT_FALSE(best.changes_numbers);
  EXPECT_THAT(best.str(), testing::HasSubstr("pipeline.num_micro_batch = 2"));
  EXPECT_TRUE(trains_as_recommended(waves, batch, report, kRounding));
}

// Under a limit that cannot be kept the same is found.
TEST(WhatFits, AnswersUnderALimitThatCannotBeKept) {
  const MakeBatch batch = rows_of(512);
  const FittingReport least = report_on(waves, batch, 1);
  const int64_t limit = bytes_of_row(least, std::string(kAgain) + ", pipeline.num_micro_batch = 2");
  const FittingReport free = report_on(waves, batch, limit);
  const FittingReport limited = report_on(waves, batch, limit, {{"memory.limit", limit}});
  EXPECT_EQ(limited.recommended().str(), free.recommended().str());
  EXPECT_EQ(limited.rows.at(0).bytes, free.rows.at(0).bytes);
}

// States are most of it: on two workers each keeps its share, and the limit knows of it.
TEST(WhatFits, RecommendsZeroWhereStatesAreMost) {
  const auto wide = [] {
    auto net = std::make_shared<models::Mlp>(256, 256, 3, 7);
    return program(net, std::make_shared<torch::optim::AdamW>(net->parameters()),
                   classification(net));
  };
  const auto batch = [](int) { return Batch{torch::randn({8, 256}), classes(7, {8})}; };
  run_on_workers({1, 1}, [&](int) {
    const FittingReport least = report_on(wide, batch, 1);
    const int64_t cut = bytes_of_row(least, "zero.level = \"v0\"");
    const int64_t limit = (least.rows.at(0).bytes + cut) / 2;
    const FittingReport report = report_on(wide, batch, limit);
    EXPECT_EQ(report.recommended().str(), "zero.level = \"v0\"") << report.str();
    ask_trainer(wide, applied(report), [&](Trainer& trainer) {
      for (int step = 0; step < 3; ++step) trainer.step(batch(step));
      const MemoryReport used = trainer.memory();
      for (const auto& worker : used.workers) {
        EXPECT_LE(worker.shared[MemoryKind::kOptimizerState], cut) << used.str();
      }
    });
    ask_trainer(wide, {{"memory.limit", limit}},
                [&](Trainer& trainer) { EXPECT_THROW(trainer.forecast(batch(0)), Error); });
  });
}

// In a pipeline it is the stage that needs most.
TEST(WhatFits, AnswersForPipelines) {
  const OnDevices devices(2);
  const MakeProgram staged = [] {
    auto net = std::make_shared<Waves>();
    return program(net, sgd(*net, 0.1, 0.9), [net](const Batch& batch) {
      torch::Tensor x = batch[0];
      for (size_t i = 0; i < net->linear.size(); ++i) {
        const With scope(stage(i < 3 ? 0 : 1));
        x = torch::tanh(net->linear[i]->forward(x)) + torch::sigmoid(x);
      }
      return cross_entropy(x, batch[1]);
    });
  };
  const MakeBatch batch = rows_of(2 * 255);
  const std::vector<Setting> settings = {{"pipeline.num_micro_batch", 2}};
  const FittingReport least = report_on(staged, batch, 1, settings);
  const int64_t now = least.rows.at(0).bytes;
  const int64_t limit = (now + bytes_of_row(least, kAgain)) / 2;
  ASSERT_LT(limit, now) << least.str();
  const FittingReport report = report_on(staged, batch, limit, settings);
  EXPECT_EQ(report.recommended().str(), "memory.limit = " + std::to_string(limit)) << report.str();
  EXPECT_TRUE(parity(staged, batch, bit_equal(), pipeline(2, 2).with("memory.limit", limit)));
}

}  // namespace
}  // namespace epl::parity

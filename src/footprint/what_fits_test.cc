// Which changes are tried, and which of them is recommended: by plans that a test makes up.
#include "footprint/what_fits.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "base/text.h"
#include "config/test_environment.h"

namespace epl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A step of 1000 bytes and 1 second. Recomputation brings it down to 600 bytes at most, at a second
// for 1000 bytes; micro batches halve it.
struct WhatFits : EnvironmentFixture {
  PlannedNeed plan(const Config& config) {
    ++plans;
    const auto micro_batches = config.get<int64_t>("pipeline.num_micro_batch");
    PlannedNeed need{1000 / micro_batches, 1 + 0.5 * static_cast<double>(micro_batches - 1)};
    if (config.get<std::string>("zero.level") == "v0") need.bytes -= 300 / micro_batches;
    if (config.get<std::string>("amp.level") == "O1") need = {need.bytes / 2, need.seconds / 2};
    const int64_t least = need.bytes * 6 / 10;
    const int64_t limit = config.get<int64_t>("memory.limit");
    const int64_t most = limit > 0 ? limit : need.bytes;
    const bool runs_again = config.get<std::string>("gradient_checkpoint.type") == "auto";
    const int64_t allowed = runs_again && limit == 0 ? least : std::min(need.bytes, most);
    if (allowed < least) throw Error(concat("a device needs at least ", least, " bytes"), "limit");
    need.seconds += static_cast<double>(need.bytes - allowed) / 1000;
    need.bytes = allowed;
    need.by_rows = by_rows;
    return need;
  }

  FittingReport report(int64_t limit, const Config& config = {}) {
    FittingRequest request{config, limit};
    request.plan = [this](const Config& asked) { return plan(asked); };
    request.several_workers = workers;
    request.rows_can_be_halved = halves;
    return what_fits(request);
  }

  static std::vector<std::string> names(const FittingReport& report) {
    std::vector<std::string> all;
    for (const FittingChange& row : report.rows) all.push_back(row.str());
    return all;
  }

  bool workers = false;
  bool halves = false;
  std::string by_rows;
  int plans = 0;
};

const char* const kAmp = "amp.level = \"O1\"";

TEST_F(WhatFits, NothingIsChangedWhereAllFits) {
  const FittingReport all = report(1000);
  EXPECT_THAT(names(all), ElementsAre("as it is"));
  EXPECT_TRUE(all.recommended().fits);
  EXPECT_EQ(plans, 1);
}

TEST_F(WhatFits, TriesSingleChangesAndThenPairs) {
  halves = true;
  workers = true;
  const std::string recompute = "gradient_checkpoint.type = \"auto\"";
  const std::string zero = "zero.level = \"v0\"";
  const std::string sums = "zero.level = \"v1\"";
  const std::string spread = "zero.level = \"v2\"";
  const std::string micro = "pipeline.num_micro_batch = 2";
  EXPECT_THAT(
      names(report(250)),
      ElementsAre("as it is", recompute, zero, sums, spread, micro, kAmp, recompute + ", " + zero,
                  recompute + ", " + sums, recompute + ", " + spread, recompute + ", " + micro,
                  recompute + ", " + kAmp, zero + ", " + micro, zero + ", " + kAmp,
                  sums + ", " + micro, sums + ", " + kAmp, spread + ", " + micro,
                  spread + ", " + kAmp, micro + ", " + kAmp));
}

TEST_F(WhatFits, LeavesOutWhatDoesNotApply) {
  EXPECT_THAT(names(report(700, Config{{"amp.level", "O1"}})), ElementsAre("as it is"));
  EXPECT_THAT(names(report(400, Config{{"amp.level", "O1"}})),
              ElementsAre("as it is", "memory.limit = 400"));
  workers = true;
  EXPECT_THAT(names(report(200, Config{{"amp.level", "O1"}, {"zero.level", "v2"}})),
              ElementsAre("as it is", "gradient_checkpoint.type = \"auto\""));
}

TEST_F(WhatFits, RecommendsTheShortestStepThatFits) {
  halves = true;
  const FittingReport all = report(700);
  EXPECT_EQ(all.recommended().str(), "memory.limit = 700");
  EXPECT_EQ(all.recommended().bytes, 700);
  EXPECT_NEAR(all.recommended().seconds_vs_now, 1.3, 1e-9);
  EXPECT_EQ(report(500).recommended().str(), "pipeline.num_micro_batch = 2");
  EXPECT_EQ(report(400).recommended().str(), "memory.limit = 400, pipeline.num_micro_batch = 2");
}

// Mixed precision is the fastest, and fits: it is recommended where nothing else does.
TEST_F(WhatFits, RecommendsOtherNumbersOnlyWhereNothingElseFits) {
  const FittingReport all = report(700);
  const FittingChange& lower = all.rows.at(2);
  EXPECT_EQ(lower.str(), kAmp);
  EXPECT_TRUE(lower.fits && lower.changes_numbers);
  EXPECT_LT(lower.seconds_vs_now, all.recommended().seconds_vs_now);
  EXPECT_EQ(all.recommended().str(), "memory.limit = 700");
  EXPECT_EQ(report(500).recommended().str(), kAmp);
}

TEST_F(WhatFits, KnowsStepsWhoseRowsMayNotBeCut) {
  halves = true;
  by_rows = "batch norm of fewer rows";
  const FittingReport all = report(400);
  const FittingChange& micro = all.rows.at(2);
  EXPECT_EQ(micro.str(), "pipeline.num_micro_batch = 2");
  EXPECT_TRUE(micro.changes_numbers);
  EXPECT_EQ(micro.note,
            "other numbers: batch norm of fewer rows; sums and random numbers in another order");
  EXPECT_FALSE(all.rows.at(1).changes_numbers);
}

// With a limit a step that fits already is the same step.
TEST_F(WhatFits, AddsNoLimitToWhatFitsWithoutIt) {
  halves = true;
  EXPECT_THAT(names(report(500)),
              testing::Not(testing::Contains("memory.limit = 500, pipeline.num_micro_batch = 2")));
}

TEST_F(WhatFits, OfEquallyLongStepsTakesTheSmallerChange) {
  const Config config;
  FittingRequest request{config, 500};
  request.rows_can_be_halved = true;
  request.plan = [](const Config& asked) {
    const bool cut = asked.get<int64_t>("pipeline.num_micro_batch") > 1;
    return PlannedNeed{cut ? 500 : 1000, 1};
  };
  EXPECT_EQ(what_fits(request).recommended().str(), "pipeline.num_micro_batch = 2");
}

TEST_F(WhatFits, RecommendsTheLeastWhereNothingFits) {
  halves = true;
  const FittingReport all = report(1);
  const FittingChange& least = all.recommended();
  EXPECT_FALSE(least.fits);
  EXPECT_EQ(least.str(), concat("pipeline.num_micro_batch = 2, ", kAmp));
  EXPECT_THAT(all.str(), HasSubstr("nothing that was tried fits; the least is 250 B: "));
  const FittingChange& again = all.rows.at(1);
  EXPECT_EQ(again.str(), "gradient_checkpoint.type = \"auto\"");
  EXPECT_EQ(again.bytes, 600);
}

// A limit that cannot be kept is why it is asked: the rest is planned without it.
TEST_F(WhatFits, AnswersWhereTheConfigurationHasALimitThatCannotBeKept) {
  halves = true;
  const FittingReport all = report(500, Config{{"memory.limit", 500}});
  EXPECT_EQ(all.rows.at(0).note, "without memory.limit");
  EXPECT_EQ(all.rows.at(0).bytes, 1000);
  EXPECT_EQ(all.recommended().str(), "pipeline.num_micro_batch = 2");
}

TEST_F(WhatFits, HasARowForALimitThatIsKeptNow) {
  const FittingReport all = report(650, Config{{"memory.limit", 900}});
  EXPECT_EQ(all.rows.at(0).bytes, 900);
  EXPECT_EQ(all.rows.at(0).note, "");
  EXPECT_EQ(all.recommended().str(), "memory.limit = 650");
}

TEST_F(WhatFits, ChoosesInPlaceOfMarks) {
  const FittingReport all = report(650, Config{{"gradient_checkpoint.type", "collection"}});
  EXPECT_EQ(all.recommended().str(), "gradient_checkpoint.type = \"auto\", memory.limit = 650");
}

TEST_F(WhatFits, TellsWhatCannotBePlanned) {
  const Config config;
  FittingRequest request{config, 500};
  request.rows_can_be_halved = true;
  request.plan = [](const Config& asked) {
    if (asked.get<int64_t>("pipeline.num_micro_batch") > 1) {
      throw Error("rows cannot be cut", "somebody", "something");
    }
    if (asked.get<std::string>("amp.level") == "O1") throw std::runtime_error("no kernel\nstack");
    const bool again = asked.get<std::string>("gradient_checkpoint.type") == "auto" ||
                       asked.get<int64_t>("memory.limit") > 0;
    return PlannedNeed{again ? 800 : 1000, again ? 2.0 : 1.0};
  };
  const FittingReport all = what_fits(request);
  EXPECT_THAT(names(all),
              ElementsAre("as it is", "memory.limit = 500", "pipeline.num_micro_batch = 2", kAmp));
  EXPECT_EQ(all.rows[2].note, "rows cannot be cut");
  EXPECT_EQ(all.rows[3].note, "no kernel");
  EXPECT_EQ(all.rows[3].bytes, 0);
  EXPECT_EQ(all.recommended().bytes, 800);
}

TEST_F(WhatFits, ThrowsWhereTheStepCannotBePlannedAtAll) {
  const Config config;
  FittingRequest request{config, 500};
  request.plan = [](const Config&) -> PlannedNeed { throw Error("no plan"); };
  EXPECT_EQ(error_of([&] { what_fits(request); }), "epl: no plan");
  EXPECT_THAT(error_of([&] { report(0); }), HasSubstr("a limit of 0 bytes a device"));
}

}  // namespace
}  // namespace epl

#include "amp/loss_scale.h"

#include <gtest/gtest.h>

#include <vector>

namespace epl {
namespace {

LossScale after(LossScale scale, int64_t steps, bool finite) {
  for (int64_t i = 0; i < steps; ++i) scale.step_ended(finite);
  return scale;
}

TEST(LossScale, FollowsTheTable) {
  struct Run {
    int64_t steps;
    bool finite;
  };
  const struct {
    const char* what;
    std::vector<Run> runs;
    double value;
  } table[] = {
      {"begins at 2^15", {}, 32768},
      {"stays for 1999 good steps", {{1999, true}}, 32768},
      {"doubles with the 2000th", {{2000, true}}, 65536},
      {"doubles again after 2000 more", {{4000, true}}, 131072},
      {"halves at once", {{1, false}}, 16384},
      {"halves each time", {{3, false}}, 4096},
      {"is never below 1", {{40, false}}, 1},
      {"grows from there", {{40, false}, {2000, true}}, 2},
      {"counts good steps in a row", {{1999, true}, {1, false}, {1999, true}}, 16384},
      {"a bad step between", {{1999, true}, {1, false}, {2000, true}}, 32768},
  };
  for (const auto& row : table) {
    LossScale scale;
    for (const Run& run : row.runs) scale = after(scale, run.steps, run.finite);
    EXPECT_EQ(scale.value(), row.value) << row.what;
  }
}

TEST(LossScale, StopsGrowing) {
  LossScale scale;
  scale.go_on_from(LossScale::kMost, LossScale::kGoodSteps - 1);
  scale.step_ended(true);
  EXPECT_EQ(scale.value(), LossScale::kMost);
}

TEST(LossScale, FixedStaysAsItIs) {
  const LossScale scale = LossScale::fixed(128);
  EXPECT_EQ(after(scale, 5000, true).value(), 128);
  EXPECT_EQ(after(scale, 3, false).value(), 128);
  LossScale loaded = scale;
  loaded.go_on_from(4, 10);
  EXPECT_EQ(loaded.value(), 128);
}

TEST(LossScale, ShrinksWhereItIsDynamicAndAboveOne) {
  EXPECT_TRUE(LossScale().can_shrink());
  EXPECT_FALSE(after(LossScale(), 15, false).can_shrink());
  EXPECT_FALSE(LossScale::fixed(128).can_shrink());
}

TEST(LossScale, GoesOnFromWhereItWas) {
  LossScale first = after(LossScale(), 1500, true);
  LossScale second;
  second.go_on_from(first.value(), first.good_steps());
  EXPECT_EQ(after(second, 499, true).value(), 32768);
  EXPECT_EQ(after(second, 500, true).value(), 65536);
}

}  // namespace
}  // namespace epl

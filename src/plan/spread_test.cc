#include "plan/spread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "plan/program_parts.h"
#include "program/near_bytes.h"
#include "program/test_plan.h"
#include "program/verify.h"

namespace epl {
namespace {

TensorType square(int64_t side) {
  TensorType type;
  type.dtype = c10::kFloat;
  type.sizes = {side, side};
  type.strides = contiguous_strides(type.sizes);
  return type;
}

Plan plan_of(const std::vector<int64_t>& sides) {
  Plan plan;
  Program& program = plan.programs.emplace_back();
  for (int64_t side : sides) {
    Slot leaf;
    leaf.where = Slot::Where::kLeaf;
    leaf.index = static_cast<int>(program.leaves.size());
    leaf.type = square(side);
    PlanLeaf made;
    made.name = "p" + std::to_string(leaf.index);
    made.slot = add_slot(program, leaf);
    program.gradients.push_back({leaf.index, add_slot(program, fixed_slot(program, leaf.type))});
    program.leaves.push_back(std::move(made));
  }
  return plan;
}

ZeroOptions on_workers(std::vector<int> devices) {
  ZeroOptions options;
  options.shares = {std::move(devices)};
  options.spreads = true;
  options.spread = {"p0", "p1", "p2"};
  return options;
}

void spread(const ZeroOptions& options, Plan& plan) {
  assign_owners(options, plan);
  spread_parameters(options, plan);
}

TEST(SpreadPlan, SaysWhatOthersKeepOnTheWorkerThatKeepsLeast) {
  Plan plan = plan_of({256, 16, 256});
  spread(on_workers({2, 1}), plan);
  const auto& leaves = plan.programs[0].leaves;
  EXPECT_EQ(leaves[0].others, 256 * 256 * 4 - 22 * 1024 * 4);
  EXPECT_FALSE(leaves[1].is_spread());  // one worker owns all of it
  EXPECT_EQ(near_bytes(plan.programs[0], 0, false), leaves[0].others);
  EXPECT_EQ(plan.remarks.back(), "zero: workers each keep a part of 512.0 KiB of parameters");
}

TEST(SpreadPlan, LeavesWhatTheStepWritesOrOthersShowWhole) {
  Plan plan = plan_of({256, 256, 256});
  plan.programs[0].written_leaves = {1};
  ZeroOptions options = on_workers({1, 1});
  options.spread = {"p0", "p1"};
  spread(options, plan);
  EXPECT_TRUE(plan.programs[0].leaves[0].is_spread());
  EXPECT_FALSE(plan.programs[0].leaves[1].is_spread());
  EXPECT_FALSE(plan.programs[0].leaves[2].is_spread());
  EXPECT_THAT(plan.remarks.back(),
              testing::AllOf(testing::HasSubstr("256.0 KiB that the step itself writes"),
                             testing::HasSubstr("256.0 KiB whose memory other tensors show")));
}

TEST(SpreadPlan, LeavesAllWholeWhereTheStepReadsValuesBack) {
  Plan plan = plan_of({256});
  plan.programs[0].has_guards = true;
  spread(on_workers({1, 1}), plan);
  EXPECT_FALSE(plan.programs[0].leaves[0].is_spread());
  EXPECT_THAT(plan.remarks.back(), testing::HasSubstr("reads values back into C++"));
}

TEST(SpreadPlan, HasNothingToSpreadOnOneWorker) {
  Plan plan = plan_of({256});
  spread(on_workers({4}), plan);
  EXPECT_FALSE(plan.programs[0].leaves[0].is_spread());
}

// A parameter that this step gives no gradient is spread where an earlier one was.
TEST(SpreadPlan, SpreadsWhatIsSettledWithoutAGradient) {
  Plan plan = plan_of({256});
  plan.programs[0].gradients.clear();
  ZeroOptions options = on_workers({1, 1});
  options.settled = {{"p0", {Owners::Kind::kRanges, 0}}};
  spread(options, plan);
  EXPECT_TRUE(plan.programs[0].leaves[0].is_spread());
}

}  // namespace
}  // namespace epl

#include "plan/zero.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "layout/tensor_type.h"
#include "plan/program_parts.h"

namespace epl {
namespace {

TensorType matrix(int64_t rows, int64_t columns) {
  TensorType type;
  type.dtype = c10::kFloat;
  type.sizes = {rows, columns};
  type.strides = contiguous_strides(type.sizes);
  return type;
}

void add_parameter(const std::string& name, const TensorType& type, Program& program) {
  Slot leaf;
  leaf.where = Slot::Where::kLeaf;
  leaf.index = static_cast<int>(program.leaves.size());
  leaf.type = type;
  PlanLeaf made;
  made.name = name;
  made.slot = add_slot(program, leaf);
  program.gradients.push_back({leaf.index, add_slot(program, fixed_slot(program, type))});
  program.leaves.push_back(std::move(made));
}

Plan plan_of(const std::vector<TensorType>& parameters) {
  Plan plan;
  Program& program = plan.programs.emplace_back();
  for (size_t i = 0; i < parameters.size(); ++i) {
    add_parameter("p" + std::to_string(i), parameters[i], program);
  }
  return plan;
}

std::string owners_of(const Plan& plan) {
  std::string text;
  for (const auto& gradient : plan.programs[0].gradients) {
    text += (gradient.owners.are_all() ? " to all" : print_owners(gradient.owners)) + ";";
  }
  return text;
}

TEST(Zero, CutsLargeParametersAndDealsOutSmallOnes) {
  Plan plan = plan_of({matrix(256, 256), matrix(1, 256), matrix(1, 256), matrix(1, 512)});
  ZeroOptions options;
  options.shares = {{1, 1}};
  assign_owners(options, plan);
  EXPECT_EQ(owners_of(plan), " to ranges; to rank 0; to rank 1; to rank 0;");
  EXPECT_EQ(plan.remarks.back(), "zero: workers update 131.0 KiB, 129.0 KiB of parameters");
}

TEST(Zero, DealsOutByDevices) {
  Plan plan = plan_of(std::vector<TensorType>(9, matrix(1, 256)));
  ZeroOptions options;
  options.shares = {{2, 1}};
  assign_owners(options, plan);
  int first = 0;
  for (const auto& gradient : plan.programs[0].gradients) first += gradient.owners.rank == 0;
  EXPECT_EQ(first, 6);
}

TEST(Zero, LeavesWhatIsSettledWhereItIs) {
  Plan plan = plan_of({matrix(1, 256), matrix(256, 256)});
  ZeroOptions options;
  options.shares = {{1, 1}};
  options.settled = {{"p0", {Owners::Kind::kRank, 1}}, {"p1", {Owners::Kind::kRank, 1}}};
  assign_owners(options, plan);
  EXPECT_EQ(owners_of(plan), " to rank 1; to rank 1;");
}

TEST(Zero, SaysWhatIsUpdatedWhole) {
  Plan plan = plan_of({matrix(256, 256), matrix(256, 256), matrix(8, 8)});
  plan.programs[0].slots[5].type.layout = c10::kSparse;  // the gradient of the third
  ZeroOptions options;
  options.shares = {{1, 1}};
  options.whole = {{"p1", "by my::Lion, which may look at all of a parameter"}};
  assign_owners(options, plan);
  EXPECT_EQ(owners_of(plan), " to ranges; to all; to all;");
  EXPECT_THAT(plan.remarks.back(),
              testing::HasSubstr("; all of them update 256.0 KiB by my::Lion, which may look at "
                                 "all of a parameter"));
  EXPECT_THAT(plan.remarks.back(), testing::HasSubstr("with sparse gradients"));
}

TEST(Zero, HasNothingToCutOnOneWorker) {
  Plan plan = plan_of({matrix(256, 256)});
  ZeroOptions options;
  options.shares = {{4}};
  assign_owners(options, plan);
  EXPECT_EQ(owners_of(plan), " to all;");
  EXPECT_THAT(plan.remarks.back(), testing::HasSubstr("there is nothing to be cut"));
}

}  // namespace
}  // namespace epl

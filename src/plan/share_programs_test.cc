#include "plan/share_programs.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "program/parse.h"
#include "program/text.h"
#include "program/verify.h"

namespace epl {
namespace {

// A device of a stage: its piece of `w`, which lies in the user's tensor, is added to its piece of
// the batch, a view; times a number of its own.
struct Part {
  int begin = 0;
  int length = 2;
  int alpha = 1;
  int leaf_begin = begin;
};

std::string offset(int value) { return value == 0 ? "" : concat("+", value); }

std::string program(size_t number, const Part& part) {
  const std::string type = concat("f32[", part.length, "]");
  return concat(
      "program ", number, "  1 device, arena 128 B\n", "mesh      replica 1 x part 3, part ",
      number, "\n   0  load    micro batch 0\n   1  run     step  micro batch 0\n",
      "   2  update  1 parameters  ", 4 * part.length, " B\nleaves\n",
      "    s0 f32[6] @0 = input 0\n    s1 ", type, offset(part.leaf_begin), " = \"w\" [",
      part.leaf_begin, ":", part.leaf_begin + part.length, " of 6 in dim 0]\nviews\n    s2 ", type,
      offset(part.begin), " @0\nsegment step\n    s3 ", type, " @64 = aten::add.out(s2, s1, ",
      part.alpha, ")  forward 0\n    return loss s3\ngradients\n    s3 of \"w\"\n");
}

Plan plan_of(const std::vector<Part>& parts) {
  std::string text = "plan: 3 programs, 1 micro batches, 1 replica of 3 devices, arena 128 B\n";
  for (size_t i = 0; i < parts.size(); ++i) text += program(i, parts[i]);
  return parse_plan(text);
}

std::vector<int> roles_of_programs(Plan plan) {
  share_programs(plan);
  verify_plan(plan);
  std::vector<int> roles;
  for (const Program& each : plan.programs) roles.push_back(each.roles);
  return roles;
}

TEST(SharePrograms, OfRolesWithTheNextPieceEach) {
  const Plan alone = plan_of({{0, 2, 1}, {2, 2, 4}, {4, 2, 7}});
  Plan shared = alone;
  share_programs(shared);
  EXPECT_NO_THROW(verify_plan(shared));
  EXPECT_EQ(print_plan(shared),
            R"(plan: 1 program, 1 micro batches, 1 replica of 3 devices, arena 128 B
program 0  3 roles, each 1 device, arena 128 B
mesh      replica 1 x part 3, parts 0 to 2
   0  load    micro batch 0
   1  run     step  micro batch 0
   2  update  1 parameters  8 B
leaves
    s0 f32[6] @0 = input 0
    s1 f32[2] by role 2 = "w" [0:2 of 6 in dim 0]
views
    s2 f32[2] by role 2 @0
segment step
    s3 f32[2] @64 = aten::add.out(s2, s1, 1 by role 3)  forward 0
    return loss s3
gradients
    s3 of "w"
)");
  EXPECT_EQ(print_plan(parse_plan(print_plan(shared))), print_plan(shared));
  ASSERT_EQ(shared.roles(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    const PlanRole role = shared.role(i);
    const Program& own = alone.programs[i];
    EXPECT_EQ(role.shard(1), own.leaves[1].shard);
    for (SlotId slot = 0; slot < 4; ++slot) {
      EXPECT_TRUE(role.type(slot).same_place(own.slots[static_cast<size_t>(slot)].type)) << slot;
    }
    const auto& operands = role.program.segments[0].calls[0].operands;
    EXPECT_EQ(role.constant(operands[2]), own.segments[0].calls[0].operands[2].constant);
  }
}

TEST(SharePrograms, OnlyOfNeighboursThatGrowEvenly) {
  // The last has another number than the step from the first to the second says.
  EXPECT_EQ(roles_of_programs(plan_of({{0, 2, 1}, {2, 2, 2}, {4, 2, 4}})),
            (std::vector<int>{2, 1}));
  // Its view of the batch begins elsewhere.
  EXPECT_EQ(roles_of_programs(plan_of({{0, 2, 1}, {2, 2, 1}, {3, 2, 1, 4}})),
            (std::vector<int>{2, 1}));
  // Uneven pieces are other shapes.
  EXPECT_EQ(roles_of_programs(plan_of({{0, 3, 1}, {3, 2, 1}, {5, 1, 1}})),
            (std::vector<int>{1, 1, 1}));
  // Not the next piece of the leaf.
  EXPECT_EQ(roles_of_programs(plan_of({{0, 2, 1, 4}, {2, 2, 1, 2}, {4, 2, 1, 0}})),
            (std::vector<int>{1, 1, 1}));
}

TEST(SharePrograms, OfOtherInstructionsStayApart) {
  Plan plan = plan_of({{0, 2, 1}, {2, 2, 1}, {4, 2, 1}});
  plan.programs[0].guard_tolerance = 1e-6;
  EXPECT_EQ(roles_of_programs(plan), (std::vector<int>{1, 2}));
  plan.programs[2].segments[0].calls[0].backward = true;
  EXPECT_EQ(roles_of_programs(plan), (std::vector<int>{1, 1, 1}));
}

}  // namespace
}  // namespace epl

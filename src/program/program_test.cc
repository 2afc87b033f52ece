#include "program/program.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/check.h"
#include "program/plan_mesh.h"
#include "program/test_plan.h"
#include "program/text.h"
#include "program/verify.h"

namespace epl {
namespace {

using namespace test_plan;

TEST(PrintPlan, WritesAllThatAPlanHolds) {
  EXPECT_EQ("\n" + print_plan(good_plan()), R"(
plan: 1 program, 1 micro batches, arena 256 B
program 0
   0  load    micro batch 0
   1  run     step  micro batch 0
   2  update  1 parameters  16 B
   3  update  1 parameters  16 B
leaves
    s0 f32[4] @0 = input 0
    s1 f32[] = seed
    s2 f32[4] = "w"
    s3 f32[4] = "table"
    no slot = "unused"
views
    s10 f32[2,2] of "w"
    s11 f32[2] @64 in buffer 1
segment step
    s4 f32[4] @64 = aten::mul.Tensor(s0, s2)  forward 1
    s5 f32[] @128 = aten::sum(s11, none)  forward
    _ = aten::cat([s0, s10], 0)  forward
    s6 f32[4] @64 = aten::relu(s0)  forward
    s7 f32[4] @192 = aten::neg(s6)  backward
    s8 sparse f32[4] = aten::to_sparse(s3)  forward
    s9 sparse f32[4] = aten::neg(s8)  backward 0  free s8
    aten::_local_scalar_dense(s5)  forward  expects 0.5
    return loss s5, GLOBAL_MEAN "accuracy" s5
gradients
    s7 of "w"
    s9 of "table"
)");
}

std::string complaint(const std::function<void(Plan&)>& change) {
  Plan plan = good_plan();
  change(plan);
  try {
    verify_plan(plan);
  } catch (const InternalError& error) {
    const std::string text = error.what();
    const std::string begin = "epl internal error: ";
    return text.substr(begin.size(), text.find(" (") - begin.size());
  }
  return "";
}

std::vector<Instruction>& program(Plan& plan) { return plan.programs[0].instructions; }
std::vector<Call>& calls(Plan& plan) { return plan.programs[0].segments[0].calls; }

TEST(VerifyPlan, FindsNothingWrongWithAGoodPlan) {
  EXPECT_EQ(complaint([](Plan&) {}), "");
}

TEST(VerifyPlan, FindsASlotLargerThanItsBuffer) {
  EXPECT_EQ(complaint([](Plan& plan) { plan.programs[0].slots[6].type.offset = 1; }),
            "a slot is larger than its buffer");
}

TEST(VerifyPlan, FindsABufferOutsideOfTheArena) {
  EXPECT_EQ(complaint([](Plan& plan) { plan.programs[0].arena_bytes = 200; }),
            "a buffer lies outside of the arena");
  EXPECT_EQ(complaint([](Plan& plan) { plan.programs[0].buffers[0].offset = -64; }),
            "a buffer lies outside of the arena");
}

TEST(VerifyPlan, FindsARunBeforeItsLoad) {
  EXPECT_EQ(complaint([](Plan& plan) { std::swap(program(plan)[0], program(plan)[1]); }),
            "micro batch 0 runs before it is loaded");
}

TEST(VerifyPlan, FindsAMicroBatchThatRunsTwice) {
  EXPECT_EQ(complaint([](Plan& plan) {
              program(plan).insert(program(plan).begin() + 1, instruction(kRun, 0));
            }),
            "micro batch 0 runs twice");
}

TEST(VerifyPlan, FindsAnUpdateBeforeTheLastMicroBatch) {
  EXPECT_EQ(complaint([](Plan& plan) { plan.micro_batches = 2; }),
            "an update comes before the last micro batch");
}

TEST(VerifyPlan, FindsAGradientThatIsUpdatedTwice) {
  EXPECT_EQ(complaint([](Plan& plan) {
              program(plan)[3].gradients = {1, 0};
            }),
            "gradient 0 is updated twice");
}

TEST(VerifyPlan, FindsAGradientThatIsNeverUpdated) {
  EXPECT_EQ(complaint([](Plan& plan) { program(plan).pop_back(); }), "a gradient is never updated");
}

TEST(VerifyPlan, FindsGradientsThatAreUsedBeforeTheirSumsAreThere) {
  const auto reduced = [](Plan& plan) {
    plan.replicas = 2;
    Instruction reduce = instruction(Instruction::Kind::kReduce, 0);
    reduce.gradients = {0, 1};
    Instruction clip = instruction(Instruction::Kind::kClip, 0);
    clip.over = Instruction::Over::kAll;
    clip.gradients = {0, 1};
    program(plan).insert(program(plan).begin() + 2,
                         {reduce, instruction(Instruction::Kind::kAwait, 0), clip});
  };
  EXPECT_EQ(complaint(reduced), "");
  EXPECT_EQ(complaint([&](Plan& plan) {
              reduced(plan);
              std::swap(program(plan)[3], program(plan)[4]);
            }),
            "gradients are clipped before their sums are there");
  EXPECT_EQ(complaint([&](Plan& plan) {
              reduced(plan);
              program(plan).erase(program(plan).begin() + 3, program(plan).begin() + 5);
            }),
            "an update comes before its gradients are there");
  EXPECT_EQ(complaint([&](Plan& plan) {
              reduced(plan);
              program(plan)[4].over = Instruction::Over::kReplica;
            }),
            "a replica clips gradients that have set out");
  EXPECT_EQ(complaint([&](Plan& plan) {
              reduced(plan);
              program(plan)[4].gradients = {1};
            }),
            "gradients are clipped together, all of them");
  EXPECT_EQ(complaint([&](Plan& plan) {
              reduced(plan);
              program(plan)[2].over = Instruction::Over::kRoles;
            }),
            "gradient 0 is tied and reduced over replicas, or the other way round");
}

// The gradient of "w" is complete after five calls, and its group goes then.
void let_go(Plan& plan, PlanGradient::Stays stays) {
  plan.programs[0].gradients[0].stays = stays;
  Instruction first = instruction(kRun, 0);
  first.end_call = 5;
  Instruction rest = instruction(kRun, 0);
  rest.first_call = 5;
  Instruction group = instruction(Instruction::Kind::kUpdateEarly, 0);
  group.gradients = {0};
  group.slots = {7};
  program(plan) = {instruction(kLoad, 0), first, group, rest, update({1})};
}

void update_early(Plan& plan) { let_go(plan, PlanGradient::Stays::kUntilUpdated); }

// On two replicas: the group is summed while the rest computes.
void sum_early(Plan& plan) {
  let_go(plan, PlanGradient::Stays::kUntilSummed);
  plan.replicas = 2;
  program(plan)[2].kind = Instruction::Kind::kReduce;
  Instruction await = program(plan)[2];
  await.kind = Instruction::Kind::kAwaitGroup;
  Instruction sparse = instruction(Instruction::Kind::kReduce, 0);
  sparse.gradients = {1};
  sparse.group = 1;
  program(plan).pop_back();
  for (const Instruction& each :
       {await, sparse, instruction(Instruction::Kind::kAwait, 0), update({0, 1})}) {
    program(plan).push_back(each);
  }
}

TEST(VerifyPlan, FindsAParameterThatIsReadAfterItsUpdate) {
  EXPECT_EQ(complaint(update_early), "");
  EXPECT_EQ(complaint([](Plan& plan) {
              update_early(plan);
              calls(plan)[5].operands = {slots({2})};
            }),
            "leaf 2 is read after it was updated, in aten::to_sparse");
}

TEST(VerifyPlan, FindsAGradientThatGoesAndIsLostOrComesTwice) {
  EXPECT_EQ(complaint([](Plan& plan) {
              update_early(plan);
              program(plan).erase(program(plan).begin() + 2);
            }),
            "gradient 0 of micro batch 0 is lost");
  EXPECT_EQ(complaint([](Plan& plan) {
              update_early(plan);
              program(plan).insert(program(plan).begin() + 2, program(plan)[2]);
            }),
            "gradient 0 of micro batch 0 is reduced or updated twice");
  EXPECT_EQ(complaint([](Plan& plan) {
              update_early(plan);
              plan.programs[0].gradients[0].stays = PlanGradient::Stays::kToTheEnd;
            }),
            "gradient 0 stays, and a group has it in another slot");
  EXPECT_EQ(complaint([](Plan& plan) {
              update_early(plan);
              plan.replicas = 2;
            }),
            "gradient 0 is updated before it is reduced");
}

TEST(VerifyPlan, FindsAPlaceThatIsTakenWhileItsGradientIsUnderWay) {
  EXPECT_EQ(complaint(sum_early), "");
  const auto overwrites = [](Plan& plan) {
    sum_early(plan);
    plan.programs[0].buffers.push_back({16, 192});
    plan.programs[0].slots.push_back(in_arena(5, {4}));
    calls(plan).insert(calls(plan).begin() + 5, call("aten::neg", "", {slots({0})}, {12}));
  };
  EXPECT_EQ(complaint(overwrites),
            "s7 is read before it is written or after its place was taken, in group 0");
  EXPECT_EQ(complaint([&](Plan& plan) {
              overwrites(plan);
              std::swap(program(plan)[3], program(plan)[4]);
            }),
            "");
  EXPECT_EQ(complaint([](Plan& plan) {
              sum_early(plan);
              program(plan)[4].group = 3;
            }),
            "group 3 is waited for, and is not under way");
}

TEST(VerifyPlan, FindsALookAtGradientsThatComesTooLateOrIsMissing) {
  const auto looked_at = [](Plan& plan) {
    Instruction look = instruction(Instruction::Kind::kFinite, 0);
    look.gradients = {0, 1};
    program(plan).insert(program(plan).begin() + 2, look);
  };
  EXPECT_EQ(complaint(looked_at), "");
  EXPECT_EQ(complaint([&](Plan& plan) {
              looked_at(plan);
              program(plan)[2].gradients = {0};
            }),
            "all gradients are finite, or the step is skipped");
  EXPECT_EQ(complaint([&](Plan& plan) {
              looked_at(plan);
              std::swap(program(plan)[2], program(plan)[3]);
            }),
            "gradients are looked at after they are clipped or updated");
  EXPECT_EQ(complaint([&](Plan& plan) {
              looked_at(plan);
              Instruction clip = program(plan)[2];
              clip.kind = Instruction::Kind::kClip;
              clip.over = Instruction::Over::kAll;
              program(plan).insert(program(plan).begin() + 2, clip);
            }),
            "gradients are looked at after they are clipped or updated");
  EXPECT_EQ(complaint([&](Plan& plan) {
              plan.replicas = 2;
              looked_at(plan);
              Instruction reduce = instruction(Instruction::Kind::kReduce, 0);
              reduce.gradients = {0, 1};
              program(plan).insert(program(plan).begin() + 2, reduce);
            }),
            "gradients are looked at before their sums are there");
}

TEST(VerifyPlan, FindsAReadBeforeTheWrite) {
  EXPECT_EQ(complaint([](Plan& plan) { std::swap(calls(plan)[0], calls(plan)[1]); }),
            "s11 is read before it is written or after its place was taken, in aten::sum");
}

TEST(VerifyPlan, FindsAReadAfterThePlaceWasTaken) {
  EXPECT_EQ(complaint([](Plan& plan) { std::swap(calls(plan)[1], calls(plan)[3]); }),
            "s11 is read before it is written or after its place was taken, in aten::sum");
}

TEST(VerifyPlan, FindsPlacesThatOverlapInPart) {
  EXPECT_EQ(complaint([](Plan& plan) {
              plan.programs[0].buffers[2].offset =
                  60;  // the loss reaches into what aten::relu writes
              plan.programs[0].buffers[2].bytes = 8;
            }),
            "s5 is read before it is written or after its place was taken, in "
            "aten::_local_scalar_dense");
}

TEST(VerifyPlan, FindsATensorThatWasNotMade) {
  EXPECT_EQ(complaint([](Plan& plan) { calls(plan).erase(calls(plan).begin() + 5); }),
            "s8 is read but not there, in aten::neg");
}

TEST(VerifyPlan, FindsATensorThatIsFreedTwice) {
  EXPECT_EQ(complaint([](Plan& plan) { calls(plan)[7].frees = {8}; }),
            "s8 is freed but not there, in aten::_local_scalar_dense");
}

TEST(VerifyPlan, FindsAnUpdateWithAFreedGradient) {
  EXPECT_EQ(complaint([](Plan& plan) {
              calls(plan)[6].frees = {8, 9};
            }),
            "s9 is read but not there, in update");
}

TEST(VerifyPlan, FindsALossThatNobodyMakes) {
  EXPECT_EQ(complaint([](Plan& plan) {
              plan.programs[0].outputs[0].loss = 9;
              calls(plan)[6].frees = {8, 9};
            }),
            "s9 is read but not there, in loss");
}

TEST(VerifyPlan, FindsAMetricThatWasOverwritten) {
  EXPECT_EQ(complaint([](Plan& plan) { plan.programs[0].outputs[0].metrics[0].slot = 4; }),
            "s4 is read before it is written or after its place was taken, in metric accuracy");
}

// A buffer of no bytes lies anywhere, and takes no place.
// The operator works on what aten::relu reads and makes.
void add_collective(Plan& plan, const char* name, std::vector<Operand> constants) {
  std::vector<Operand> operands = {slots({0})};
  operands.insert(operands.end(), constants.begin(), constants.end());
  calls(plan)[3] = call(name, "", std::move(operands), {6});
}

TEST(VerifyPlan, FindsACollectiveAlongAnAxisThatTheMeshDoesNotHave) {
  for (const char* axis : {kPartAxis, kReplicaAxis}) {
    EXPECT_EQ(complaint([&](Plan& plan) {
                add_collective(plan, "epl::all_reduce", {constant("sum"), constant(axis)});
              }),
              "");
  }
  EXPECT_EQ(complaint([](Plan& plan) {
              add_collective(plan, "epl::all_reduce", {constant("sum"), constant("column")});
            }),
            "epl::all_reduce runs along axis \"column\" of a mesh replica 1 x part 1");
}

TEST(AxesOfCollectives, AreThoseThatCallsOfSomeProgramName) {
  Plan plan = good_plan();
  EXPECT_EQ(axes_of_collectives(plan), std::set<std::string>());
  add_collective(plan, "epl::own_addend", {constant(kReplicaAxis)});
  plan.programs.insert(plan.programs.begin(), good_plan().programs[0]);
  add_collective(plan, "epl::own_addend", {constant(kPartAxis)});
  EXPECT_EQ(axes_of_collectives(plan), (std::set<std::string>{kPartAxis, kReplicaAxis}));
}

TEST(VerifyPlan, FindsACollectiveWithMorePiecesThanDevices) {
  EXPECT_EQ(complaint([](Plan& plan) {
              add_collective(
                  plan, "epl::all_gather",
                  {constant(0), constant(c10::List<int64_t>({2, 2})), constant(kPartAxis)});
            }),
            "epl::all_gather has 2 pieces for axis \"part\" of replica 1 x part 1");
}

TEST(VerifyPlan, FindsPartsOfAStageThatTalkAlongDifferentAxes) {
  EXPECT_EQ(complaint([](Plan& plan) {
              add_collective(plan, "epl::own_addend", {constant(kPartAxis)});
              plan.programs.push_back(plan.programs[0]);
              calls(plan)[3].operands[1] = constant(kReplicaAxis);
            }),
            "the parts of stage 0 call different collectives, or in another order");
}

TEST(VerifyPlan, AllowsBuffersOfNoBytes) {
  EXPECT_EQ(complaint([](Plan& plan) {
              plan.programs[0].buffers.push_back({0, 72});
              plan.programs[0].slots.push_back(in_arena(5, {0}));
              calls(plan).insert(calls(plan).begin() + 1,
                                 call("aten::relu", "", {slots({12})}, {12}));
            }),
            "");
}

}  // namespace
}  // namespace epl

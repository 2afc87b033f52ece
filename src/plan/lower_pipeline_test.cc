#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <sstream>

#include "base/check.h"
#include "ir/text.h"
#include "plan/test_lower.h"
#include "program/parse.h"
#include "program/test_plan.h"
#include "program/text.h"
#include "program/verify.h"

namespace epl {
namespace {

// y = x * w in chunk 0, the sum of y * v in chunk 1.
const char* const kTwoChunks = R"(graph
  %0: f32[4] = input 0
  %1: f32[] = seed
  %2: f32[4] = parameter "w"
  %3: f32[4] = parameter "v"
  %4: f32[4] = aten::mul.Tensor(%0, %2) {forward 0}
  %5: f32[4] = aten::mul.Tensor(%4, %3) {forward 1}
  %6: f32[] = aten::sum(%5, none) {forward 1}
  %7: f32[4]{0} @%1 = aten::expand(%1, [4], false) {backward 1}
  %8: f32[4] = aten::mul.Tensor(%7, %4) {backward 1}
  %9: f32[4] = aten::mul.Tensor(%7, %3) {backward 1}
  %10: f32[4] = aten::mul.Tensor(%9, %0) {backward 0}
  return loss %6, gradient "w" %10, gradient "v" %8)";

// One parameter in both.
const char* const kTied = R"(graph
  %0: f32[4] = input 0
  %1: f32[] = seed
  %2: f32[4] = parameter "w"
  %3: f32[4] = aten::mul.Tensor(%0, %2) {forward 0}
  %4: f32[4] = aten::mul.Tensor(%3, %2) {forward 1}
  %5: f32[] = aten::sum(%4, none) {forward 1}
  %6: f32[4]{0} @%1 = aten::expand(%1, [4], false) {backward 1}
  %7: f32[4] = aten::mul.Tensor(%6, %3) {backward 1}
  %8: f32[4] = aten::mul.Tensor(%6, %2) {backward 1}
  %9: f32[4] = aten::mul.Tensor(%8, %0) {backward 0}
  return loss %5, gradient "w" %9, gradient "w" %7)";

// Backward of chunk 0 makes tanh(x * w) again before it reads what chunk 1 sends.
const char* const kAgain = R"(graph
  %0: f32[4] = input 0
  %1: f32[] = seed
  %2: f32[4] = parameter "w"
  %3: f32[4] = parameter "v"
  %4: f32[4] = aten::mul.Tensor(%0, %2) {forward 0}
  %5: f32[4] = aten::tanh(%4) {forward 0}
  %6: f32[4] = aten::mul.Tensor(%5, %3) {forward 1}
  %7: f32[] = aten::sum(%6, none) {forward 1}
  %8: f32[4]{0} @%1 = aten::expand(%1, [4], false) {backward 1}
  %9: f32[4] = aten::mul.Tensor(%8, %5) {backward 1}
  %10: f32[4] = aten::mul.Tensor(%8, %3) {backward 1}
  %11: f32[4] = aten::mul.Tensor(%0, %2) {backward 0}
  %12: f32[4] = aten::tanh(%11) {backward 0}
  %13: f32[4] = aten::tanh_backward(%10, %12) {backward 0}
  %14: f32[4] = aten::mul.Tensor(%13, %0) {backward 0}
  return loss %7, gradient "w" %14, gradient "v" %9)";

struct Request {
  std::string strategy = "PreferBackward";
  int micro_batches = 2;
  int replicas = 1;
  int stages = 2;
  StepEndOptions end = {};
};

Plan lowered(const std::string& text, const Request& request) {
  ScheduleRequest asked;
  asked.strategy = request.strategy;
  asked.stages = request.stages;
  LowerOptions options;
  options.micro_batches = request.micro_batches;
  options.replicas = request.replicas;
  options.end = request.end;
  return lower_stages(parse_graph(text), asked, options);
}

// The instructions of a program, one a line.
std::string instructions(const Plan& plan, size_t program) {
  const std::string text = print_plan(plan, CostText::kLeftOut);
  const size_t begin = text.find('\n', text.find(concat("\nprogram ", program)) + 1) + 1;
  return "\n" + text.substr(begin, text.find("\nleaves\n", begin) + 1 - begin);
}

TEST(LowerPipeline, MakesPlansWhoseTextIsReadBack) {
  for (const char* strategy : {"PreferBackward", "PreferForward", "ZeroBubble"}) {
    for (int micro_batches : {1, 2, 5}) {
      for (const char* graph : {kTwoChunks, kTied}) {
        const Plan plan = lowered(graph, {strategy, micro_batches, 2});
        const Plan parsed = parse_plan(print_plan(plan));
        EXPECT_EQ(test_plan::describe(parsed), test_plan::describe(plan)) << print_plan(plan);
      }
    }
  }
}

// Segments of the first stage have no loss, which is no view of anything: what lies before the
// first slot differed from worker to worker, and so did their plans.
TEST(LowerPipeline, PrintsNoViewWhereThereIsNoSlot) {
  const std::string text = print_plan(lowered(kTwoChunks, {}));
  EXPECT_EQ(text.find("\n    _"), std::string::npos) << text;
}

TEST(LowerPipeline, ReceivesBehindWhatDoesNotNeedIt) {
  for (const char* strategy : {"PreferBackward", "PreferForward", "ZeroBubble"}) {
    for (int replicas : {1, 2}) {
      const Plan plan = lowered(kAgain, {strategy, 3, replicas});
      const auto& each = plan.programs[0].instructions;
      int receives = 0;
      for (size_t i = 0; i < each.size(); ++i) {
        if (each[i].kind != Instruction::Kind::kReceive) continue;
        ++receives;
        ASSERT_GT(i, 0U);
        EXPECT_EQ(each[i - 1].kind, Instruction::Kind::kRun);
        EXPECT_EQ(each[i - 1].first_call, 0);
        EXPECT_EQ(each[i - 1].end_call, 2) << "mul and tanh\n" << instructions(plan, 0);
        EXPECT_EQ(each[i - 1].micro_batch, each[i].micro_batch);
        EXPECT_EQ(each[i + 1].first_call, 2);
        EXPECT_EQ(each[i + 1].segment, each[i - 1].segment);
      }
      EXPECT_EQ(receives, 3);
      EXPECT_EQ(test_plan::describe(parse_plan(print_plan(plan))), test_plan::describe(plan));
    }
  }
}

TEST(LowerPipeline, GivesEachStageItsProgram) {
  EXPECT_EQ("\n" + print_plan(lowered(kTwoChunks, {}), CostText::kLeftOut), R"(
plan: 2 programs, 2 micro batches, 1 replica of 2 devices, arena 320 B
PreferBackward, 2 stages, 2 micro batches
  stage 0  F0 F1       B0---    B1---
  stage 1     F0 B0--- F1 B1---
transfer 0  forward 0 to forward 1, role 0 to 1: 1 value, 16 B a micro batch
transfer 1  backward 1 to backward 0, role 1 to 0: 1 value, 16 B a micro batch
program 0  1 device, arena 320 B
   0  load    micro batch 0: s4
   1  run     forward 0  micro batch 0
   2  send    transfer 0  micro batch 0: s5
   3  load    micro batch 1: s8
   4  run     forward 0  micro batch 1  segment 2
   5  send    transfer 0  micro batch 1: s9
   6  receive transfer 1  micro batch 0: s6
   7  run     backward 0, first  micro batch 0
   8  receive transfer 1  micro batch 1: s10
   9  run     backward 0  micro batch 1
  10  report  loss and metrics
  11  check   loss
  12  update  1 parameters  16 B
leaves
    no slot = input 0
    s0 f32[] @0 = seed
    s1 f32[4] = "w"
    s2 f32[4] = "v"
views
    s4 f32[4] @128
    s6 f32[4] @256
    s8 f32[4] @192
    s10 f32[4] @256
segment forward 0
    s5 f32[4] @256 = aten::mul.out(s4, s1)  forward 0
    return loss _
segment backward 0, first
    s7 f32[4] @64 = aten::mul.out(s6, s4)  backward 0
    return loss _
segment forward 0
    s9 f32[4] @256 = aten::mul.out(s8, s1)  forward 0
    return loss _
segment backward 0
    s11 f32[4] @256 = aten::mul.out(s10, s8)  backward 0
    s3 f32[4] @64 = aten::add_.Tensor(s3, s11, 1)  backward
    return loss _
gradients
    s3 of "w"
program 1  1 device, arena 320 B
   0  receive transfer 0  micro batch 0: s4
   1  run     forward 1  micro batch 0
   2  run     backward 1, first  micro batch 0
   3  send    transfer 1  micro batch 0: s12
   4  receive transfer 0  micro batch 1: s4
   5  run     forward 1  micro batch 1
   6  run     backward 1  micro batch 1
   7  send    transfer 1  micro batch 1: s9
   8  report  loss and metrics
   9  check   loss
  10  update  1 parameters  16 B
leaves
    no slot = input 0
    s0 f32[] @0 = seed
    s1 f32[4] = "w"
    s2 f32[4] = "v"
views
    s4 f32[4] @128
    s7 f32[4]{0} @0
    s10 f32[4]{0} @0
segment forward 1
    s5 f32[4] @192 = aten::mul.out(s4, s2)  forward 1
    s6 f32[] @256 = aten::sum(s5, none)  forward 1
    return loss s6
segment backward 1
    s8 f32[4] @128 = aten::mul.out(s7, s4)  backward 1
    s3 f32[4] @64 = aten::add_.Tensor(s3, s8, 1)  backward
    s9 f32[4] @192 = aten::mul.out(s7, s2)  backward 1
    return loss _
segment backward 1, first
    s11 f32[4] @64 = aten::mul.out(s10, s4)  backward 1
    s12 f32[4] @192 = aten::mul.out(s10, s2)  backward 1
    return loss _
gradients
    s3 of "v"
)");
}

TEST(LowerPipeline, ReducesAGroupWhenItsLastMicroBatchIsDone) {
  EXPECT_EQ(instructions(lowered(kTwoChunks, {"PreferBackward", 2, 2}), 1), R"(
mesh      replica 2 x part 1, part 0
   0  receive transfer 0  micro batch 0: s4
   1  run     forward 1  micro batch 0
   2  run     backward 1, first  micro batch 0
   3  send    transfer 1  micro batch 0: s12
   4  receive transfer 0  micro batch 1: s4
   5  run     forward 1  micro batch 1
   6  run     backward 1  micro batch 1  calls 0 to 1
   7  reduce  group 0: 1 gradients  16 B
   8  run     backward 1  micro batch 1  calls 2 to 2
   9  send    transfer 1  micro batch 1: s9
  10  report  loss and metrics
  11  await   reductions
  12  check   loss
  13  update  1 parameters  16 B
)");
}

TEST(LowerPipeline, ZeroBubbleMakesGradientsOfParametersAfterwards) {
  EXPECT_EQ(instructions(lowered(kTwoChunks, {"ZeroBubble", 2}), 1), R"(
   0  receive transfer 0  micro batch 0: s4
   1  run     forward 1  micro batch 0
   2  run     backward 1, first  micro batch 0
   3  send    transfer 1  micro batch 0: s8
   4  receive transfer 0  micro batch 1: s10
   5  run     forward 1  micro batch 1  segment 3
   6  run     backward 1  micro batch 1
   7  send    transfer 1  micro batch 1: s14
   8  run     weights 1, first  micro batch 0
   9  run     weights 1  micro batch 1
  10  report  loss and metrics
  11  check   loss
  12  update  1 parameters  16 B
)");
}

// --- activation slots ---------------------------------------------------------------------------

// Bytes of activations grow with what is in flight, all else stays.
TEST(LowerPipeline, NeedsAnActivationSlotForEachMicroBatchInFlight) {
  std::vector<int64_t> few, many;
  for (int micro_batches : {4, 8}) {
    few.push_back(lowered(kTwoChunks, {"PreferBackward", micro_batches}).programs[0].arena_bytes);
    many.push_back(lowered(kTwoChunks, {"PreferForward", micro_batches}).programs[0].arena_bytes);
  }
  EXPECT_EQ(few[0], few[1]);
  EXPECT_LT(few[0], many[0]);
  const int64_t activations = (many[1] - many[0]) / 4;
  EXPECT_EQ(many[0], few[0] + 2 * activations);
}

// Why a step that is all one task is no pipeline of one stage: a gradient may lie where activations
// lay that are dead when it is made, and inputs need not stay for a backward segment.
TEST(LowerPipeline, OfOneStageNeedsMoreMemoryThanAStep) {
  const std::string graph = std::regex_replace(kTwoChunks, std::regex("ward 1"), "ward 0");
  Request one_stage;
  one_stage.micro_batches = 1;
  one_stage.stages = 1;
  const int64_t stage = lowered(graph, one_stage).programs[0].arena_bytes;
  EXPECT_LT(lower(parse_graph(graph), {}).programs[0].arena_bytes, stage);
}

// --- parameters of several stages ---------------------------------------------------------------

TEST(LowerPipeline, NamesTheGradientsOfAParameterOfTwoStages) {
  const Plan plan = lowered(kTied, {"PreferBackward", 2, 2});
  ASSERT_EQ(plan.tied.size(), 1u);
  ASSERT_EQ(plan.tied[0].size(), 2u);
  EXPECT_EQ(plan.tied[0][0].role, 0);
  EXPECT_EQ(plan.tied[0][1].role, 1);
  // Their sum is made over roles, so they set out with no group.
  for (const auto& program : plan.programs) {
    for (const auto& instruction : program.instructions) {
      if (instruction.kind != Instruction::Kind::kReduce) continue;
      EXPECT_EQ(instruction.over, Instruction::Over::kRoles);
      EXPECT_EQ(instruction.gradients, std::vector<int>{0});
    }
  }
}

// --- the end of the step ------------------------------------------------------------------------

// What follows the last run of a program, one a line and without numbers.
std::string end_of(const Plan& plan, size_t program) {
  std::string end = "\n";
  std::istringstream lines(instructions(plan, program));
  bool ends = false;
  for (std::string line; std::getline(lines, line);) {
    ends |= line.find("report") != std::string::npos;
    if (ends) end += line.substr(6) + "\n";
  }
  return end;
}

TEST(LowerPipeline, EndsTheStepAlikeInAllPrograms) {
  Request request;
  request.end.gather = StepEndOptions::Gather::kAll;
  request.end.clips_reduced = true;
  const Plan plan = lowered(kTwoChunks, request);
  EXPECT_EQ(end_of(plan, 0), R"(
report  loss and metrics
check   loss
clip    all: 1 gradients  16 B
update  1 parameters  16 B
gather  over roles: 1 parameters  16 B  leaves 3
)");
  EXPECT_NE(end_of(plan, 1).find("gather  over roles: 1 parameters  16 B  leaves 2"),
            std::string::npos);
  request.end.gather = StepEndOptions::Gather::kRead;
  request.end.loss = StepEndOptions::OnBadLoss::kIgnored;
  EXPECT_EQ(end_of(lowered(kTwoChunks, request), 1), R"(
report  loss and metrics
clip    all: 1 gradients  16 B
update  1 parameters  16 B
gather  over roles: 0 parameters  0 B
)");
}

TEST(LowerPipeline, ReducesTiedGradientsOverPrograms) {
  EXPECT_EQ(end_of(lowered(kTied, {"PreferBackward", 2, 2}), 1), R"(
report  loss and metrics
reduce  over roles: 1 gradients  16 B
await   reductions
check   loss
update  1 parameters  16 B
)");
}

// Clipping comes first, and with it all that was ready earlier waits.
TEST(LowerPipeline, ReducesBehindTheClippingOfEachReplica) {
  Request request;
  request.replicas = 2;
  request.end.clips_each_replica = true;
  const Plan plan = lowered(kTwoChunks, request);
  EXPECT_EQ(end_of(plan, 1), R"(
report  loss and metrics
clip    each replica: 1 gradients  16 B
reduce  group 0: 1 gradients  16 B
await   reductions
check   loss
update  1 parameters  16 B
)");
  EXPECT_EQ(end_of(plan, 0), end_of(plan, 1));
}

TEST(LowerPipeline, IsRefusedWhereProgramsEndTheStepOtherwise) {
  Plan plan = lowered(kTwoChunks, {});
  auto& instructions = plan.programs[1].instructions;
  instructions.erase(std::find_if(instructions.begin(), instructions.end(), [](const auto& each) {
    return each.kind == Instruction::Kind::kCheck;
  }));
  try {
    verify_plan(plan);
    FAIL() << "not refused";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("role 1 ends its step in 2 phases"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace epl

#include "plan/stamp_costs.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "plan/test_lower.h"
#include "program/parse.h"
#include "program/text.h"

namespace epl {
namespace {

constexpr const char* kGraph = R"(graph
  %0: f32[256,512] = input 0
  %1: f32[] = seed
  %2: f32[512,1024] = parameter "w"
  %3: f32[256,1024] = aten::mm(%0, %2) {forward}
  %4: f32[256,1024] = aten::relu(%3) {forward}
  %5: f32[] = aten::sum(%4, none) {forward}
  %6: f32[512,256]{1,512} @%0 = aten::t(%0) {backward}
  %7: f32[512,1024] = aten::mm(%6, %4) {backward}
  return loss %5, gradient "w" %7
)";

const Instruction& first_of(const Plan& plan, Instruction::Kind kind) {
  for (const auto& each : plan.programs[0].instructions) {
    if (each.kind == kind) return each;
  }
  throw std::runtime_error("no such instruction");
}

double seconds_of_nodes(const Graph& graph) {
  double seconds = 0;
  for (const auto& node : graph.nodes) seconds += estimated_seconds(graph, node);
  return seconds;
}

TEST(StampCosts, GivesARunWhatItsNodesCost) {
  const Graph graph = parse_graph(kGraph);
  const Plan plan = lower(graph, {});
  const InstructionCost& run = first_of(plan, Instruction::Kind::kRun).cost;
  EXPECT_NEAR(run.seconds, seconds_of_nodes(graph), 1e-9);
  // mm reads two and writes one, relu lies in place, sum reads one and writes a number, mm again.
  const int64_t x = 256 * 512 * 4, w = 512 * 1024 * 4, y = 256 * 1024 * 4;
  EXPECT_EQ(run.bytes, (x + w + y) + (y + y) + (y + 4) + (x + y + w));
}

TEST(StampCosts, GivesPiecesOfARunTheirShares) {
  LowerOptions options;
  options.replicas = 2;
  const Graph graph = parse_graph(kGraph);
  const Plan plan = lower(graph, options);
  double seconds = 0;
  for (const auto& each : plan.programs[0].instructions) {
    if (each.kind == Instruction::Kind::kRun) seconds += each.cost.seconds;
  }
  EXPECT_NEAR(seconds, seconds_of_nodes(graph), 1e-8);
}

TEST(StampCosts, CountsBytesOfWhatIsLoadedReducedAndUpdated) {
  LowerOptions options;
  options.replicas = 2;
  options.end.clips_reduced = true;
  const Plan plan = lower(parse_graph(kGraph), options);
  EXPECT_EQ(first_of(plan, Instruction::Kind::kLoad).cost.bytes, 256 * 512 * 4);
  for (auto kind :
       {Instruction::Kind::kReduce, Instruction::Kind::kClip, Instruction::Kind::kUpdate}) {
    EXPECT_EQ(first_of(plan, kind).cost.bytes, 512 * 1024 * 4);
    EXPECT_GT(first_of(plan, kind).cost.seconds, 512 * 1024 * 4 / 20e9);
  }
  EXPECT_EQ(first_of(plan, Instruction::Kind::kReport).cost.seconds, 0);
}

// A plan that was read back has the same costs as the one that was planned, stamped anew or not.
TEST(StampCosts, NeedsNothingButThePlan) {
  LowerOptions options;
  options.replicas = 4;
  options.micro_batches = 2;
  options.end.clips_each_replica = true;
  const Plan plan = lower(parse_graph(kGraph), options);
  const std::string text = print_plan(plan);
  Plan parsed = parse_plan(text);
  EXPECT_EQ(print_plan(parsed), text);
  stamp_costs(parsed);
  EXPECT_EQ(print_plan(parsed), text);
  Plan without = parse_plan(print_plan(plan, CostText::kLeftOut));
  EXPECT_EQ(first_of(without, Instruction::Kind::kRun).cost.seconds, 0);
  stamp_costs(without);
  EXPECT_EQ(print_plan(without), text);
}

TEST(StampCosts, FollowsTheMachineAndItsLinks) {
  Plan plan = lower(parse_graph(kGraph), {});
  const double before = first_of(plan, Instruction::Kind::kRun).cost.seconds;
  Machine twice;
  twice.device.flops_per_second *= 2;
  twice.device.bytes_per_second *= 2;
  twice.device.seconds_per_call /= 2;
  stamp_costs(plan, twice);
  EXPECT_NEAR(first_of(plan, Instruction::Kind::kRun).cost.seconds, before / 2, 1e-8);
}

}  // namespace
}  // namespace epl

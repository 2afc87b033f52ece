#include "sim/simulate_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"
#include "ir/text.h"
#include "passes/bring_forward.h"
#include "plan/test_lower.h"
#include "program/parse.h"
#include "program/text.h"
#include "sim/simulate.h"

namespace epl {
namespace {

using testing::ElementsAre;

// One multiplication by a parameter in each chunk, and the sum in the last.
std::string graph_of(int chunks) {
  std::string text = "graph\n  %0: f32[4] = input 0\n  %1: f32[] = seed\n";
  int next = 2;
  std::vector<int> weights;
  for (int i = 0; i < chunks; ++i) {
    weights.push_back(next);
    text += concat("  %", next++, ": f32[4] = parameter \"w", i, "\"\n");
  }
  std::vector<int> values = {0};
  for (int i = 0; i < chunks; ++i) {
    text += concat("  %", next, ": f32[4] = aten::mul.Tensor(%", values.back(), ", %",
                   weights[static_cast<size_t>(i)], ") {forward ", i, "}\n");
    values.push_back(next++);
  }
  const int loss = next++;
  text += concat("  %", loss, ": f32[] = aten::sum(%", values.back(), ", none) {forward ",
                 chunks - 1, "}\n");
  int gradient = next++;
  text += concat("  %", gradient, ": f32[4]{0} @%1 = aten::expand(%1, [4], false) {backward ",
                 chunks - 1, "}\n");
  std::string results = concat("  return loss %", loss);
  for (int i = chunks - 1; i >= 0; --i) {
    const auto at = static_cast<size_t>(i);
    text += concat("  %", next, ": f32[4] = aten::mul.Tensor(%", gradient, ", %", values[at],
                   ") {backward ", i, "}\n");
    results += concat(", gradient \"w", i, "\" %", next++);
    if (i == 0) break;
    text += concat("  %", next, ": f32[4] = aten::mul.Tensor(%", gradient, ", %", weights[at],
                   ") {backward ", i, "}\n");
    gradient = next++;
  }
  return text + results + "\n";
}

struct Request {
  std::string strategy = "PreferBackward";
  int stages = 2;
  int chunks = 2;
  int micro_batches = 2;
  int replicas = 1;
};

Plan plan_of(const Request& request) {
  ScheduleRequest asked;
  asked.strategy = request.strategy;
  asked.stages = request.stages;
  LowerOptions options;
  options.micro_batches = request.micro_batches;
  options.replicas = request.replicas;
  return lower_stages(parse_graph(graph_of(request.chunks)), asked, options);
}

// "F0 0-1": kind, micro batch if any, begin and end.
std::vector<std::string> spans_of(const Timeline& timeline, size_t device) {
  std::vector<std::string> texts;
  for (const Span& span : timeline.devices.at(device).spans) {
    const char letter = "FBWU~"[static_cast<size_t>(span.kind)];
    const std::string number = span.micro_batch < 0 ? "" : concat(span.micro_batch);
    texts.push_back(concat(letter, number, " ", span.begin, "-", span.end));
  }
  return texts;
}

// Forward takes 1, backward 2 (1 and 1 where it is cut in two), a transfer between stages 0.5.
PlanCosts costs_of(const Plan& plan) {
  PlanCosts costs;
  costs.run = [&plan](int program, const Instruction& run) {
    const Segment& segment =
        plan.programs[static_cast<size_t>(program)].segments[static_cast<size_t>(run.segment)];
    const bool halves = plan.schedule.splits_backward;
    const bool pieces =
        run.first_call != 0 || run.end_call < static_cast<int>(segment.calls.size());
    const double backward = halves || pieces ? 1 : 2;
    return PlanCosts::Run{segment.kind == Task::Kind::kForward ? 1 : backward, 0};
  };
  costs.send = [&plan](int, const Instruction& send) {
    const Transfer& transfer = plan.transfers[static_cast<size_t>(send.transfer)];
    return transfer.from == transfer.to ? 0 : 0.5;
  };
  costs.end = [](int, const Instruction& instruction) {
    return instruction.kind == Instruction::Kind::kUpdate ? 0.25 : 0;
  };
  return costs;
}

// The schedule alone and the plan that it became say the same.
TEST(SimulatePlan, TakesAsLongAsItsSchedule) {
  for (const Request& request :
       {Request{"PreferBackward", 2, 2, 4}, Request{"PreferForward", 3, 3, 4},
        Request{"Interleaved", 2, 4, 4}, Request{"ZeroBubble", 2, 2, 4}}) {
    const Plan plan = plan_of(request);
    SimulatedCosts costs;
    const double backward = plan.schedule.splits_backward ? 1 : 2;
    const auto chunks = static_cast<size_t>(request.chunks);
    costs.chunks.assign(chunks, {1, backward, 1});
    costs.forward_transfers.assign(chunks - 1, 0.5);
    costs.backward_transfers.assign(chunks - 1, 0.5);
    costs.updates.assign(static_cast<size_t>(request.stages), 0.25);
    const Timeline by_schedule = simulate(plan.schedule, costs);
    const Timeline by_plan = simulate(plan, costs_of(plan));
    EXPECT_EQ(by_plan.seconds, by_schedule.seconds) << request.strategy;
    // A plan knows that the first chunk's backward waits for nothing where only weights need it.
    if (plan.schedule.splits_backward) continue;
    for (size_t stage = 0; stage < by_plan.devices.size(); ++stage) {
      EXPECT_EQ(spans_of(by_plan, stage), spans_of(by_schedule, stage)) << request.strategy;
    }
  }
}

// The schedule knows nothing of it.
TEST(SimulatePlan, HidesReductionsBehindWhatIsComputed) {
  const Plan plan = plan_of({"PreferBackward", 2, 2, 2, 2});
  PlanCosts costs = costs_of(plan);
  costs.send = {};
  const auto seconds = [&](double reduction) {
    costs.reduce = [reduction](int, const Instruction&) { return reduction; };
    return simulate(plan, costs).seconds;
  };
  // Stage 1 is done two units of time before stage 0.
  EXPECT_EQ(seconds(0), seconds(0.5) - 0.5) << "that of stage 0 is not hidden";
  costs.reduce = [](int, const Instruction&) { return 0.5; };
  const Timeline timeline = simulate(plan, costs);
  const auto& last = timeline.devices[0].spans;
  EXPECT_EQ(last.back().kind, Span::Kind::kUpdate);
  EXPECT_EQ(last[last.size() - 2].kind, Span::Kind::kCommunication);
  EXPECT_EQ(timeline.devices[1].spans.back().begin, last.back().begin) << "updates wait for all";
}

// The first stage has read what it receives before it makes a value again; or makes it before.
TEST(SimulatePlan, FillsTheBubbleWithWhatRunsAgain) {
  Graph graph = parse_graph(R"(graph
  %0: f32[65536] = input 0
  %1: f32[] = seed
  %2: f32[65536] = parameter "w"
  %3: f32[65536] = parameter "v"
  %4: f32[65536] = aten::mul.Tensor(%0, %2) {forward 0}
  %5: f32[65536] = aten::tanh(%4) {forward 0}
  %6: f32[65536] = aten::mul.Tensor(%5, %3) {forward 1}
  %7: f32[] = aten::sum(%6, none) {forward 1}
  %8: f32[65536]{0} @%1 = aten::expand(%1, [65536], false) {backward 1}
  %9: f32[65536] = aten::mul.Tensor(%8, %5) {backward 1}
  %10: f32[65536] = aten::mul.Tensor(%8, %3) {backward 1}
  %15: f32[65536] = aten::neg(%10) {backward 0}
  %11: f32[65536] = aten::mul.Tensor(%0, %2) {backward 0}
  %12: f32[65536] = aten::tanh(%11) {backward 0}
  %13: f32[65536] = aten::tanh_backward(%15, %12) {backward 0}
  %14: f32[65536] = aten::mul.Tensor(%13, %0) {backward 0}
  return loss %7, gradient "w" %14, gradient "v" %9)");
  const auto seconds = [&] {
    ScheduleRequest asked;
    asked.strategy = "PreferBackward";
    asked.stages = 2;
    LowerOptions options;
    options.micro_batches = 2;
    return simulate(lower_stages(graph, asked, options)).seconds;
  };
  const double behind = seconds();
  for (Node& node : graph.nodes) node.chunk = node.taskgraph;
  ASSERT_TRUE(BringForward({8, 9}).run(graph));
  EXPECT_LT(seconds(), behind);
}

TEST(SimulatePlan, ShowsForwardAndBackwardOfOneSegment) {
  Graph graph = parse_graph(graph_of(1));
  const Plan plan = lower(graph, {});
  PlanCosts costs;
  costs.run = [](int, const Instruction&) { return PlanCosts::Run{1, 2}; };
  const Timeline timeline = simulate(plan, costs);
  EXPECT_THAT(spans_of(timeline, 0), ElementsAre("F0 0-1", "B0 1-3"));
  EXPECT_EQ(timeline.seconds, 3);
}

// What the planner stamped is enough: nothing was measured, and no graph is at hand.
TEST(SimulatePlan, NeedsNoCostsButThoseOfThePlan) {
  const Plan plan = plan_of({"PreferBackward", 2, 2, 4, 2});
  const Plan read_back = parse_plan(print_plan(plan));
  const Timeline timeline = simulate(read_back);
  EXPECT_EQ(timeline.seconds, simulate(plan).seconds);
  double runs = 0;  // of stage 0
  double sends = 0;
  for (const auto& each : plan.programs[0].instructions) {
    if (each.kind == Instruction::Kind::kRun) runs += each.cost.seconds;
    if (each.kind == Instruction::Kind::kSend) sends = each.cost.seconds;
  }
  EXPECT_GT(runs, 0);
  EXPECT_GT(sends, 0);
  EXPECT_GT(timeline.seconds, runs + 2 * sends) << "to stage 1 and back";
}

TEST(SimulatePlan, SharesOutTheCostOfForwardAndBackward) {
  const Plan plan = lower(parse_graph(graph_of(1)), {});
  const Timeline timeline = simulate(plan);
  const auto& spans = timeline.devices[0].spans;
  ASSERT_GE(spans.size(), 2U);
  EXPECT_EQ(spans[0].kind, Span::Kind::kForward);
  EXPECT_EQ(spans[1].kind, Span::Kind::kBackward);
  EXPECT_GT(spans[1].end, spans[1].begin);
}

}  // namespace
}  // namespace epl

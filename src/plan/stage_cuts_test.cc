#include "plan/stage_cuts.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "passes/assign_taskgraphs.h"
#include "plan/stage_model.h"
#include "plan/test_step.h"
#include "tests/models/steps.h"

namespace epl {
namespace {

// Operators one behind the other, each with so many seconds; a byte goes from each to the next.
TestStep chain(const std::vector<double>& seconds) {
  TestStep step;
  ValueId x = step.input(1);
  for (double each : seconds) x = step.forward({x}, 1, each);
  return step;
}

std::string cuts_of(const TestStep& step, const StageCutsRequest& request) {
  return join(choose(step, request).cuts, " ");
}

TEST(StageCuts, ShareOutCostAndNotOperators) {
  EXPECT_EQ(cuts_of(chain({5, 1, 1, 1, 1, 1}), stages(2)), "1");
  EXPECT_EQ(cuts_of(chain({1, 1, 1, 1, 1, 5}), stages(2)), "5");
  EXPECT_EQ(cuts_of(chain({1, 1, 1, 1, 1, 1}), stages(3)), "2 4");
}

TEST(StageCuts, LeaveAHeavyOperatorAlone) {
  EXPECT_EQ(cuts_of(chain({1, 1, 10, 1, 1}), stages(3)), "2 3");
}

TEST(StageCuts, OfOneStageAreNone) {
  const StageCuts chosen = choose(chain({1, 2}), stages(1));
  EXPECT_TRUE(chosen.cuts.empty());
  EXPECT_DOUBLE_EQ(chosen.pace, 3);
}

TEST(StageCuts, MayLeaveOneOperatorAStage) {
  EXPECT_EQ(cuts_of(chain({1, 8, 1}), stages(3)), "1 2");
}

TEST(StageCuts, CountBackwardWithItsForward) {
  TestStep step = chain({1, 1, 1, 1});
  const ValueId gradient = step.backward(0, {step.input(1)}, 1, 6);
  step.backward(3, {gradient}, 1, 2);
  EXPECT_EQ(cuts_of(step, stages(2)), "1");
}

TEST(StageCuts, GiveOperatorNumbersOfTheRecording) {
  TestStep step = chain({1, 1, 1, 1});
  // As where nodes were dropped after they were recorded.
  for (Node& node : step.graph.nodes) node.origin.call = 10 + 3 * node.origin.call;
  EXPECT_EQ(cuts_of(step, stages(2)), "16");
}

TEST(StageCuts, RefuseMoreStagesThanOperators) {
  StageCutsRequest request = stages(4);
  request.asked_by = "pipeline.num_stages = 4 (code train.cc:3)";
  EXPECT_EQ(error_of(chain({1, 1, 1}), request),
            "epl: a step of 3 forward operators cannot be cut into 4 stages\n"
            "  asked by: pipeline.num_stages = 4 (code train.cc:3)\n"
            "  try:      fewer stages (pipeline.num_stages)");
}

TEST(StageCuts, CountTransfersAsTime) {
  TestStep step;
  ValueId x = step.input(1);
  x = step.forward({x}, 1, 10);
  x = step.forward({x}, 30, 10);  // the middle of the time, but 30 bytes cross
  x = step.forward({x}, 1, 10);
  step.forward({x}, 1, 10);
  StageCutsRequest request = stages(2);
  request.bytes_per_second = 1;
  EXPECT_EQ(cuts_of(step, request), "3");  // 30 and 10 + 1, where 2 would be 20 and 20 + 30
  request.bytes_per_second = 1e12;
  EXPECT_EQ(cuts_of(step, request), "2");
}

TEST(StageCuts, TakeFewerBytesWhereTheyAreNearlyAsFast) {
  TestStep step;
  ValueId x = step.input(1);
  x = step.forward({x}, 1, 100);
  x = step.forward({x}, 5, 1);
  step.forward({x}, 1, 101);
  StageCutsRequest request = stages(2);
  request.bytes_per_second = 1e3;
  EXPECT_EQ(cuts_of(step, request), "2");  // 101 + 101, 5 bytes cross
  request.tolerance = 0.02;
  request.bytes_per_second = 1;
  EXPECT_EQ(cuts_of(step, request), "1");  // 100 + 102, 1 byte crosses
}

// "received" of all stages of the given cut, which the costs make the only choice.
std::string received_of(const TestStep& step, int count) {
  std::vector<int64_t> bytes;
  for (const ChosenChunk& chunk : choose(step, stages(count)).chunks) {
    bytes.push_back(chunk.received_bytes);
  }
  return join(bytes, " ");
}

TEST(StageCuts, SendASkipStraightToItsReader) {
  TestStep step;
  const ValueId a = step.forward({step.input(1)}, 100, 1);
  const ValueId b = step.forward({a}, 10, 1);
  const ValueId c = step.forward({b}, 20, 1);
  step.forward({c, a}, 1, 1);
  EXPECT_EQ(received_of(step, 4), "0 100 10 120");
}

TEST(StageCuts, SendMemoryOnceHoweverOftenAndInWhateverShapeItIsRead) {
  TestStep step;
  const ValueId a = step.forward({step.input(1)}, 100, 3);
  const ValueId view = step.forward_view(a);
  const ValueId b = step.forward({a, view}, 10, 1);
  const ValueId c = step.forward({view, b}, 10, 1);
  step.forward({a, c}, 10, 1);
  EXPECT_EQ(received_of(step, 2), "0 100");
}

TEST(StageCuts, SendWhatAnOperatorWroteInPlace) {
  TestStep step;
  const ValueId a = step.forward({step.input(1)}, 100, 1);
  const ValueId b = step.forward_in_place(a, 1);
  step.forward({a, b}, 1, 1);  // both show what was written
  EXPECT_EQ(received_of(step, 3), "0 100 100");
}

TEST(StageCuts, SendInputsThatAreNeededLate) {
  TestStep step;
  const ValueId input = step.input(7);
  const ValueId target = step.input(50);
  const ValueId x = step.forward({input}, 3, 1);
  step.forward({x, target}, 1, 1);
  EXPECT_EQ(received_of(step, 2), "0 53");
}

TEST(StageCuts, SendNoParametersAndNoState) {
  TestStep step;
  const ValueId weight = step.parameter("weight", 1000);
  const ValueId mean = step.state("mean", 500);
  const ValueId x = step.forward({step.input(1), weight}, 3, 1);
  step.forward({x, weight, mean}, 1, 1);
  EXPECT_EQ(received_of(step, 2), "0 3");
}

TEST(StageCuts, SendGradientsBack) {
  TestStep step;
  const ValueId a = step.forward({step.input(1)}, 10, 1);
  const ValueId b = step.forward({a}, 20, 1);
  step.forward({b, a}, 1, 1);
  const ValueId of_b = step.backward(2, {b}, 20, 0);
  const ValueId of_a = step.backward(2, {b}, 11, 0);
  const ValueId also_of_a = step.backward(1, {of_b}, 12, 0);
  const ValueId sum = step.backward(0, {of_a, also_of_a}, 10, 0);
  step.backward(0, {sum}, 1, 0);
  EXPECT_EQ(received_of(step, 3), "23 30 30");
}

// What a device of each stage needs.
std::string memory_of(const TestStep& step, const StageCutsRequest& request) {
  std::vector<int64_t> bytes;
  for (const ChosenChunk& chunk : choose(step, request).chunks) {
    bytes.push_back(chunk.device_bytes);
  }
  return join(bytes, " ");
}

// Three operators with weights of 10, 20 and 40 bytes; each saves what it reads, 100, 200, 400.
TestStep with_weights() {
  TestStep step;
  const ValueId x = step.input(100);
  const ValueId w0 = step.parameter("a.weight", 10);
  const ValueId w1 = step.parameter("b.weight", 20);
  const ValueId w2 = step.parameter("c.weight", 40);
  const ValueId a = step.forward({x, w0}, 200, 1);
  const ValueId b = step.forward({a, w1}, 400, 1);
  step.forward({b, w2}, 1, 1);
  const ValueId of_b = step.backward(2, {b, w2}, 400, 0);
  const ValueId of_a = step.backward(1, {a, w1, of_b}, 200, 0);
  step.backward(0, {x, w0, of_a}, 10, 0);
  return step;
}

TEST(StageCuts, CountMemoryOfParametersGradientsOptimizerAndWhatIsInFlight) {
  StageCutsRequest request = stages(3);
  EXPECT_EQ(memory_of(with_weights(), request), concat(20 + 3 * 100, " ", 40 + 2 * 200, " 480"));
  request.optimizer_state = 2;
  EXPECT_EQ(memory_of(with_weights(), request), concat(40 + 3 * 100, " ", 80 + 2 * 200, " 560"));
  request.micro_batches = 1;
  EXPECT_EQ(memory_of(with_weights(), request), "140 280 560");
  request.in_flight = {5, 1, 2};
  EXPECT_EQ(memory_of(with_weights(), request), "540 280 960");
}

TEST(StageCuts, CountTheRowsThatWillRunAndNotThoseThatWereRecorded) {
  StageCutsRequest request = stages(3);
  request.rows = 0.5;
  EXPECT_EQ(memory_of(with_weights(), request), concat(20 + 3 * 50, " ", 40 + 2 * 100, " 280"));
}

TEST(StageCuts, TellSizesThatLookAlikeToTheByte) {
  TestStep step;
  step.forward({step.input(1), step.parameter("weight", 1 << 20)}, 1, 1);
  StageCutsRequest request = stages(1);
  request.device_bytes = (2 << 20) - 1;
  const std::string error = error_of(step, request);
  EXPECT_NE(error.find("takes 2097152 B for"), std::string::npos) << error;
  EXPECT_NE(error.find("a device has 2097151 B\n"), std::string::npos) << error;
}

TEST(StageCuts, CountATiedWeightInBothOfItsStages) {
  TestStep step;
  const ValueId input = step.input(1);
  const ValueId weight = step.parameter("tokens.weight", 1000);
  const ValueId a = step.forward({input, weight}, 10, 1);
  step.forward({a, weight}, 1, 1);
  const ValueId late = step.backward(1, {a}, 1000, 0);
  const ValueId early = step.backward(0, {weight}, 1000, 0);
  const ValueId sum = step.backward_sum(0, late, early);
  step.graph.gradients.push_back({1, sum});
  const StageCuts chosen = choose(step, stages(2));
  EXPECT_EQ(chosen.chunks[0].parameter_bytes, 1000);
  EXPECT_EQ(chosen.chunks[1].parameter_bytes, 1000);
  EXPECT_EQ(chosen.chunks[0].received_bytes, 0);  // both keep their own part of its gradient
}

TEST(StageCuts, KeepToTheMemoryOfADevice) {
  TestStep step;
  ValueId x = step.input(1);
  for (int i = 0; i < 6; ++i) {
    const ValueId weight = step.parameter(concat("layer", i), i < 3 ? 100 : 10);
    x = step.forward({x, weight}, 1, 1);
  }
  StageCutsRequest request = stages(2);
  EXPECT_EQ(cuts_of(step, request), "3");
  request.device_bytes = 450;  // two of the large ones with their gradients
  EXPECT_EQ(cuts_of(step, request), "2");
  request.device_bytes = 399;
  EXPECT_EQ(
      error_of(step, request),
      "epl: no cut of the step into 2 stages fits into its devices: the leanest one takes 400 "
      "B, 260 B for parameters, gradients, optimizer state and what 2, 1 micro batches in flight "
      "save for backward, and a device has 399 B\n"
      "  asked by: auto.auto_parallel\n"
      "  try:      more stages (pipeline.num_stages), more and so smaller micro batches "
      "(pipeline.num_micro_batch), or an optimizer with less state");
}

TEST(StageCuts, KeepToTheMemoryOfADeviceWithSeveralChunks) {
  TestStep step;
  ValueId x = step.input(1);
  for (int bytes : {100, 1, 100, 1, 1, 1, 1, 1}) {
    const ValueId weight = step.parameter(concat("layer", step.calls()), bytes);
    x = step.forward({x, weight}, 1, 1);
  }
  StageCutsRequest request = stages(2);
  request.chunks_per_stage = 2;
  // Even chunks would put both large weights on stage 0: 0 1 | 2 3 | 4 5 | 6 7 lie on 0, 1, 0, 1.
  EXPECT_EQ(cuts_of(step, request), "2 4 6");
  request.device_bytes = 210;
  EXPECT_EQ(cuts_of(step, request), "2 4 6");
  request.device_bytes = 203;
  EXPECT_NE(error_of(step, request), "no error");
}

TEST(StageCuts, LieBetweenModulesRatherThanInsideOfOne) {
  TestStep step;
  ValueId x = step.input(1);
  for (const char* name : {"a.0.weight", "a.1.weight", "b.0.weight", "b.1.weight"}) {
    x = step.forward({x, step.parameter(name, 1)}, 1, 10);
    x = step.forward({x}, 1, 0.01);
  }
  step.forward({x}, 1, 0.01);  // so that the middle lies before the last operator of a.1
  EXPECT_EQ(cuts_of(step, stages(2)), "4");
  EXPECT_EQ(make_stage_model(step.graph, step.costs).divided_modules,
            (std::vector<std::string>{"", "a", "a", "", "", "b", "b", "", ""}));
}

TEST(StageCuts, LieBetweenOperatorsThatTheUserCalledRatherThanInsideOfOne) {
  for (bool first_is_inside : {false, true}) {
    TestStep step;
    ValueId x = step.input(1);
    x = step.forward({x}, 1, 10);
    x = step.forward({x}, 1, 0.01, first_is_inside);
    x = step.forward({x}, 1, 10, !first_is_inside);
    EXPECT_EQ(cuts_of(step, stages(2)), first_is_inside ? "2" : "1");
  }
}

TEST(StageCuts, BeginBeforeTheViewsThatPrepareAnOperator) {
  TestStep step;
  const ValueId weight = step.parameter("b.weight", 5);
  const ValueId x = step.forward({step.input(1)}, 1, 1);
  const ValueId view = step.forward_view(weight);
  step.forward({x, view}, 1, 1);
  EXPECT_EQ(cuts_of(step, stages(2)), "1");
}

TEST(StageCuts, AreExplained) {
  TestStep step;
  ValueId x = step.input(2048);
  x = step.forward({x, step.parameter("tokens.weight", 3 << 20)}, 2048, 1);
  x = step.forward({x, step.parameter("block.0.weight", 1 << 20)}, 2048, 3);
  const ValueId saved = x = step.forward({x, step.parameter("block.1.weight", 1 << 20)}, 2048, 2);
  const ValueId view = step.forward_view(x);
  x = step.forward({view, step.parameter("head.weight", 1 << 20)}, 4, 1);
  const ValueId gradient = step.backward(4, {saved, x}, 2048, 1);
  step.backward(1, {gradient}, 2048, 0);
  step.costs.measured = true;
  EXPECT_EQ(choose(step, stages(2)).explanation,
            R"(epl: 2 stages, cut by measured cost
  stage_0      2 operators   50.0 % of the time  parameters   4.0 MiB  saves       0 B  receives   2.0 KiB a micro batch
  stage_1      3 operators   50.0 % of the time  parameters   2.0 MiB  saves   2.0 KiB  receives   2.0 KiB a micro batch
  the slowest stage takes 1.00 of the mean; 4.0 KiB cross a micro batch
  4 micro batches: about 1.60 times as fast as one device, before the update
The same as scopes:
  { epl::With stage(epl::replicate(1, "stage_0")); ... }  // tokens to block.0
  // the cut: before aten::stack, inside of block
  { epl::With stage(epl::replicate(1, "stage_1")); ... }  // block.1 to head
)");
}

TEST(StageCuts, AreExplainedWhereNoScopeCouldSayThem) {
  TestStep step;
  ValueId x = step.forward({step.input(1), step.parameter("lstm.weight_ih", 1)}, 1, 1);
  x = step.forward({x, step.parameter("lstm.weight_hh", 1)}, 1, 1, /*inside=*/true);
  const std::string text = choose(step, stages(2)).explanation;
  EXPECT_NE(text.find("cut by estimated cost"), std::string::npos) << text;
  EXPECT_NE(
      text.find("  // the cut: before aten::stack, inside of lstm, inside of one operator that "
                "the program calls: no scope can begin there\n"),
      std::string::npos)
      << text;
}

// Without the times of this machine, so that all runs choose alike.
NodeCosts estimated_costs(Graph& graph) {
  for (Node& node : graph.nodes) node.origin.seconds = 0;
  return node_costs(graph);
}

TEST(StageCuts, GiveEveryOperatorOfEveryModelTheStageThatWasCountedForIt) {
  for (const models::ModelStep& step : models::all_steps()) {
    SCOPED_TRACE(step.name);
    Graph graph = step.capture();
    const StageCuts chosen = choose_stage_cuts(graph, estimated_costs(graph), stages(3, 0.02));
    AssignTaskGraphs(chosen.cuts).run(graph);
    ASSERT_EQ(graph.taskgraphs.size(), 3);
    const std::vector<double> seconds = estimated_costs(graph).seconds;
    std::vector<double> by_stage(3, 0);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      by_stage.at(static_cast<size_t>(graph.nodes[i].taskgraph)) += seconds[i];
    }
    for (size_t stage = 0; stage < 3; ++stage) {
      EXPECT_NEAR(by_stage[stage], chosen.chunks[stage].seconds, 1e-9) << stage;
    }
  }
}

TEST(StageCuts, OfATransformerAreEvenAndLieBetweenItsBlocks) {
  Graph graph = models::bert_step().capture();
  const StageCuts chosen = choose_stage_cuts(graph, estimated_costs(graph), stages(2, 0.05));
  EXPECT_LT(chosen.pace, 0.53 * estimated_costs(graph).total());
  EXPECT_NE(chosen.explanation.find("// block2.qkv to head"), std::string::npos)
      << chosen.explanation;
}

}  // namespace
}  // namespace epl

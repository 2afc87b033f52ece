#include "sim/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "plan/schedules.h"

namespace epl {
namespace {

using testing::ElementsAre;

ScheduleRequest request(const std::string& strategy, int stages, int micro_batches) {
  ScheduleRequest made;
  made.strategy = strategy;
  made.stages = stages;
  made.micro_batches = micro_batches;
  return made;
}

// "F0 0-1, ~1 1-2": kind, micro batch if any, begin and end.
std::vector<std::string> spans_of(const Timeline& timeline, size_t device) {
  std::vector<std::string> texts;
  for (const Span& span : timeline.devices.at(device).spans) {
    const char letter = "FBWU~"[static_cast<size_t>(span.kind)];
    const std::string number = span.micro_batch < 0 ? "" : concat(span.micro_batch);
    texts.push_back(concat(letter, number, " ", span.begin, "-", span.end));
  }
  return texts;
}

SimulatedCosts two_chunks() {
  SimulatedCosts costs;
  costs.chunks.assign(2, {1, 2, 0});
  return costs;
}

TEST(Simulate, RunsTasksInOrderAsSoonAsTheyCan) {
  const Timeline timeline = simulate(make_schedule(request("PreferBackward", 2, 2)), two_chunks());
  EXPECT_EQ(timeline.title, "simulated, PreferBackward, 2 stages, 2 micro batches");
  EXPECT_EQ(timeline.devices[1].name, "stage 1");
  EXPECT_THAT(spans_of(timeline, 0), ElementsAre("F0 0-1", "F1 1-2", "B0 4-6", "B1 7-9"));
  EXPECT_THAT(spans_of(timeline, 1), ElementsAre("F0 1-2", "B0 2-4", "F1 4-5", "B1 5-7"));
  EXPECT_EQ(timeline.seconds, 9);
}

TEST(Simulate, ShowsTransfersOnlyWhereADeviceWaitsForThem) {
  SimulatedCosts costs = two_chunks();
  costs.forward_transfers = {0.5};
  costs.backward_transfers = {0.25};
  const Timeline timeline = simulate(make_schedule(request("PreferBackward", 2, 2)), costs);
  // The sender goes on with F1 at once; F1's way to stage 1 is hidden behind B0 there.
  EXPECT_THAT(spans_of(timeline, 0), ElementsAre("F0 0-1", "F1 1-2", "~0 4.5-4.75", "B0 4.75-6.75",
                                                 "~1 7.5-7.75", "B1 7.75-9.75"));
  EXPECT_THAT(spans_of(timeline, 1),
              ElementsAre("~0 1-1.5", "F0 1.5-2.5", "B0 2.5-4.5", "F1 4.5-5.5", "B1 5.5-7.5"));
}

TEST(Simulate, LetsUpdatesWaitForAllStages) {
  SimulatedCosts costs = two_chunks();
  costs.reductions = {0, 4};
  costs.updates = {1, 2};
  const Timeline timeline = simulate(make_schedule(request("PreferBackward", 2, 1)), costs);
  EXPECT_THAT(spans_of(timeline, 0), ElementsAre("F0 0-1", "B0 4-6", "U 8-9"));
  EXPECT_THAT(spans_of(timeline, 1), ElementsAre("F0 1-2", "B0 2-4", "~ 4-8", "U 8-10"));
  EXPECT_EQ(timeline.seconds, 10);
}

TEST(Simulate, LetsStagesUpdateAloneIfAsked) {
  SimulatedCosts costs = two_chunks();
  costs.reductions = {0, 1};
  costs.updates = {1, 3};
  costs.updates_together = false;
  const Timeline timeline = simulate(make_schedule(request("PreferBackward", 2, 1)), costs);
  EXPECT_THAT(spans_of(timeline, 0), ElementsAre("F0 0-1", "B0 4-6", "U 6-7"));
  EXPECT_THAT(spans_of(timeline, 1), ElementsAre("F0 1-2", "B0 2-4", "~ 4-5", "U 5-8"));
  EXPECT_EQ(timeline.seconds, 8);
}

TEST(Simulate, TakesTheWayBetweenChunksOfOneStageAsNothing) {
  ScheduleRequest asked = request("Interleaved", 1, 1);
  asked.chunks_per_stage = 2;
  SimulatedCosts costs = two_chunks();
  costs.forward_transfers = costs.backward_transfers = {100};
  EXPECT_EQ(simulate(make_schedule(asked), costs).seconds, 6);
}

TEST(Simulate, TakesTasksThatCostNothing) {
  SimulatedCosts costs;
  costs.chunks.resize(2);
  const Timeline timeline = simulate(make_schedule(request("ZeroBubble", 2, 3)), costs);
  EXPECT_EQ(timeline.seconds, 0);
  EXPECT_THAT(spans_of(timeline, 0), ElementsAre());
}

TEST(Simulate, GivesSharesThatAddUp) {
  SimulatedCosts costs = two_chunks();
  costs.forward_transfers = {0.5};
  costs.updates = {0.5, 0.25};
  const Timeline timeline = simulate(make_schedule(request("PreferForward", 2, 3)), costs);
  for (const Timeline::Shares& shares :
       {timeline.shares(0), timeline.shares(1), timeline.shares()}) {
    EXPECT_NEAR(shares.compute + shares.update + shares.communication + shares.bubble, 1, 1e-12);
    EXPECT_NEAR(shares.compute, 9 / timeline.seconds, 1e-12);
  }
}

TEST(Simulate, RefusesCostsThatDoNotFit) {
  const Schedule schedule = make_schedule(request("PreferBackward", 2, 2));
  EXPECT_THROW(simulate(schedule, {}), InternalError);
  SimulatedCosts costs = two_chunks();
  costs.forward_transfers = {1, 1};
  EXPECT_THROW(simulate(schedule, costs), InternalError);
  costs = two_chunks();
  costs.updates = {1};
  EXPECT_THROW(simulate(schedule, costs), InternalError);
}

}  // namespace
}  // namespace epl

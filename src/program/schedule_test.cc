#include "program/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/check.h"
#include "program/schedule_times.h"

namespace epl {
namespace {

using Kind = Task::Kind;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr Kind kF = Kind::kForward;
constexpr Kind kB = Kind::kBackward;
constexpr Kind kW = Kind::kWeights;

// One forward, one backward on two stages with two micro batches.
Schedule good_schedule() {
  Schedule schedule;
  schedule.strategy = "PreferBackward";
  schedule.micro_batches = 2;
  schedule.stage_of_chunk = {0, 1};
  schedule.stages = {{{kF, 0, 0}, {kF, 0, 1}, {kB, 0, 0}, {kB, 0, 1}},
                     {{kF, 1, 0}, {kB, 1, 0}, {kF, 1, 1}, {kB, 1, 1}}};
  schedule.in_flight = {2, 1};
  return schedule;
}

Schedule split_schedule() {
  Schedule schedule = good_schedule();
  schedule.splits_backward = true;
  schedule.stages[0].insert(schedule.stages[0].end(), {{kW, 0, 0}, {kW, 0, 1}});
  schedule.stages[1].insert(schedule.stages[1].end(), {{kW, 1, 0}, {kW, 1, 1}});
  schedule.in_flight = {2, 2};
  return schedule;
}

std::string fault_of(const Schedule& schedule) {
  try {
    verify_schedule(schedule);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

std::string fault_after(const std::function<void(Schedule&)>& change,
                        Schedule schedule = good_schedule()) {
  change(schedule);
  return fault_of(schedule);
}

std::vector<std::string> needs_of(const Task& task, int chunks) {
  std::vector<std::string> texts;
  for (const Task& need : needs(task, chunks)) texts.push_back(str(need));
  return texts;
}

TEST(Schedule, SaysWhatTasksNeed) {
  EXPECT_THAT(needs_of({kF, 0, 3}, 3), ElementsAre());
  EXPECT_THAT(needs_of({kF, 1, 3}, 3), ElementsAre("F3 of chunk 0"));
  EXPECT_THAT(needs_of({kB, 1, 3}, 3), ElementsAre("F3 of chunk 1", "B3 of chunk 2"));
  EXPECT_THAT(needs_of({kB, 2, 3}, 3), ElementsAre("F3 of chunk 2"));
  EXPECT_THAT(needs_of({kW, 1, 3}, 3), ElementsAre("B3 of chunk 1"));
}

TEST(VerifySchedule, AcceptsGoodOnes) {
  EXPECT_EQ(fault_of(good_schedule()), "");
  EXPECT_EQ(fault_of(split_schedule()), "");
}

TEST(VerifySchedule, AcceptsMoreRoomThanNeeded) {
  EXPECT_EQ(fault_after([](Schedule& schedule) { schedule.in_flight = {7, 7}; }), "");
}

TEST(VerifySchedule, FindsMissingTask) {
  EXPECT_THAT(fault_after([](Schedule& schedule) { schedule.stages[1].pop_back(); }),
              HasSubstr("B1 of chunk 1 is missing"));
  EXPECT_THAT(fault_after([](Schedule& schedule) { schedule.splits_backward = true; }),
              HasSubstr("W1 of chunk 0 is missing"));
}

TEST(VerifySchedule, FindsTaskThatComesTwice) {
  EXPECT_THAT(fault_after([](Schedule& schedule) {
                schedule.stages[1].push_back({kB, 1, 0});
              }),
              HasSubstr("B0 of chunk 1 comes twice"));
}

TEST(VerifySchedule, FindsMicroBatchesOutOfOrder) {
  const auto swap = [](Schedule& schedule) {
    std::swap(schedule.stages[0][2], schedule.stages[0][3]);
  };
  EXPECT_THAT(fault_after(swap), HasSubstr("B1 of chunk 0 comes before B0 of chunk 0"));
}

TEST(VerifySchedule, FindsWeightsOutOfOrder) {
  const auto swap = [](Schedule& schedule) {
    std::swap(schedule.stages[0][4], schedule.stages[0][5]);
  };
  EXPECT_THAT(fault_after(swap, split_schedule()),
              HasSubstr("W1 of chunk 0 comes before W0 of chunk 0"));
}

TEST(VerifySchedule, FindsStagesThatWaitForEachOther) {
  // Stage 0 wants micro batch 0 back before it sends 1, stage 1 wants both before it sends one
  // back.
  const auto cross = [](Schedule& schedule) {
    std::swap(schedule.stages[0][1], schedule.stages[0][2]);
    std::swap(schedule.stages[1][1], schedule.stages[1][2]);
    schedule.in_flight = {2, 2};
  };
  EXPECT_THAT(fault_after(cross),
              HasSubstr("wait for each other: stage 0 at B0 of chunk 0, stage 1 at F1 of chunk 1"));
}

TEST(VerifySchedule, FindsTaskBeforeWhatItNeedsOnItsOwnStage) {
  const auto swap = [](Schedule& schedule) {
    std::swap(schedule.stages[1][0], schedule.stages[1][1]);
  };
  EXPECT_THAT(fault_after(swap), HasSubstr("wait for each other"));
}

TEST(VerifySchedule, FindsBrokenPromiseOfMemory) {
  EXPECT_THAT(fault_after([](Schedule& schedule) {
                schedule.in_flight = {1, 1};
              }),
              HasSubstr("2 micro batches are in flight in chunk 0, promised 1"));
}

TEST(VerifySchedule, FindsTasksThatAreNotOfTheSchedule) {
  const auto fault_with = [](const Task& task) {
    return fault_after([&task](Schedule& schedule) { schedule.stages[0].push_back(task); });
  };
  EXPECT_THAT(fault_with({kF, 1, 0}), HasSubstr("stands on stage 0, its chunk lies on stage 1"));
  EXPECT_THAT(fault_with({kW, 0, 0}), HasSubstr("does not split backward"));
  EXPECT_THAT(fault_with({kF, 0, 2}), HasSubstr("is not of this schedule"));
  EXPECT_THAT(fault_with({kF, 2, 0}), HasSubstr("is not of this schedule"));
  EXPECT_THAT(fault_with({kF, 0, -1}), HasSubstr("is not of this schedule"));
}

TEST(VerifySchedule, FindsSizesThatDoNotFit) {
  EXPECT_NE(fault_of({}), "");
  EXPECT_THAT(fault_after([](Schedule& schedule) { schedule.in_flight.pop_back(); }),
              HasSubstr("in_flight has 1 entries for 2 chunks"));
  EXPECT_THAT(fault_after([](Schedule& schedule) { schedule.stage_of_chunk[1] = 2; }),
              HasSubstr("chunk 1 lies on stage 2 of 2"));
}

TEST(CountInFlight, CountsUntilTheWeightsWhereBackwardIsSplit) {
  EXPECT_THAT(count_in_flight(good_schedule()), ElementsAre(2, 1));
  EXPECT_THAT(count_in_flight(split_schedule()), ElementsAre(2, 2));
}

TEST(TaskTimes, WaitForTransfersBetweenStagesOnly) {
  const auto one = [](const Task&) { return 1; };
  const auto half = [](const Task&, const Task&) { return 0.5; };
  const auto times = task_times(good_schedule(), {one, half});
  // Stage 1: F0 from 1.5, B0 from 2.5. Stage 0: B0 was made at 3.5 and is there at 4.
  EXPECT_EQ(times[1][0].begin, 1.5);
  EXPECT_EQ(times[1][0].made, 1);
  EXPECT_EQ(times[1][1].begin, 2.5);
  EXPECT_EQ(times[0][2].begin, 4);
  EXPECT_EQ(times[0][2].made, 3.5);
  EXPECT_EQ(last_end(times), 7);
}

TEST(PrintSchedule, ShowsStagesByTime) {
  EXPECT_EQ(print_schedule(good_schedule()),
            "PreferBackward, 2 stages, 2 micro batches\n"
            "  stage 0  F0 F1       B0---    B1---\n"
            "  stage 1     F0 B0--- F1 B1---\n");
  EXPECT_EQ(print_schedule(split_schedule()),
            "PreferBackward, 2 stages, 2 micro batches\n"
            "  stage 0  F0 F1    B0    B1 W0 W1\n"
            "  stage 1     F0 B0 F1 B1 W0 W1\n");
}

TEST(PrintSchedule, NamesChunksWhereAStageHasSeveral) {
  Schedule schedule;
  schedule.strategy = "PreferForward";
  schedule.stage_of_chunk = {0, 0};
  schedule.stages = {{{kF, 0, 0}, {kF, 1, 0}, {kB, 1, 0}, {kB, 0, 0}}};
  schedule.in_flight = {1, 1};
  verify_schedule(schedule);
  EXPECT_EQ(print_schedule(schedule),
            "PreferForward, 1 stage of 2 chunks, 1 micro batch\n"
            "  stage 0  F0.0 F0.1 B0.1----- B0.0-----\n");
}

TEST(PrintSchedule, AlignsNumbersOfSeveralDigits) {
  Schedule schedule;
  schedule.strategy = "PreferForward";
  schedule.micro_batches = 11;
  schedule.stage_of_chunk = {0};
  schedule.stages.resize(1);
  for (int i = 0; i < 11; ++i) schedule.stages[0].push_back({kF, 0, i});
  for (int i = 0; i < 11; ++i) schedule.stages[0].push_back({kB, 0, i});
  EXPECT_THAT(print_schedule(schedule), HasSubstr("stage 0  F0  F1  F2 "));
  EXPECT_THAT(print_schedule(schedule), HasSubstr("F9  F10 B0----- B1-----"));
}

}  // namespace
}  // namespace epl

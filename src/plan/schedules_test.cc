#include "plan/schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/check.h"
#include "sim/simulate.h"

namespace epl {
namespace {

using testing::ElementsAre;

const char* const kStrategies[] = {"PreferBackward", "PreferForward", "PreferBackwardOptimizer",
                                   "Interleaved", "ZeroBubble"};

ScheduleRequest request(const std::string& strategy, int stages, int micro_batches,
                        int chunks_per_stage = 1) {
  ScheduleRequest made;
  made.strategy = strategy;
  made.stages = stages;
  made.chunks_per_stage = chunks_per_stage;
  made.micro_batches = micro_batches;
  return made;
}

Timeline simulate_with(const Schedule& schedule, const std::vector<TaskCosts>& costs,
                       double transfer = 0) {
  SimulatedCosts simulated;
  for (const TaskCosts& cost : costs) {
    const bool split = schedule.splits_backward;
    simulated.chunks.push_back(
        {cost.forward, cost.backward + (split ? 0 : cost.weights), split ? cost.weights : 0});
  }
  simulated.forward_transfers.assign(costs.size() - 1, transfer);
  simulated.backward_transfers.assign(costs.size() - 1, transfer);
  return simulate(schedule, simulated);
}

double seconds_of(const ScheduleRequest& asked) {
  std::vector<TaskCosts> costs = asked.costs;
  costs.resize(static_cast<size_t>(asked.stages * asked.chunks_per_stage));
  return simulate_with(make_schedule(asked), costs).seconds;
}

double bubble_of(const ScheduleRequest& asked) {
  const std::vector<TaskCosts> costs(static_cast<size_t>(asked.stages * asked.chunks_per_stage));
  return simulate_with(make_schedule(asked), costs).shares().bubble;
}

// No schedule with one chunk a stage that splits backward can be shorter.
double shortest_possible(const std::vector<TaskCosts>& costs, int micro_batches) {
  double all_forwards = 0;
  for (const TaskCosts& cost : costs) all_forwards += cost.forward;
  double longest = 0;
  double arrival = 0;  // of the first forward
  for (size_t stage = 0; stage < costs.size(); ++stage) {
    const TaskCosts& cost = costs[stage];
    // After the stage's last backward: what the stages before it have still to do.
    double tail = cost.weights;
    double way_back = 0;
    for (size_t before = stage; before-- > 0;) {
      way_back += costs[before].backward;
      tail = std::max(tail, way_back + costs[before].weights);
    }
    double first_backward = all_forwards;
    for (size_t behind = costs.size() - 1; behind > stage; --behind) {
      first_backward += costs[behind].backward;
    }
    const double backwards = micro_batches * cost.backward;
    const double weights = micro_batches * cost.weights;
    const double before_backwards = arrival + micro_batches * cost.forward;
    longest = std::max({longest, before_backwards + backwards + std::max(weights, tail),
                        first_backward + backwards + std::max(weights, tail)});
    arrival += cost.forward;
  }
  return longest;
}

TEST(ShortestPossible, IsTheRampAndTheWorkForEqualStages) {
  EXPECT_EQ(shortest_possible({{1, 1, 1}}, 5), 15);
  EXPECT_EQ(shortest_possible({{1, 1, 1}, {1, 1, 1}}, 8), 25);
  EXPECT_EQ(shortest_possible({{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}, 1), 9);
}

TEST(PreferBackward, HoldsNoMoreThanItPromises) {
  for (int stages = 1; stages <= 5; ++stages) {
    for (int micro_batches = 1; micro_batches <= 9; ++micro_batches) {
      const Schedule plain = make_schedule(request("PreferBackward", stages, micro_batches));
      const Schedule one_more =
          make_schedule(request("PreferBackwardOptimizer", stages, micro_batches));
      const Schedule all = make_schedule(request("PreferForward", stages, micro_batches));
      for (int stage = 0; stage < stages; ++stage) {
        SCOPED_TRACE(concat("stage ", stage, " of ", stages, ", ", micro_batches));
        const auto at = static_cast<size_t>(stage);
        const int more = stage + 1 < stages ? 1 : 0;
        EXPECT_EQ(plain.in_flight[at], std::min(micro_batches, stages - stage));
        EXPECT_EQ(one_more.in_flight[at], std::min(micro_batches, stages - stage + more));
        EXPECT_EQ(all.in_flight[at], micro_batches);
      }
    }
  }
}

TEST(PreferForward, RunsAllForwardsFirst) {
  const Schedule schedule = make_schedule(request("PreferForward", 3, 4, 2));
  for (const auto& tasks : schedule.stages) {
    EXPECT_TRUE(std::is_partitioned(tasks.begin(), tasks.end(), [](const Task& task) {
      return task.kind == Task::Kind::kForward;
    }));
  }
}

TEST(MakeSchedule, HasTheKnownBubbleWithEqualStages) {
  for (const char* strategy : {"PreferBackward", "PreferForward", "PreferBackwardOptimizer"}) {
    for (int stages : {1, 2, 3, 4, 8}) {
      for (int micro_batches : {1, 2, 3, 4, 8, 17}) {
        EXPECT_NEAR(bubble_of(request(strategy, stages, micro_batches)),
                    (stages - 1.0) / (micro_batches + stages - 1), 1e-12)
            << strategy << ", " << stages << " stages, " << micro_batches;
      }
    }
  }
}

TEST(Interleaved, ShrinksTheBubbleByTheNumberOfChunks) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int chunks = 2; chunks <= 4; ++chunks) {
      // Also where the stages do not divide the micro batches.
      for (int micro_batches = stages; micro_batches <= 3 * stages + 1; ++micro_batches) {
        const double ramp = (stages - 1.0) / chunks;
        EXPECT_NEAR(bubble_of(request("Interleaved", stages, micro_batches, chunks)),
                    ramp / (micro_batches + ramp), 1e-12)
            << stages << " stages of " << chunks << ", " << micro_batches << " micro batches";
      }
    }
  }
}

TEST(Interleaved, WithOneChunkAStageIsPreferBackward) {
  const Schedule schedule = make_schedule(request("Interleaved", 3, 5));
  EXPECT_THAT(schedule.in_flight, ElementsAre(3, 2, 1));
}

TEST(MakeSchedule, TakesAnyNumberOfStagesChunksAndMicroBatches) {
  // make_schedule() verifies each of them.
  for (const char* strategy : kStrategies) {
    for (int stages : {1, 2, 3, 4}) {
      for (int chunks : {1, 2, 3}) {
        for (int micro_batches : {1, 2, 3, 5, 7}) {
          const Schedule schedule = make_schedule(request(strategy, stages, micro_batches, chunks));
          EXPECT_EQ(schedule.chunks(), stages * chunks);
          EXPECT_EQ(schedule.strategy, strategy);
        }
      }
    }
  }
}

TEST(ZeroBubble, LeavesOnlyTheRampWithEqualCosts) {
  for (int stages : {1, 2, 3, 4, 8}) {
    for (int micro_batches : {1, 2, 3, 5, 8, 13}) {
      const std::vector<TaskCosts> costs(static_cast<size_t>(stages));
      EXPECT_NEAR(seconds_of(request("ZeroBubble", stages, micro_batches)),
                  shortest_possible(costs, micro_batches), 1e-9)
          << stages << " stages, " << micro_batches << " micro batches";
    }
  }
}

TEST(ZeroBubble, ReachesTwentyFourOfTwentyFiveOnTwoStages) {
  const ScheduleRequest asked = request("ZeroBubble", 2, 8);
  EXPECT_NEAR(seconds_of(asked), 25, 1e-9);
  const Timeline timeline = simulate_with(make_schedule(asked), std::vector<TaskCosts>(2));
  EXPECT_NEAR(timeline.shares().compute, 24.0 / 25, 1e-9);
}

TEST(ZeroBubble, IsNearTheShortestPossibleForUnevenStages) {
  std::mt19937 random(1);
  const auto near_one = [&random] {
    return 0.6 + 0.8e-9 * static_cast<double>(random() % 1000000000);
  };
  double sum = 0;
  int count = 0;
  for (int stages : {2, 3, 4, 8}) {
    for (int micro_batches : {2, 4, 8, 16}) {
      ScheduleRequest asked = request("ZeroBubble", stages, micro_batches);
      for (int stage = 0; stage < stages; ++stage) {
        const double size = near_one();
        asked.costs.push_back({size, size * near_one(), size * near_one()});
      }
      const double over = seconds_of(asked) / shortest_possible(asked.costs, micro_batches) - 1;
      EXPECT_LT(over, 0.08) << stages << " stages, " << micro_batches << " micro batches";
      sum += over;
      ++count;

      ScheduleRequest whole = asked;
      whole.strategy = "PreferBackward";
      EXPECT_LE(seconds_of(asked), seconds_of(whole) * (1 + 1e-9));
    }
  }
  EXPECT_LT(sum / count, 0.02);
}

TEST(ZeroBubble, PaysForShortDelaysOnceAndNotForEveryMicroBatch) {
  const Schedule schedule = make_schedule(request("ZeroBubble", 4, 32));
  const std::vector<TaskCosts> costs(4);
  const double delay = 0.1;
  EXPECT_NEAR(simulate_with(schedule, costs, delay).seconds, 32 * 3 + 3 * (1 + delay), 1e-9);
}

TEST(ZeroBubble, KeepsToItsMemory) {
  for (int most = 1; most <= 8; ++most) {
    ScheduleRequest asked = request("ZeroBubble", 4, 16);
    asked.most_in_flight = most;
    const Schedule schedule = make_schedule(asked);
    EXPECT_LE(*std::max_element(schedule.in_flight.begin(), schedule.in_flight.end()), most);
  }
}

TEST(ZeroBubble, TakesNoMoreMemoryThanHelps) {
  // 2 S - 1 = 15 would be allowed.
  const Schedule schedule = make_schedule(request("ZeroBubble", 8, 32));
  EXPECT_LE(*std::max_element(schedule.in_flight.begin(), schedule.in_flight.end()), 12);
}

TEST(ZeroBubble, LeavesOnlyTheRampWithSeveralChunksAStage) {
  EXPECT_NEAR(seconds_of(request("ZeroBubble", 4, 8, 2)), 2 * 8 * 3 + 3, 1.01);
}

TEST(ZeroBubble, TakesCostsOfNothing) {
  ScheduleRequest asked = request("ZeroBubble", 3, 5);
  asked.costs.assign(3, {0, 0, 0});
  EXPECT_EQ(seconds_of(asked), 0);
  asked.costs[1].backward = 1;
  EXPECT_EQ(seconds_of(asked), 5);
}

TEST(MakeSchedule, GivesTheSameForTheSame) {
  ScheduleRequest asked = request("ZeroBubble", 4, 12);
  asked.costs = {{1, 1.3, 0.7}, {1.1, 0.9, 1}, {0.8, 1, 1.2}, {2, 1, 0.5}};
  EXPECT_EQ(print_schedule(make_schedule(asked)), print_schedule(make_schedule(asked)));
}

TEST(MakeSchedule, RefusesWhatIsNone) {
  EXPECT_THROW(make_schedule(request("PreferNothing", 2, 2)), InternalError);
  EXPECT_THROW(make_schedule(request("PreferBackward", 0, 2)), InternalError);
  EXPECT_THROW(make_schedule(request("PreferBackward", 2, 0)), InternalError);
  EXPECT_THROW(make_schedule(request("PreferBackward", 2, 2, 0)), InternalError);
  ScheduleRequest asked = request("ZeroBubble", 2, 2);
  asked.costs = {{1, 1, 1}};
  EXPECT_THROW(make_schedule(asked), InternalError);
  asked.costs = {{1, 1, 1}, {1, -1, 1}};
  EXPECT_THROW(make_schedule(asked), InternalError);
}

TEST(PrintSchedule, ShowsEachStrategy) {
  EXPECT_EQ(print_schedule(make_schedule(request("PreferBackward", 2, 4))),
            R"(PreferBackward, 2 stages, 4 micro batches
  stage 0  F0 F1       B0--- F2 B1--- F3 B2---    B3---
  stage 1     F0 B0--- F1 B1--- F2 B2--- F3 B3---
)");
  EXPECT_EQ(print_schedule(make_schedule(request("PreferForward", 2, 4))),
            R"(PreferForward, 2 stages, 4 micro batches
  stage 0  F0 F1 F2 F3          B0--- B1--- B2--- B3---
  stage 1     F0 F1 F2 F3 B0--- B1--- B2--- B3---
)");
  EXPECT_EQ(print_schedule(make_schedule(request("PreferBackwardOptimizer", 2, 4))),
            R"(PreferBackwardOptimizer, 2 stages, 4 micro batches
  stage 0  F0 F1 F2    B0--- F3 B1---    B2---    B3---
  stage 1     F0 B0--- F1 B1--- F2 B2--- F3 B3---
)");
  EXPECT_EQ(print_schedule(make_schedule(request("Interleaved", 2, 4, 2))),
            R"(Interleaved, 2 stages of 2 chunks, 4 micro batches
  stage 0  F0.0 F1.0 F0.2 F1.2 F2.0      B0.2----- F3.0 B1.2----- F2.2 B0.0----- F3.2 B1.0-----      B2.2-----      B3.2----- B2.0----- B3.0-----
  stage 1       F0.1 F1.1 F0.3 B0.3----- F1.3 B1.3----- F2.1 B0.1----- F3.1 B1.1----- F2.3 B2.3----- F3.3 B3.3----- B2.1----- B3.1-----
)");
  EXPECT_EQ(print_schedule(make_schedule(request("ZeroBubble", 2, 4))),
            R"(ZeroBubble, 2 stages, 4 micro batches
  stage 0  F0 F1 F2 B0 W0 B1 F3 B2 W1 W2 B3 W3
  stage 1     F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3
)");
}

}  // namespace
}  // namespace epl

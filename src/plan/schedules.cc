#include "plan/schedules.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "plan/zero_bubble.h"

namespace epl {
namespace {

using Kind = Task::Kind;

// All but the order of tasks.
Schedule frame_of(const ScheduleRequest& request) {
  Schedule schedule;
  schedule.strategy = request.strategy;
  schedule.micro_batches = request.micro_batches;
  schedule.stages.resize(static_cast<size_t>(request.stages));
  for (int chunk = 0; chunk < request.stages * request.chunks_per_stage; ++chunk) {
    schedule.stage_of_chunk.push_back(chunk % request.stages);
  }
  return schedule;
}

// Breadth first where a stage has several chunks: all micro batches through one, then through the
// next.
Schedule prefer_forward(Schedule schedule) {
  const auto add_all = [&schedule](Kind kind, int chunk) {
    auto& tasks = schedule.stages[static_cast<size_t>(schedule.stage_of(chunk))];
    for (int i = 0; i < schedule.micro_batches; ++i) tasks.push_back({kind, chunk, i});
  };
  for (int chunk = 0; chunk < schedule.chunks(); ++chunk) add_all(Kind::kForward, chunk);
  for (int chunk = schedule.chunks() - 1; chunk >= 0; --chunk) add_all(Kind::kBackward, chunk);
  return schedule;
}

// What a stage does, by kind, each in the order in which it does it. As many of the one as of the
// other.
struct TaskLists {
  std::vector<Task> forwards;
  std::vector<Task> backwards;
};

// `warm_up` forwards, then a forward and a backward by turns, then the backwards that are left.
std::vector<Task> one_by_one(const TaskLists& lists, int warm_up) {
  const size_t count = lists.forwards.size();
  const size_t ahead = std::min(count, static_cast<size_t>(warm_up));
  std::vector<Task> tasks(lists.forwards.begin(), lists.forwards.begin() + ahead);
  for (size_t i = 0; i < count; ++i) {
    if (i + ahead < count) tasks.push_back(lists.forwards[i + ahead]);
    tasks.push_back(lists.backwards[i]);
  }
  return tasks;
}

// How many micro batches go through a chunk before the stage turns to its next one: no fewer than
// there are stages, so that the first of them is back when the last has left; as even as can be,
// longer turns first, because a turn must not be longer than the warm-up foresaw.
std::vector<int> turns_of(const Schedule& schedule) {
  const int count = std::max(1, schedule.micro_batches / static_cast<int>(schedule.stages.size()));
  std::vector<int> turns(static_cast<size_t>(count), schedule.micro_batches / count);
  for (int i = 0; i < schedule.micro_batches % count; ++i) ++turns[static_cast<size_t>(i)];
  return turns;
}

TaskLists tasks_in_turns(const Schedule& schedule, int stage) {
  const int stages = static_cast<int>(schedule.stages.size());
  const int rounds = schedule.chunks() / stages;
  TaskLists lists;
  int begin = 0;
  for (int turn : turns_of(schedule)) {
    for (int round = 0; round < rounds; ++round) {
      for (int i = begin; i < begin + turn; ++i) {
        lists.forwards.push_back({Kind::kForward, round * stages + stage, i});
        lists.backwards.push_back({Kind::kBackward, (rounds - 1 - round) * stages + stage, i});
      }
    }
    begin += turn;
  }
  return lists;
}

// One forward, one backward. With one chunk a stage, stage s of S holds S - s micro batches: it
// warms up with the forwards that fill the way to the last stage. With several, the warm-up is the
// first turn through all chunks but the last, and the way to the last stage and back: Narayanan et
// al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (2021),
// there for turns as long as there are stages. All stages but the last take `extra` forwards more.
Schedule prefer_backward(Schedule schedule, int extra) {
  const int stages = static_cast<int>(schedule.stages.size());
  const int rounds = schedule.chunks() / stages;
  for (int stage = 0; stage < stages; ++stage) {
    const int way = stages - 1 - stage;
    int warm_up = rounds == 1 ? way : (rounds - 1) * turns_of(schedule).front() + 2 * way;
    if (way > 0) warm_up += extra;
    auto& tasks = schedule.stages[static_cast<size_t>(stage)];
    tasks = one_by_one(tasks_in_turns(schedule, stage), warm_up);
  }
  return schedule;
}

Schedule order_tasks(const ScheduleRequest& request) {
  const std::string& strategy = request.strategy;
  Schedule frame = frame_of(request);
  if (strategy == "PreferForward") return prefer_forward(std::move(frame));
  if (strategy == "PreferBackwardOptimizer") return prefer_backward(std::move(frame), 1);
  if (strategy == "ZeroBubble") return zero_bubble(std::move(frame), request);
  EPL_ASSERT(strategy == "PreferBackward" || strategy == "Interleaved",
             "no schedule is called " + strategy);
  return prefer_backward(std::move(frame), 0);
}

void check_request(const ScheduleRequest& request) {
  EPL_ASSERT(request.stages > 0 && request.chunks_per_stage > 0 && request.micro_batches > 0,
             concat("a schedule of ", request.stages, " stages, ", request.chunks_per_stage,
                    " chunks each and ", request.micro_batches, " micro batches"));
  const auto chunks = static_cast<size_t>(request.stages * request.chunks_per_stage);
  EPL_ASSERT(request.costs.empty() || request.costs.size() == chunks,
             concat(request.costs.size(), " costs for ", chunks, " chunks"));
  const auto is_cost = [](double cost) { return std::isfinite(cost) && cost >= 0; };
  for (const TaskCosts& cost : request.costs) {
    EPL_ASSERT(is_cost(cost.forward) && is_cost(cost.backward) && is_cost(cost.weights),
               concat("a chunk costs ", cost.forward, ", ", cost.backward, " and ", cost.weights));
  }
  EPL_ASSERT(is_cost(request.transfer), concat("a transfer costs ", request.transfer));
}

}  // namespace

Schedule make_schedule(const ScheduleRequest& asked) {
  check_request(asked);
  ScheduleRequest request = asked;
  request.costs.resize(static_cast<size_t>(request.stages * request.chunks_per_stage));
  Schedule schedule = order_tasks(request);
  schedule.in_flight = count_in_flight(schedule);
  verify_schedule(schedule);
  return schedule;
}

}  // namespace epl

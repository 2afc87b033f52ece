#include "program/schedule.h"

#include <algorithm>

#include "base/check.h"
#include "program/schedule_times.h"
#include "program/task_table.h"

namespace epl {
namespace {

using Kind = Task::Kind;

// The order of kinds that every micro batch goes through in a chunk.
std::vector<Kind> kinds_of(const Schedule& schedule) {
  if (schedule.splits_backward) return {Kind::kForward, Kind::kBackward, Kind::kWeights};
  return {Kind::kForward, Kind::kBackward};
}

void check_form(const Schedule& schedule) {
  EPL_ASSERT(schedule.micro_batches > 0, "a schedule of no micro batch");
  EPL_ASSERT(!schedule.stages.empty() && schedule.chunks() > 0, "a schedule of no stage or chunk");
  EPL_ASSERT(schedule.in_flight.size() == schedule.stage_of_chunk.size(),
             concat("in_flight has ", schedule.in_flight.size(), " entries for ", schedule.chunks(),
                    " chunks"));
  for (int chunk = 0; chunk < schedule.chunks(); ++chunk) {
    const int stage = schedule.stage_of(chunk);
    EPL_ASSERT(stage >= 0 && stage < static_cast<int>(schedule.stages.size()),
               concat("chunk ", chunk, " lies on stage ", stage, " of ", schedule.stages.size()));
  }
}

void check_task(const Schedule& schedule, size_t stage, const Task& task) {
  EPL_ASSERT(task.chunk >= 0 && task.chunk < schedule.chunks() && task.micro_batch >= 0 &&
                 task.micro_batch < schedule.micro_batches,
             concat(str(task), " is not of this schedule"));
  EPL_ASSERT(task.kind != Kind::kWeights || schedule.splits_backward,
             concat(str(task), " in a schedule that does not split backward"));
  EPL_ASSERT(schedule.stage_of(task.chunk) == static_cast<int>(stage),
             concat(str(task), " stands on stage ", stage, ", its chunk lies on stage ",
                    schedule.stage_of(task.chunk)));
}

// Each task once, and those of one kind and chunk in the order of micro batches.
void check_tasks(const Schedule& schedule) {
  TaskTable<char> seen(schedule.chunks(), schedule.micro_batches, 0);
  for (size_t stage = 0; stage < schedule.stages.size(); ++stage) {
    for (const Task& task : schedule.stages[stage]) {
      check_task(schedule, stage, task);
      EPL_ASSERT(!seen[task], concat(str(task), " comes twice"));
      const Task before{task.kind, task.chunk, task.micro_batch - 1};
      EPL_ASSERT(task.micro_batch == 0 || seen[before],
                 concat(str(task), " comes before ", str(before)));
      seen[task] = 1;
    }
  }
  for (Kind kind : kinds_of(schedule)) {
    for (int chunk = 0; chunk < schedule.chunks(); ++chunk) {
      // In order and without gaps, as checked above: if the last one is there, all are.
      const Task last{kind, chunk, schedule.micro_batches - 1};
      EPL_ASSERT(seen[last], concat(str(last), " is missing"));
    }
  }
}

}  // namespace

std::string str(const Task& task) {
  const char* letters = "FBW";
  return concat(letters[static_cast<size_t>(task.kind)], task.micro_batch, " of chunk ",
                task.chunk);
}

TaskNeeds needs(const Task& task, int chunks) {
  const int chunk = task.chunk;
  const int micro_batch = task.micro_batch;
  TaskNeeds needed;
  switch (task.kind) {
    case Kind::kForward:
      if (chunk > 0) needed.add({Kind::kForward, chunk - 1, micro_batch});
      break;
    case Kind::kBackward:
      needed.add({Kind::kForward, chunk, micro_batch});
      if (chunk + 1 < chunks) needed.add({Kind::kBackward, chunk + 1, micro_batch});
      break;
    case Kind::kWeights:
      needed.add({Kind::kBackward, chunk, micro_batch});
      break;
  }
  return needed;
}

std::vector<int> count_in_flight(const Schedule& schedule) {
  const Kind last = kinds_of(schedule).back();
  std::vector<int> now(schedule.stage_of_chunk.size());
  std::vector<int> most(now);
  for (const auto& tasks : schedule.stages) {
    for (const Task& task : tasks) {
      const auto chunk = static_cast<size_t>(task.chunk);
      if (task.kind == Kind::kForward) most[chunk] = std::max(most[chunk], ++now[chunk]);
      if (task.kind == last) --now[chunk];
    }
  }
  return most;
}

void verify_schedule(const Schedule& schedule) {
  check_form(schedule);
  check_tasks(schedule);
  task_times(schedule, {[](const Task&) { return 1; }, {}});
  const std::vector<int> in_flight = count_in_flight(schedule);
  for (size_t chunk = 0; chunk < in_flight.size(); ++chunk) {
    EPL_ASSERT(in_flight[chunk] <= schedule.in_flight[chunk],
               concat(in_flight[chunk], " micro batches are in flight in chunk ", chunk,
                      ", promised ", schedule.in_flight[chunk]));
  }
}

}  // namespace epl

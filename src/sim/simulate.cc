#include "sim/simulate.h"

#include <algorithm>

#include "base/check.h"
#include "program/schedule_times.h"
#include "program/span_kind.h"

namespace epl {
namespace {

using Costs = std::vector<double>;

void check_count(size_t count, size_t expected, const char* what) {
  EPL_ASSERT(count == expected, concat(count, " ", what, " to simulate ", expected));
}

void check_costs(const Schedule& schedule, const SimulatedCosts& costs) {
  const size_t chunks = schedule.stage_of_chunk.size();
  const size_t stages = schedule.stages.size();
  check_count(costs.chunks.size(), chunks, "costs of chunks");
  const auto check_list = [](const Costs& list, size_t expected, const char* what) {
    if (!list.empty()) check_count(list.size(), expected, what);
  };
  check_list(costs.forward_transfers, chunks - 1, "transfers forward");
  check_list(costs.backward_transfers, chunks - 1, "transfers backward");
  check_list(costs.reductions, stages, "reductions");
  check_list(costs.updates, stages, "updates");
}

double cost_at(const Costs& list, size_t index) { return list.empty() ? 0 : list[index]; }

TaskDurations durations_of(const SimulatedCosts& costs) {
  TaskDurations durations;
  durations.task = [&costs](const Task& task) {
    const auto& chunk = costs.chunks[static_cast<size_t>(task.chunk)];
    switch (task.kind) {
      case Task::Kind::kForward:
        return chunk.forward;
      case Task::Kind::kBackward:
        return chunk.backward;
      case Task::Kind::kWeights:
        break;
    }
    return chunk.weights;
  };
  durations.transfer = [&costs](const Task& from, const Task& to) {
    const bool forward = from.chunk < to.chunk;
    const auto border = static_cast<size_t>(std::min(from.chunk, to.chunk));
    return cost_at(forward ? costs.forward_transfers : costs.backward_transfers, border);
  };
  return durations;
}

void add_span(std::vector<Span>& spans, const Span& span) {
  if (span.end > span.begin) spans.push_back(span);
}

// The tasks of a stage, each after what was on its way for it while the stage had nothing to do.
std::vector<Span> spans_of(const std::vector<Task>& tasks, const std::vector<TaskTime>& times) {
  std::vector<Span> spans;
  double free = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    add_span(spans, {Span::Kind::kCommunication, task.chunk, task.micro_batch,
                     std::max(free, times[i].made), times[i].begin});
    add_span(spans,
             {span_kind(task.kind), task.chunk, task.micro_batch, times[i].begin, times[i].end});
    free = times[i].end;
  }
  return spans;
}

}  // namespace

Timeline simulate(const Schedule& schedule, const SimulatedCosts& costs) {
  check_costs(schedule, costs);
  const auto times = task_times(schedule, durations_of(costs));
  Timeline timeline;
  timeline.title = "simulated, " + title_of(schedule);
  std::vector<double> reduced;  // by stage, the end of its reduction
  for (size_t stage = 0; stage < times.size(); ++stage) {
    const double last = times[stage].back().end;
    reduced.push_back(last + cost_at(costs.reductions, stage));
    timeline.devices.push_back(
        {concat("stage ", stage), spans_of(schedule.stages[stage], times[stage])});
    add_span(timeline.devices.back().spans,
             {Span::Kind::kCommunication, -1, -1, last, reduced.back()});
  }
  const double all_reduced = *std::max_element(reduced.begin(), reduced.end());
  for (size_t stage = 0; stage < times.size(); ++stage) {
    const double begin = costs.updates_together ? all_reduced : reduced[stage];
    const double end = begin + cost_at(costs.updates, stage);
    add_span(timeline.devices[stage].spans, {Span::Kind::kUpdate, -1, -1, begin, end});
    timeline.seconds = std::max(timeline.seconds, end);
  }
  return timeline;
}

}  // namespace epl

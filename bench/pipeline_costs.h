// What the timeline of a pipeline's step says: in which order its stages worked, and what each task
// cost. A side sends both to the benchmark as numbers.
#pragma once

#include <epl/timeline.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "program/schedule.h"
#include "sim/simulate.h"

namespace epl::bench {

inline bool is_task(const Span& span) {
  return span.kind == Span::Kind::kForward || span.kind == Span::Kind::kBackward ||
         span.kind == Span::Kind::kWeights;
}

inline bool is_transfer(const Span& span) {
  return span.kind == Span::Kind::kCommunication && span.micro_batch >= 0;
}

// --- the order of tasks: four numbers a task
// -----------------------------------------------------------------

inline std::vector<double> order_of(const Timeline& timeline) {
  std::vector<double> numbers;
  for (size_t device = 0; device < timeline.devices.size(); ++device) {
    for (const auto& span : timeline.devices[device].spans) {
      if (!is_task(span)) continue;
      numbers.insert(numbers.end(),
                     {static_cast<double>(device), static_cast<double>(span.kind),
                      static_cast<double>(span.chunk), static_cast<double>(span.micro_batch)});
    }
  }
  return numbers;
}

// Span::Kind begins with the kinds of Task::Kind, in their order.
inline Schedule schedule_from(const std::string& strategy, const std::vector<double>& order) {
  Schedule schedule;
  schedule.strategy = strategy;
  for (size_t i = 0; i + 4 <= order.size(); i += 4) {
    const auto stage = static_cast<size_t>(order[i]);
    const Task task{static_cast<Task::Kind>(order[i + 1]), static_cast<int>(order[i + 2]),
                    static_cast<int>(order[i + 3])};
    const auto chunk = static_cast<size_t>(task.chunk);
    schedule.stages.resize(std::max(schedule.stages.size(), stage + 1));
    schedule.stage_of_chunk.resize(std::max(schedule.stage_of_chunk.size(), chunk + 1));
    schedule.stage_of_chunk[chunk] = static_cast<int>(stage);
    schedule.stages[stage].push_back(task);
    schedule.micro_batches = std::max(schedule.micro_batches, task.micro_batch + 1);
    schedule.splits_backward |= task.kind == Task::Kind::kWeights;
  }
  schedule.in_flight = count_in_flight(schedule);
  verify_schedule(schedule);
  return schedule;
}

// --- the costs: three numbers a chunk, then a forward and a backward transfer, then the update
// -----------------

constexpr size_t kCostsOfChunk = 3;

// Means over the micro batches. A transfer lasts from its sending to its arrival. The update is
// what the step takes beside its tasks and transfers, the optimizer's work before all.
inline std::vector<double> costs_of(const Timeline& timeline, double step_seconds) {
  struct Mean {
    double sum = 0;
    int count = 0;
    void add(const Span& span) {
      sum += span.end - span.begin;
      ++count;
    }
    double value() const { return count == 0 ? 0 : sum / count; }
  };
  std::vector<Mean> tasks(kCostsOfChunk * timeline.devices.size());
  Mean transfers[2];  // forward, backward
  double end = 0;
  for (const auto& device : timeline.devices) {
    for (size_t i = 0; i < device.spans.size(); ++i) {
      const Span& span = device.spans[i];
      if (!is_task(span) && !is_transfer(span)) continue;
      end = std::max(end, span.end);
      if (is_task(span)) {
        const auto first = kCostsOfChunk * static_cast<size_t>(span.chunk);
        tasks.at(first + static_cast<size_t>(span.kind)).add(span);
      } else if (i + 1 < device.spans.size()) {  // it comes in front of the task that needs it
        transfers[device.spans[i + 1].kind == Span::Kind::kForward ? 0 : 1].add(span);
      }
    }
  }
  std::vector<double> numbers;
  for (const auto& mean : tasks) numbers.push_back(mean.value());
  for (const auto& mean : transfers) numbers.push_back(mean.value());
  numbers.push_back(step_seconds - end);
  return numbers;
}

inline std::vector<double> mean_of(const std::vector<std::vector<double>>& rows) {
  std::vector<double> mean(rows.at(0).size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < mean.size(); ++i) {
      mean[i] += row.at(i) / static_cast<double>(rows.size());
    }
  }
  return mean;
}

inline SimulatedCosts costs_from(const std::vector<double>& numbers) {
  const size_t chunks = (numbers.size() - kCostsOfChunk) / kCostsOfChunk;
  SimulatedCosts costs;
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    const double* each = &numbers[kCostsOfChunk * chunk];
    costs.chunks.push_back({each[0], each[1], each[2]});
  }
  const double* rest = &numbers[kCostsOfChunk * chunks];
  costs.forward_transfers.assign(chunks - 1, rest[0]);
  costs.backward_transfers.assign(chunks - 1, rest[1]);
  costs.updates.assign(chunks, rest[2]);
  return costs;
}

// The step if what goes from stage to stage were there at once.
inline double ideal_seconds(const Schedule& schedule, SimulatedCosts costs) {
  costs.forward_transfers.clear();
  costs.backward_transfers.clear();
  return simulate(schedule, costs).seconds;
}

// What all stages did, laid end to end: the step of one device with the same costs.
inline double serial_seconds(const Schedule& schedule, const SimulatedCosts& costs) {
  double seconds = 0;
  for (const auto& chunk : costs.chunks) {
    seconds += schedule.micro_batches * (chunk.forward + chunk.backward + chunk.weights);
  }
  for (double update : costs.updates) seconds += update;
  return seconds;
}

// What the stage with the most work does, if it never waits: no schedule of these stages is
// shorter.
inline double busiest_seconds(const Schedule& schedule, const SimulatedCosts& costs) {
  std::vector<double> stages = costs.updates;
  for (size_t chunk = 0; chunk < costs.chunks.size(); ++chunk) {
    const auto& each = costs.chunks[chunk];
    stages.at(static_cast<size_t>(schedule.stage_of_chunk[chunk])) +=
        schedule.micro_batches * (each.forward + each.backward + each.weights);
  }
  return *std::max_element(stages.begin(), stages.end());
}

}  // namespace epl::bench

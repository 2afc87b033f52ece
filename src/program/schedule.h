// Schedule: in which order the devices of a pipeline do their work.
//
// The model is cut into chunks 0, 1, ..., each of which lies on a stage: on a stage's devices.
// Mostly a stage has one chunk; interleaved, chunk c lies on stage c % stages. A micro batch goes
// forward through all chunks in order, then backward through all of them in reverse. A Schedule
// says for each stage in which order it does its tasks. Whoever runs it waits for what a task
// needs, nothing else: any order that verify_schedule() accepts runs, and none that it refuses.
//
//   PreferBackward, 2 stages, 4 micro batches
//     stage 0  F0 F1       B0--- F2 B1--- F3 B2---    B3---
//     stage 1     F0 B0--- F1 B1--- F2 B2--- F3 B3---
//
// Gradients are summed in the order of micro batches in every schedule, so that all of them give
// the same bits: the tasks of one kind and chunk come in the order of their micro batches.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace epl {

struct Task {
  enum class Kind : unsigned char {
    kForward,
    kBackward,  // where the schedule splits backward: up to the gradients that the chunk before
                // needs
    kWeights,   // the rest of backward; only where the schedule splits it
  };

  Kind kind = Kind::kForward;
  int chunk = 0;
  int micro_batch = 0;
};

std::string str(const Task& task);  // "F3 of chunk 1"

struct Schedule {
  std::string strategy;  // "PreferBackward"
  int micro_batches = 1;
  bool splits_backward = false;
  std::vector<int> stage_of_chunk;
  std::vector<std::vector<Task>> stages;  // the tasks of each stage in order
  // For each chunk the most micro batches that are under way at once, from the start of their first
  // task to the end of their last: so many copies of its activations are needed.
  std::vector<int> in_flight;

  int chunks() const { return static_cast<int>(stage_of_chunk.size()); }
  int stage_of(int chunk) const { return stage_of_chunk.at(static_cast<size_t>(chunk)); }
};

// A short list of tasks, without an allocation: planners ask millions of times.
struct TaskNeeds {
  std::array<Task, 2> tasks;
  size_t count = 0;

  void add(const Task& task) { tasks[count++] = task; }
  const Task* begin() const { return tasks.data(); }
  const Task* end() const { return tasks.data() + count; }
};

// What a task waits for besides its turn. THE definition of readiness, for checker and simulator:
// forward needs forward of the chunk before; backward needs forward of its chunk and backward of
// the chunk behind it; weights need backward of their chunk. All of the same micro batch.
TaskNeeds needs(const Task& task, int chunks);

// What Schedule::in_flight is at least, by the order of tasks.
std::vector<int> count_in_flight(const Schedule& schedule);

// Throws InternalError where a task is missing, comes twice or stands on a stage that does not have
// its chunk, tasks of one kind and chunk are not in the order of micro batches, stages wait for
// each other for ever, or more micro batches are in flight than promised.
void verify_schedule(const Schedule& schedule);

std::string title_of(
    const Schedule& schedule);  // "Interleaved, 2 stages of 2 chunks, 1 micro batch"

// Stages by time, as above: each task takes one unit, a backward that is not split two. Where
// stages have several chunks, F3.1 is forward of micro batch 3 through chunk 1.
std::string print_schedule(const Schedule& schedule);

}  // namespace epl

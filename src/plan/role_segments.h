// The segments of a role: what its Program runs for each task of the schedule, and where that lies.
//
// A step without a pipeline has one kind of task and one micro batch in flight. Its inputs have one
// place. It is built once where there is one micro batch, whose gradients lie wherever they are
// made; else once for the first, which keeps its gradients, and once for the others, which add to
// what is kept.
//
// In a pipeline a chunk has a segment for each kind of task. Values that live from one of them to
// the next lie in an activation slot of their micro batch; there are as many activation slots as
// the schedule has micro batches in flight. All else lies in memory that the segments share, since
// one of them runs at a time.
//
//   arena of a step:   inputs | seed | kept gradients | shared
//   arena of a stage:  seed | kept gradients | activations 0 | activations 1 | ... | shared
#pragma once

#include <map>
#include <vector>

#include "plan/crossings.h"
#include "plan/lower.h"

namespace epl {

// The tasks that a step is cut into, and what goes from one to another: alike for all roles.
class StepTasks {
 public:
  // Arguments as for lower().
  StepTasks(const Graph& whole, const Schedule& schedule, int micro_batches);

  const Schedule& schedule() const { return schedule_; }
  const std::vector<Crossing>& crossings() const { return crossings_; }
  bool is_pipeline() const { return is_pipeline_; }
  int kinds() const;  // of tasks that a chunk has

  // For each node of a role's graph the task that it belongs to.
  std::vector<ChunkTask> of_nodes(const Graph& graph) const;

 private:
  bool is_pipeline_;
  Schedule schedule_;
  std::vector<Crossing> crossings_;
};

// What the tasks of one micro batch in flight run.
struct TaskSegments {
  std::vector<int> segments;         // by Task::Kind
  std::map<ValueId, SlotId> places;  // of what tasks are given, and of what is taken from them
};

struct ChunkSegments {
  TaskSegments first;                // of micro batch 0
  std::vector<TaskSegments> others;  // by activation slot

  const TaskSegments& of(int micro_batch) const {
    return micro_batch == 0 ? first : others[static_cast<size_t>(micro_batch) % others.size()];
  }
};

// Gradients that go together before the end of the step (plan/short_gradients.h).
struct ShortGroup {
  std::vector<int> gradients;  // of the Program
  std::vector<SlotId> slots;   // of each, in the segment
  int end_call = 0;            // they are complete after so many calls of the segment
  bool travels = false;        // several devices have them: they are summed while others compute
};

struct RoleSegments {
  std::map<int, ChunkSegments> chunks;                  // of its stage
  std::vector<ChunkTask> made_in;                       // by gradient of the Program
  std::map<int, std::vector<ShortGroup>> short_groups;  // by segment
};

// Makes all of the Program but its instructions. `gradients`: those that do not stay.
RoleSegments build_segments(const Role& role, const StepTasks& step, const LowerOptions& options,
                            const std::map<ValueId, PlanGradient::Stays>& gradients,
                            Program& program);

}  // namespace epl

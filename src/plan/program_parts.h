// Pieces that every Program is made of, whatever its schedule.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "program/program.h"

namespace epl {

SlotId add_slot(Program& program, Slot slot);

// A slot in a buffer that no other one shares bytes with.
Slot fixed_slot(Program& program, TensorType type);

// One for each leaf of the graph. Inputs and seed get places of their own, where they are copied
// to: views of them and arguments that name them never change. In a pipeline inputs get their
// places with each micro batch in flight.
enum class InputPlaces : uint8_t { kOne, kEachMicroBatch };
void add_leaves(const Graph& graph, InputPlaces inputs, Program& program);

// Where the sum of a gradient over micro batches is kept.
void add_kept_gradient(const Graph& graph, const Gradient& gradient, Program& program);

// Cuts what has so many bytes, in this order, into at most `groups` runs of about equal bytes.
std::vector<std::vector<int>> cut_into_groups(const std::vector<int64_t>& bytes, int groups);

// Appends the last run of a segment, in pieces: after each, one group of the gradients `made` in it
// is ready and sets out while the next piece computes. Where nothing may set out before the end of
// the step the groups come behind the run.
struct LastRun {
  Instruction run;
  std::vector<int> made;
  int most_groups = 1;
  bool reduces_early = true;
};
void add_last_run(const LastRun& last, Program& program);

// Finds the parameters that several roles have a gradient of: not where each has another piece.
void find_tied(Plan& plan);

// Appends the update of all gradients in at most so many groups.
void add_updates(int groups, Program& program);

}  // namespace epl

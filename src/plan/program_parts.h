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

// After how many calls of the segment each of these slots has got its last write, and nobody reads
// it any more: what is made of a gradient for another parameter would else see it half reduced,
// since reductions work in place while the rest of the segment runs.
std::vector<int> ready_after(const Program& program, const Segment& segment,
                             const std::vector<SlotId>& slots);

// What follows the first `end_call` calls of a run.
struct RunCut {
  int end_call = 0;
  std::vector<Instruction> then;
};

// The gradients `made` by the last run of a segment, in groups: each sets out when it is ready,
// while the next piece computes.
std::vector<RunCut> cuts_of_reductions(const Program& program, const Instruction& run,
                                       const std::vector<int>& made, int most_groups);

// Appends a run, in pieces. Groups of gradients get their numbers.
void add_run_in_pieces(Instruction run, std::vector<RunCut> cuts, Program& program);
// Where nothing may set out before the end of the step: the groups come behind the run.
void add_run_and_groups(const Instruction& run, const std::vector<RunCut>& cuts, Program& program);

// Finds the parameters that several roles have a gradient of: not where each has another piece.
void find_tied(Plan& plan);

// Appends the update of all gradients in at most so many groups.
void add_updates(int groups, Program& program);

}  // namespace epl

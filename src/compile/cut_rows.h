// A micro batch whose rows are cut over devices: the proof, from the graph of the step, that what
// the slices give is what all rows would give, and how it is put together.
//
// Code under replicate(k), k > 1, runs on slices of the rows. sharding/rows.h follows them through
// the step; what it cannot follow is refused here, with the operator's name.
#pragma once

#include <string>
#include <vector>

#include "capture/two_sizes.h"
#include "compile/step_recording.h"
#include "program/placement.h"
#include "sharding/rows.h"

namespace epl {

// How loss and metrics of the slices are merged, into `sizes`. Throws epl::Error, asked by
// `asked_by`, where the loss is neither a mean nor a sum over the rows or rows look at each other,
// where a metric is neither of these nor has a row for each, and where the slices would write other
// state or read back other values than the whole.
void prove_rows(const RowQuestion& question, const std::string& asked_by, TwoSizes& sizes);

// The same for all recordings of a step with fewer rows, each for the code that runs on so few.
// Their graphs went through the passes for the whole step.
void prove_rows(const StepRecording& recording, const Placement& placement, TwoSizes& sizes);

// Recordings of one step at several sizes do the same operators. Throws epl::Error where they do
// not, and where rows of the batch look at each other.
void compare_recordings(const StepRecording& recording, const Placement& placement);

// By node: whether it runs on slices of a micro batch: those of a stage that cuts its micro batches
// over devices, or where operators are cut, those that stand under replicate. The graph has chunks
// where there are several stages.
std::vector<bool> nodes_on_slices(const Graph& graph, const Placement& placement);

// Losses that divide by the number of targets that count (not ignore_index) are right on slices
// only where all do: each such node of `sliced` ones first looks, when the step runs, whether they
// do.
// Where a step has several parts the others divide by what counts in their part: they note whether
// one of its targets does not (runtime/counted_targets.h).
void look_at_targets(Graph& graph, const std::vector<bool>& sliced, bool in_parts);

}  // namespace epl

// One step recorded at two sizes of its micro batch: the same operators with other numbers.
//
// The comparison tells which dimension of each value is the batch, with no rule per operator.
// Whether rows stand for themselves, so that the micro batch may be cut over devices, is another
// question: sharding/rows.h.
#pragma once

#include <string>
#include <vector>

#include "capture/capture.h"
#include "ir/graph.h"
#include "layout/slice_merge.h"

namespace epl {

struct TwoSizes {
  std::vector<int> batch_dims;  // by ValueId; -1: the value has no batch dimension
  // How the losses of micro batches and replicas make up that of all rows
  // (compile/loss_of_parts.h).
  SliceMerge loss_of_parts = SliceMerge::kMean;
  // By compile/cut_rows.h:
  SliceMerge loss = SliceMerge::kMean;
  std::vector<SliceMerge> metrics;     // as Graph::metrics
  std::vector<int> metric_batch_dims;  // as Graph::metrics; of those that are joined
};

// `large` is the same step on `times` times as many rows. Throws epl::Error, asked by `asked_by`,
// where the step does other operators then, and where rows of the batch look at each other (a value
// has two batch dimensions).
TwoSizes compare_sizes(const Graph& small, const Graph& large, int times,
                       const std::string& asked_by);

// The rows of the batch (dim 0 of every tensor that has one) so many times, one copy behind the
// other.
Batch repeat_rows(const Batch& batch, int times);

}  // namespace epl

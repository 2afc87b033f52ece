// What the results of a step are in terms of the rows of its batch: read from the graph of one
// recording, by the rules of its operators (ops/rule.h), never from numbers.
//
//   %3 = aten::mse_loss(%2, %1, 0)          a row for each of the batch
//   %4 = aten::sum(%3)                      a sum over rows
//   %5 = aten::div.Scalar(%4, 8)            a mean, if the batch has 8 rows
//
// Rows are dim 0 of the batch. Whether a number that a sum is divided by is that of the rows or one
// of the program's own, one recording cannot tell for certain: the number of rows, or that of all
// elements of the sum, is taken for a divisor that grows with the batch, unless something else is
// that many.
//
// The answers serve remarks to the user, debug.verify_steps, and the loss that a step gives where
// its gradients are added up (communication.gradients_reduce_method). How rows are cut over devices
// does not depend on them: that is the subject of slices.h.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace epl {

// A loss that divides by the number of targets that count, those that are not its ignore_index.
bool counts_targets(const Node& node);

enum class OverRows : uint8_t {
  kMean,  // or the same for all rows
  kSum,
  kNeither,  // `why` says it
};

// What the loss of a step is, in terms of its rows.
struct RowResult {
  OverRows kind = OverRows::kMean;
  std::string why;  // kNeither
};

// Of a pure step (passes/purify.h). The step has so many parts like it; 0: it does not matter.
RowResult loss_over_rows(const Graph& pure, int parts = 0);

// Metrics of it that have a row for each of the batch.
std::vector<const Metric*> metrics_of_rows(const Graph& pure);

}  // namespace epl

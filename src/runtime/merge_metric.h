// Metrics of the micro batches of a step, merged as their collection says.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace epl {

// GLOBAL_/LOCAL_ MEAN, SUM: element by element; CONCAT: along dim 0, numbers become rows. Sums of
// whole numbers are whole, in a wider type where they do not fit into their own.
at::Tensor merge_metric(const std::string& collection, const std::vector<at::Tensor>& parts);

}  // namespace epl

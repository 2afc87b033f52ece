// A step on several micro batches or replicas averages their losses. Whether that is the loss of
// all rows depends on the loss: of a mean over rows it is, of a sum it is a part.
#pragma once

#include <string>

#include "ir/graph.h"
#include "sharding/rows.h"

namespace epl {

// Of one of the parts that a step averages, as it was recorded. `parts`: micro batches times
// replicas.
RowResult loss_of_recorded(const Graph& recorded, int parts);

// The same where a step cannot be replayed, which may also be what keeps its graph from being read.
RowResult loss_of_any_recorded(const Graph& recorded, int parts);

// What a user should hear of it; empty where there is nothing to say. `parts`: micro batches times
// replicas; `averages`: gradients are reduced by their mean.
std::string remark_on_loss(const RowResult& loss, int parts, bool averages);

// The same of metrics that are averaged over the parts, though they have rows.
std::string remark_on_metrics(const Graph& pure, int parts);

}  // namespace epl

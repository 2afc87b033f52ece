// A batch cut into micro batches, and what is said where it cannot be.
#pragma once

#include <epl/config.h>
#include <epl/trainer.h>

#include <vector>

namespace epl {

// Cuts every tensor evenly along dim 0 into pipeline.num_micro_batch parts (views, no copies).
std::vector<Batch> cut_into_micro_batches(const Batch& batch, const Config& config);

// Calls the source once a micro batch; all must have the shapes of the first.
std::vector<Batch> draw_micro_batches(const BatchSource& source, const Config& config);

}  // namespace epl

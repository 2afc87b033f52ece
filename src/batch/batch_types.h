// What a recorded step depends on of its batch: the types of its tensors.
#pragma once

#include <epl/step.h>

#include <cstdint>
#include <vector>

namespace epl {

// Element types, shapes, whether gradients are asked for, and how copies lie in memory. Batches
// that append the same numbers can be run by one recording.
void append_types(const Batch& batch, std::vector<int64_t>& key);

}  // namespace epl

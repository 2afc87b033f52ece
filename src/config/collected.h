// What add_to_collection() collected while a step was recorded.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace epl {

struct CollectionEntry {
  std::string collection;  // one of epl::collections
  std::string name;        // metrics: unique, never empty; checkpoints: as given
  at::Tensor tensor;
};

// How a metric merges that the step function returns: whole numbers are counts and are summed,
// everything else is averaged.
const char* collection_of_returned(const at::Tensor& metric);

// The entries of this thread's recording in the order of their adding, handed over: a second call
// gives none. May be called before or after Recording::finish().
std::vector<CollectionEntry> take_collections();

}  // namespace epl

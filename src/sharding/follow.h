// Which operators may follow parameters that are cut, in code that otherwise runs on slices.
#pragma once

#include <vector>

#include "sharding/sharding.h"

namespace epl {

// From the parameters that were made under split(), along the index in which they are cut: the
// product with the experts' weights, what is done to its result, what came before. By node.
std::vector<bool> nodes_that_follow(const ShardingRequest& request);

}  // namespace epl

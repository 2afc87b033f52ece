// Where a parameter that is updated lies, with the states of its optimizer.
#pragma once

#include <vector>

#include "layout/shard.h"

namespace epl {

struct Home {
  std::vector<int> stages;         // that have a gradient of it, in order
  std::vector<Shard> shards = {};  // of a parameter that is cut over devices: by `stages`

  bool operator==(const Home& other) const {
    return stages == other.stages && shards == other.shards;
  }
};

}  // namespace epl

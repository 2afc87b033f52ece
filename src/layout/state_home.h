// Where a parameter that is updated lies, with the states of its optimizer.
#pragma once

#include <vector>

#include "layout/shard.h"

namespace epl {

struct Home {
  std::vector<int> roles;          // that have a gradient of it, in order: programs
  std::vector<Shard> shards = {};  // of a parameter that is cut over devices: by `roles`

  bool operator==(const Home& other) const {
    return roles == other.roles && shards == other.shards;
  }
};

}  // namespace epl

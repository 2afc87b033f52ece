// Where a parameter that is updated lies, with the states of its optimizer.
#pragma once

#include <vector>

#include "layout/owners.h"
#include "layout/shard.h"

namespace epl {

struct Home {
  std::vector<int> roles;          // that have a gradient of it, in order: programs
  std::vector<Shard> shards = {};  // of a parameter that is cut over devices: by `roles`
  // Which of the workers of a role update it, and keep its states. Those of its shards alike.
  Owners owners = {};

  bool operator==(const Home& other) const {
    return roles == other.roles && shards == other.shards && owners == other.owners;
  }
};

}  // namespace epl

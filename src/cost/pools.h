// Pools: what devices share, as data. Two cores each copy 12 GB a second alone, and together no
// more.
//
//   for (const Pool& pool : pools_of(map)) ...      // one for each run of equal hosts
//   rate_in(pool, 20e9, 2);                         // 12.5e9, of a memory of 25 GB a second
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/cluster_map.h"

namespace epl {

struct Pool {
  enum class Of : uint8_t { kCores, kMemory, kPorts };

  Of of = Of::kMemory;
  double capacity = 0;  // cores; bytes a second
  // Each of these hosts has one of its own.
  int64_t first_host = 0;
  int64_t hosts = 1;
  int64_t devices = 1;  // that share it
  size_t link = 0;      // kPorts: whose

  std::string str() const;  // "memory of host 0, 2 devices: 25 GB/s"
};

// In the order of hosts. What each device has for itself is no pool.
std::vector<Pool> pools_of(const ClusterMap& map);

// What each of `users` gets of a pool who could use `alone` by itself: fair shares.
double rate_in(const Pool& pool, double alone, int64_t users);

}  // namespace epl

// Arithmetic on WorkerShares that files and rows have in common.
#pragma once

#include <epl/io.h>

#include <cstdint>
#include <string>

namespace epl {

// Throws unless every worker has a replica and `worker` is one of them.
void check_shares(const WorkerShares& shares);

int64_t total_replicas(const WorkerShares& shares);

// Replicas of all workers before this one.
int64_t replicas_before(const WorkerShares& shares);

// "2 workers with 4 and 2 replicas", "64 workers with 8 replicas each".
std::string str(const WorkerShares& shares);

}  // namespace epl

// The order of the rows of one epoch, and which of them a step of one worker reads.
#pragma once

#include <epl/io.h>

#include <cstdint>
#include <vector>

namespace epl {

// The numbers below `size` in a random order, the same on every machine: the generator and the
// shuffle are defined to the bit here or in the C++ standard, unlike std::shuffle.
std::vector<size_t> epoch_order(size_t size, uint64_t seed, uint64_t epoch);

// Rows of one step over all workers, and this worker's part of them.
struct StepRows {
  size_t all = 0;
  size_t begin = 0;
  size_t count = 0;
};

// Where this worker reads `batch_size` rows, and the others as many for each of their replicas.
// Throws where this worker's replicas do not divide batch_size.
StepRows rows_of_step(size_t batch_size, const WorkerShares& shares, const std::string& asked_by);

}  // namespace epl

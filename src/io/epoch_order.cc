#include "io/epoch_order.h"

#include <numeric>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "io/shares.h"

namespace epl {
namespace {

// A number below `bound`, all equally likely: draws from the incomplete last stretch of the
// generator's range are thrown away.
uint64_t below(uint64_t bound, std::mt19937_64& random) {
  const uint64_t stretches = std::mt19937_64::max() / bound;
  uint64_t drawn = random();
  while (drawn >= stretches * bound) drawn = random();
  return drawn / stretches;
}

}  // namespace

std::vector<size_t> epoch_order(size_t size, uint64_t seed, uint64_t epoch) {
  const auto low = [](uint64_t number) { return static_cast<uint32_t>(number); };
  const auto high = [](uint64_t number) { return static_cast<uint32_t>(number >> 32); };
  std::seed_seq sequence{low(seed), high(seed), low(epoch), high(epoch)};
  std::mt19937_64 random(sequence);
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t left = size; left > 1; --left) std::swap(order[left - 1], order[below(left, random)]);
  return order;
}

StepRows rows_of_step(size_t batch_size, const WorkerShares& shares, const std::string& asked_by) {
  const size_t replicas = static_cast<size_t>(shares.replicas[static_cast<size_t>(shares.worker)]);
  const size_t per_replica = batch_size / replicas;
  EPL_CHECK(per_replica > 0 && per_replica * replicas == batch_size,
            concat("a batch of ", batch_size, " rows cannot be cut over the ", replicas,
                   " replicas of worker ", shares.worker),
            asked_by, "epl::worker_batch_size(rows of one device) as the loader's batch size");
  return {per_replica * static_cast<size_t>(total_replicas(shares)),
          per_replica * static_cast<size_t>(replicas_before(shares)), batch_size};
}

}  // namespace epl

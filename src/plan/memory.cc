#include "plan/memory.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace epl {
namespace {

// Those in place already, ordered by offset.
struct Placed {
  int64_t begin;
  int64_t end;
  int first;
  int last;
};

int64_t lowest_place(const std::vector<Placed>& placed, const Lifetime& lifetime) {
  int64_t place = 0;
  for (const auto& other : placed) {
    if (other.last < lifetime.first || lifetime.last < other.first) continue;
    if (other.begin >= place + align_up(lifetime.bytes)) break;
    place = std::max(place, other.end);
  }
  return place;
}

}  // namespace

int64_t align_up(int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

BufferPlaces place_buffers(const std::vector<Lifetime>& lifetimes) {
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  BufferPlaces placement;
  placement.offsets.resize(lifetimes.size());
  std::vector<Placed> placed;
  for (size_t index : order) {
    const Lifetime& lifetime = lifetimes[index];
    const int64_t place = lowest_place(placed, lifetime);
    const Placed now{place, place + align_up(lifetime.bytes), lifetime.first, lifetime.last};
    placement.offsets[index] = place;
    placement.total = std::max(placement.total, now.end);
    if (lifetime.bytes == 0) continue;
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), now,
                         [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
        now);
  }
  return placement;
}

int64_t lower_bound_bytes(const std::vector<Lifetime>& lifetimes) {
  std::map<int, int64_t> change;
  for (const auto& lifetime : lifetimes) {
    change[lifetime.first] += align_up(lifetime.bytes);
    change[lifetime.last + 1] -= align_up(lifetime.bytes);
  }
  int64_t now = 0;
  int64_t most = 0;
  for (const auto& [time, bytes] : change) most = std::max(most, now += bytes);
  return most;
}

}  // namespace epl

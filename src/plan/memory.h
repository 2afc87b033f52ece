// Where buffers lie in an arena: those that do not live at the same time may share bytes.
#pragma once

#include <cstdint>
#include <vector>

namespace epl {

// A buffer is written at `first` and read at `last` at the latest; both are positions in one order.
struct Lifetime {
  int64_t bytes = 0;
  int first = 0;
  int last = 0;
};

struct BufferPlaces {
  std::vector<int64_t> offsets;  // one a lifetime
  int64_t total = 0;
};

inline constexpr int64_t kArenaAlignment = 64;

int64_t align_up(int64_t bytes);

// Large buffers first, each at the lowest place that is free for its whole life. Finding the least
// total is NP-hard; this order comes within a few percent of the lower bound on training steps.
BufferPlaces place_buffers(const std::vector<Lifetime>& lifetimes);

// The most bytes alive at one moment: no placement can do with less.
int64_t lower_bound_bytes(const std::vector<Lifetime>& lifetimes);

}  // namespace epl

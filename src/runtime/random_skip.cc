#include "runtime/random_skip.h"

#include <algorithm>

namespace epl {
namespace {

constexpr size_t kWords = at::MERSENNE_STATE_N;
constexpr size_t kAhead = at::MERSENNE_STATE_M;
using Words = std::array<uint32_t, kWords>;

uint32_t twisted(uint32_t first, uint32_t second, uint32_t other) {
  const uint32_t mixed = (first & at::UMASK) | (second & at::LMASK);
  return other ^ (mixed >> 1) ^ ((0U - (second & 1U)) & at::MATRIX_A);
}

// The next kWords numbers, before they are tempered. Loops that a compiler vectorises: it takes a
// tenth of the time of drawing them.
void next_block(Words& words) {
  size_t i = 0;
  for (; i < kWords - kAhead; ++i) words[i] = twisted(words[i], words[i + 1], words[i + kAhead]);
  for (; i + 1 < kWords; ++i) {
    words[i] = twisted(words[i], words[i + 1], words[i + kAhead - kWords]);
  }
  words[i] = twisted(words[i], words[0], words[kAhead - 1]);
}

// The engine counts down: it makes a new block before it draws where one is left.
uint64_t left_in_block(const at::mt19937_data_pod& state) {
  return static_cast<uint64_t>(state.left_) - 1;
}

}  // namespace

uint64_t draws_between(const at::mt19937_data_pod& before, const at::mt19937_data_pod& after) {
  constexpr int64_t kMostBlocks = 1 << 24;  // ten billion numbers: it is no later state of this one
  if (before.seed_ != after.seed_) return 0;
  Words words = before.state_;
  for (int64_t blocks = 0; blocks < kMostBlocks; ++blocks) {
    if (words[0] == after.state_[0] && words == after.state_) {
      return static_cast<uint64_t>(blocks) * kWords + left_in_block(before) - left_in_block(after);
    }
    next_block(words);
  }
  return 0;
}

void skip_draws(at::mt19937_data_pod& state, uint64_t draws) {
  while (draws > 0) {
    if (left_in_block(state) == 0) {
      next_block(state.state_);
      state.left_ = static_cast<int>(kWords) + 1;
      state.next_ = 0;
    }
    const uint64_t now = std::min(draws, left_in_block(state));
    state.left_ -= static_cast<int>(now);
    state.next_ += static_cast<uint32_t>(now);
    draws -= now;
  }
}

}  // namespace epl

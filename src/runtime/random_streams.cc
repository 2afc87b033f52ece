#include "runtime/random_streams.h"

#include <ATen/CPUGeneratorImpl.h>

namespace epl {

// The finaliser of splitmix64: seeds of neighbouring devices have nothing in common.
uint64_t RandomStreams::seed_from(uint64_t users_seed) const {
  uint64_t x = users_seed + 0x9E3779B97F4A7C15ULL * static_cast<uint64_t>(device_);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

at::Generator RandomStreams::of(const at::Generator& users) {
  for (const auto& stream : streams_) {
    if (stream.users == users) return stream.own;
  }
  at::Generator own = users;
  const uint64_t seed = users.current_seed();
  if (device_ != 0) {
    own = users.clone();
    own.set_current_seed(seed_from(seed));
  }
  streams_.push_back({users, seed, own});
  return own;
}

at::Generator RandomStreams::default_generator() {
  return of(at::detail::getDefaultCPUGenerator());
}

void RandomStreams::follow_seeds() {
  if (device_ == 0) return;
  for (auto& stream : streams_) {
    const uint64_t seed = stream.users.current_seed();
    if (seed == stream.seed) continue;
    stream.seed = seed;
    stream.own.set_current_seed(seed_from(seed));
  }
}

std::vector<at::Tensor> RandomStreams::states() const {
  std::vector<at::Tensor> states;
  for (const auto& stream : streams_) states.push_back(stream.own.get_state());
  return states;
}

void RandomStreams::restore(const std::vector<at::Tensor>& states) {
  for (size_t i = 0; i < states.size(); ++i) streams_[i].own.set_state(states[i]);
}

}  // namespace epl

#include "runtime/random_streams.h"

#include <ATen/CPUGeneratorImpl.h>

namespace epl {

namespace {

// The finaliser of splitmix64: neighbouring numbers have nothing in common.
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t RandomStreams::seed_from(uint64_t users_seed) const {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ULL;
  const uint64_t of_device = mixed(users_seed + kGolden * static_cast<uint64_t>(device_));
  return mixed(of_device + kGolden * static_cast<uint64_t>(step_));
}

at::Generator RandomStreams::of(const at::Generator& users) {
  for (const auto& stream : streams_) {
    if (stream.users == users) return stream.own;
  }
  at::Generator own = users;
  if (device_ != 0) {
    own = users.clone();
    own.set_current_seed(seed_from(users.current_seed()));
  }
  streams_.push_back({users, own});
  return own;
}

at::Generator RandomStreams::default_generator() {
  return of(at::detail::getDefaultCPUGenerator());
}

void RandomStreams::begin_step(int64_t step) {
  step_ = step;
  if (device_ == 0) return;
  for (auto& stream : streams_) stream.own.set_current_seed(seed_from(stream.users.current_seed()));
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

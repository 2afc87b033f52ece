#include "runtime/random_streams.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>
#include <utility>

#include "runtime/random_skip.h"

namespace epl {

namespace {

// The finaliser of splitmix64: neighbouring numbers have nothing in common.
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

at::mt19937 engine_of(const at::Generator& generator) {
  return at::check_generator<at::CPUGeneratorImpl>(generator)->engine();
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
    // LibTorch 1.13 never frees a clone(): its reference count begins without a weak one.
    own = users.device().is_cpu() ? at::detail::createCPUGenerator() : users.clone();
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
  if (device_ != 0) {
    for (auto& stream : streams_) {
      stream.own.set_current_seed(seed_from(stream.users.current_seed()));
    }
  }
  begun_ = engine_of(default_generator()).data();
}

uint64_t RandomStreams::take_drawn() {
  if (!begun_) return 0;
  return draws_between(*std::exchange(begun_, std::nullopt), engine_of(default_generator()).data());
}

std::vector<at::Tensor> RandomStreams::states() const {
  std::vector<at::Tensor> states;
  for (const auto& stream : streams_) states.push_back(stream.own.get_state());
  return states;
}

void RandomStreams::restore(const std::vector<at::Tensor>& states) {
  for (size_t i = 0; i < states.size(); ++i) streams_[i].own.set_state(states[i]);
}

void skip_in_program(uint64_t draws) {
  if (draws == 0) return;
  at::Generator program = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(program.mutex());
  auto* const generator = at::check_generator<at::CPUGeneratorImpl>(program);
  at::mt19937 engine = generator->engine();
  at::mt19937_data_pod state = engine.data();
  skip_draws(state, draws);
  engine.set_data(state);
  generator->set_engine(engine);
}

}  // namespace epl

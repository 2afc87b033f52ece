#include "capture/watched_generators.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cstring>
#include <mutex>

namespace epl {
namespace {

bool same_state(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

// Other threads may be drawing from it.
at::Tensor state_of(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

bool is_default(const at::Generator& generator) {
  return generator == at::detail::getDefaultCPUGenerator();
}

at::mt19937 engine_of(const at::Generator& generator) {
  return at::check_generator<at::CPUGeneratorImpl>(generator)->engine();
}

// Gives a generator another state that draws the same numbers: of the first word of a Mersenne
// twister all but the highest bit is used up. One that C++ sets is then known by its state, also
// where it is set to what it was.
bool mark(const at::Generator& generator) {
  if (generator.device() != at::kCPU) return false;
  at::mt19937 engine = engine_of(generator);
  at::mt19937_data_pod words = engine.data();
  words.state_[0] ^= 1u;
  engine.set_data(words);
  at::check_generator<at::CPUGeneratorImpl>(generator)->set_engine(engine);
  return true;
}

// Whether `now` is where `before` comes to by drawing.
bool moved_on(const at::Tensor& before, const at::Tensor& now) {
  constexpr int kMostBlocks = 1 << 14;  // of 624 numbers
  auto generator = at::make_generator<at::CPUGeneratorImpl>();
  generator.set_state(now);
  const at::mt19937_data_pod to = engine_of(generator).data();
  generator.set_state(before);
  at::mt19937 from = engine_of(generator);
  if (from.seed() != to.seed_) return false;
  for (int block = 0; block < kMostBlocks; ++block) {
    const at::mt19937_data_pod words = from.data();
    if (words.state_ == to.state_) return block > 0 || to.next_ >= words.next_;
    for (int i = 0; i < at::MERSENNE_STATE_N; ++i) from();
  }
  return false;
}

}  // namespace

WatchedGenerators::WatchedGenerators() {
  const at::Generator& program = at::detail::getDefaultCPUGenerator();
  const at::Tensor state = state_of(program);
  watched_.push_back({program, state, state});
}

WatchedGenerators::Watched* WatchedGenerators::find(const at::Generator& generator) {
  const auto found = std::find_if(watched_.begin(), watched_.end(),
                                  [&](const auto& one) { return one.generator == generator; });
  return found == watched_.end() ? nullptr : &*found;
}

void WatchedGenerators::expect(const at::Generator& generator) {
  if (find(generator) != nullptr) return;
  Watched watched{generator, state_of(generator), at::Tensor()};
  watched.marked = mark(generator);
  watched.left = state_of(generator);
  watched_.push_back(std::move(watched));
}

// Other threads draw from the default generator too: augmentations of a data loader, for one.
void WatchedGenerators::compare(Watched& watched) {
  const at::Tensor now = state_of(watched.generator);
  if (same_state(watched.left, now)) {
    if (std::exchange(watched.marked, false)) set(watched.generator, watched.before);
    return;
  }
  set_ |= !is_default(watched.generator) || !moved_on(watched.left, now);
}

void WatchedGenerators::before_draw(const at::Generator& generator) {
  if (Watched* const watched = find(generator)) return compare(*watched);
  watched_.push_back({generator, state_of(generator), at::Tensor()});
}

void WatchedGenerators::after_draw(const at::Generator& generator) {
  find(generator)->left = state_of(generator);
}

void WatchedGenerators::end() {
  for (Watched& watched : watched_) compare(watched);
}

void WatchedGenerators::restore() const {
  for (const Watched& watched : watched_) set(watched.generator, watched.before);
}

std::vector<std::pair<at::Generator, at::Tensor>> WatchedGenerators::states() const {
  std::vector<std::pair<at::Generator, at::Tensor>> states;
  for (const Watched& one : watched_) states.emplace_back(one.generator, state_of(one.generator));
  return states;
}

std::vector<at::Generator> WatchedGenerators::all() const {
  std::vector<at::Generator> all;
  for (const Watched& one : watched_) all.push_back(one.generator);
  return all;
}

}  // namespace epl

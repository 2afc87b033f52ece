#include "comm/watch.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/text.h"

namespace epl::comm {
namespace {

// Longer than a worker that ended is waited for by those who may tell more (rendezvous.cc,
// health.cc).
constexpr auto kVerdict = std::chrono::seconds(2);

}  // namespace

void note_progress(Progress& progress, int64_t step, const char* instruction, int index) {
  std::array<uint64_t, 2> letters{};
  std::memcpy(letters.data(), instruction, std::min<size_t>(std::strlen(instruction), 16));
  progress.step.store(step, std::memory_order_relaxed);
  progress.index.store(index, std::memory_order_relaxed);
  progress.instruction[0].store(letters[0], std::memory_order_relaxed);
  progress.instruction[1].store(letters[1], std::memory_order_relaxed);
}

std::string describe_progress(const Progress& progress) {
  const std::array<uint64_t, 2> letters{progress.instruction[0].load(std::memory_order_relaxed),
                                        progress.instruction[1].load(std::memory_order_relaxed)};
  std::array<char, 17> text{};
  std::memcpy(text.data(), letters.data(), 16);
  if (text[0] == '\0') return "nothing yet";
  const int32_t index = progress.index.load(std::memory_order_relaxed);
  return concat("step ", progress.step.load(std::memory_order_relaxed), ", ", text.data(),
                index < 0 ? "" : concat(" ", index));
}

void Watch::fail(const JobFailed& cause) {
  const MutexLock lock(mutex_);
  if (cause_) return;
  cause_.emplace(cause);
  failed_.store(true, std::memory_order_release);
}

void Watch::check() const {
  if (!failed()) return;
  const MutexLock lock(mutex_);
  throw JobFailed(*cause_);
}

void Watch::await_cause() const {
  const auto end = std::chrono::steady_clock::now() + kVerdict;
  while (!failed() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void Watch::doing(int64_t step, const char* instruction, int index) {
  const MutexLock lock(mutex_);
  note_progress(*progress_.load(std::memory_order_acquire), step, instruction, index);
}

void Watch::publish_progress_at(Progress* place) {
  progress_.store(place, std::memory_order_release);
}

void Watch::keep_progress_private() { publish_progress_at(&own_progress_); }

}  // namespace epl::comm

#include "comm/waiting.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <utility>

namespace epl::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSpins = 2000;       // some 30 microseconds
constexpr int kSpinsCrowded = 20;  // one round trip between caches
constexpr auto kYielding = std::chrono::microseconds(300);
// Within this time a sleeper sees that the Watch failed or that it is interrupted.
constexpr auto kSlice = std::chrono::milliseconds(5);

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) &&
                  std::atomic<uint32_t>::is_always_lock_free,
              "the kernel compares the atomic itself");

// Not FUTEX_PRIVATE: the word may lie in memory of several processes.
long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr,
                 0);
}

int cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

}  // namespace

void Doorbell::sleep(const std::function<bool()>& ready, std::chrono::microseconds most) {
  const timespec timeout = {most.count() / 1'000'000, most.count() % 1'000'000 * 1000};
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t before = rings_.load(std::memory_order_seq_cst);
  // Whoever stored before the line above did not see a sleeper; then this does see the store.
  if (!ready()) futex(rings_, FUTEX_WAIT, before, &timeout);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

void Doorbell::wake() {
  rings_.fetch_add(1, std::memory_order_seq_cst);
  futex(rings_, FUTEX_WAKE, INT_MAX, nullptr);
}

Waiting::Waiting(Watch& watch, std::chrono::milliseconds deadline, int members,
                 std::function<void()> interrupt)
    : watch_(watch),
      deadline_(deadline),
      interrupt_(std::move(interrupt)),
      spins_(members > cores() ? kSpinsCrowded : kSpins) {}

void Waiting::wait_on(Doorbell& bell, const std::function<bool()>& ready,
                      const std::function<void()>& meanwhile,
                      const std::function<std::string()>& late) const {
  const auto begin = Clock::now();
  while (!ready()) {
    check();
    meanwhile();
    const auto waited = Clock::now() - begin;
    if (waited < kYielding) {
      sched_yield();
    } else if (waited < deadline_) {
      bell.sleep(ready, kSlice);
    } else if (!ready()) {
      throw JobFailed(late());
    }
  }
}

}  // namespace epl::comm

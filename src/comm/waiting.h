// Waiting for another thread or process: fast where it is about to come, cheap where it is not.
//
// A wait spins for some tens of microseconds, since a peer in the same phase of its step is there
// within a few; then it gives its core to whoever wants it, turn by turn; then it sleeps at a
// Doorbell, in slices, because nobody rings when the Watch fails. Where more members wait than
// there are cores it hardly spins: the one that is waited for may need this very core.
//
// Who changes what others wait for then rings their doorbells:
//
//   seat.arrived.store(call);  // seq_cst: the ring must see who sleeps
//   other.bell.ring();
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "comm/watch.h"

namespace epl::comm {

// Plain atomics that may lie in memory shared by processes. A sleeper that is killed costs the
// others a system call now and then, nothing else.
class Doorbell {
 public:
  // After a seq_cst store to what the sleeper waits for.
  void ring() {
    if (sleepers_.load(std::memory_order_seq_cst) != 0) wake();
  }

  // Returns when it rings, when `ready` already holds, when `most` has passed, or for no reason.
  void sleep(const std::function<bool()>& ready, std::chrono::microseconds most);

 private:
  void wake();

  std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint32_t> rings_{0};  // what the kernel compares before it lets a thread sleep
};

inline void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How the waits of one end go: the same for all of them.
class Waiting {
 public:
  // `members`: how many may wait for each other on the cores of this host. `interrupt` may throw to
  // end a wait; null where nothing but the Watch does.
  Waiting(Watch& watch, std::chrono::milliseconds deadline, int members,
          std::function<void()> interrupt = {});

  // Throws where a wait would end at once.
  void check() const {
    watch_.check();
    if (interrupt_) interrupt_();
  }

  // Returns when `ready()` holds; once it does it must hold until then. While it lasts,
  // `meanwhile()` is called now and then, which may throw. Throws what the Watch or the interrupt
  // has, or JobFailed(late()) after the deadline.
  template <typename Ready, typename Meanwhile, typename Late>
  void until(Doorbell& bell, const Ready& ready, const Meanwhile& meanwhile,
             const Late& late) const {
    for (int i = 0; i < spins_; ++i) {
      if (ready()) return;
      pause_core();
    }
    // References are what std::function stores without an allocation.
    wait_on(bell, std::cref(ready), std::cref(meanwhile), std::cref(late));
  }

  Watch& watch() const { return watch_; }
  std::chrono::milliseconds deadline() const { return deadline_; }

 private:
  void wait_on(Doorbell& bell, const std::function<bool()>& ready,
               const std::function<void()>& meanwhile,
               const std::function<std::string()>& late) const;

  Watch& watch_;
  std::chrono::milliseconds deadline_;
  std::function<void()> interrupt_;
  int spins_;
};

}  // namespace epl::comm

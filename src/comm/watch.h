// Watch: what every wait of this process looks at, so that none of them lasts for ever.
//
// A wait ends in one of three ways: what it waits for comes, its deadline passes, or the job is no
// longer whole (a peer is gone, another device of this worker threw). Whoever finds the job broken
// calls fail() once, with the whole sentence for the user; every wait on every thread then throws
// it.
//
//   watch.doing(17, "reduce", 2);                 // shown to others if this worker is lost here
//   while (!arrived()) { watch.check(); ... }     // throws JobFailed
#pragma once

#include <epl/error.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "base/mutex.h"

namespace epl::comm {

// What a worker does now. Plain atomics, so that it may lie in memory that other processes read
// after this one was killed.
struct Progress {
  std::atomic<int64_t> step{0};
  std::atomic<int32_t> index{0};              // which one of its kind: reduction 2; negative: none
  std::atomic<uint64_t> instruction[2] = {};  // up to 16 letters: "reduce", "save"
};

void note_progress(Progress& progress, int64_t step, const char* instruction, int index);
std::string describe_progress(const Progress& progress);  // "step 17, reduce 2", "step 17, save"

class Watch {
 public:
  // The first cause stays.
  void fail(const JobFailed& cause);
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  void check() const;  // throws the cause where there is one

  // A peer that goes is seen before it is known why. Returns once it is, or after a moment.
  void await_cause() const;
  // Whether somebody finds out such causes: Health, which also shows the progress to others.
  bool has_judge() const { return &progress() != &own_progress_; }

  // From any thread: what was begun last counts.
  void doing(int64_t step, const char* instruction, int index = -1);
  const Progress& progress() const { return *progress_.load(std::memory_order_acquire); }
  // Where doing() writes from now on; it must outlive the Watch or the next call.
  void publish_progress_at(Progress* place);
  void keep_progress_private();

 private:
  std::atomic<bool> failed_{false};
  mutable Mutex mutex_;
  std::optional<JobFailed> cause_ EPL_GUARDED_BY(mutex_);
  Progress own_progress_;
  std::atomic<Progress*> progress_{&own_progress_};
};

}  // namespace epl::comm

namespace epl {
using comm::Watch;
}  // namespace epl

#include "runtime/side_by_side.h"

#include <algorithm>
#include <chrono>

namespace epl {

SideBySide::SideBySide(const Program& program, int devices) : done_(static_cast<size_t>(devices)) {
  int moves = 0;
  int before_last_run = 0;
  for (const Instruction& each : program.instructions) {
    if (each.kind == Instruction::Kind::kRun) before_last_run = moves;
    if (each.kind == Instruction::Kind::kFetch) needed_[&each] = before_last_run;
    if (is_of_offload(each.kind)) ++moves;
  }
}

void SideBySide::begin() {
  const MutexLock lock(mutex_);
  std::fill(done_.begin(), done_.end(), 0);
}

void SideBySide::wait_for_others(int device, const Instruction& fetch,
                                 const std::function<void()>& look) {
  constexpr auto kBetweenLooks = std::chrono::milliseconds(10);
  const int needed = needed_.at(&fetch);
  const MutexLock lock(mutex_);
  const auto all_there = [&]() EPL_REQUIRES(mutex_) {
    for (size_t other = 0; other < done_.size(); ++other) {
      if (static_cast<int>(other) != device && done_[other] < needed) return false;
    }
    return true;
  };
  while (!moved_.wait_until(mutex_, Condition::Clock::now() + kBetweenLooks, all_there)) look();
}

void SideBySide::note_done(int device) {
  const MutexLock lock(mutex_);
  ++done_[static_cast<size_t>(device)];
  moved_.notify_all();
}

}  // namespace epl

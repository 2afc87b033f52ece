#include "base/mutex.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

namespace epl {
namespace {

using Clock = Condition::Clock;
using std::chrono::milliseconds;
using std::chrono::minutes;

bool is_free_for_another_thread(Mutex& mutex) {
  bool taken = false;
  std::thread([&] {
    if (!mutex.try_lock()) return;
    taken = true;
    mutex.unlock();
  }).join();
  return taken;
}

class Counter {
 public:
  void add() EPL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  int count() EPL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return count_;
  }
  bool reaches(int count, Clock::time_point end) EPL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return changed_.wait_until(mutex_, end, [&]() EPL_REQUIRES(mutex_) { return count_ >= count; });
  }
  void wait_for(int count) EPL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    changed_.wait(mutex_, [&]() EPL_REQUIRES(mutex_) { return count_ >= count; });
  }
  void wait_for_any_news(Clock::time_point end) EPL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    changed_.wait_until(mutex_, end);
  }
  bool is_held_after_an_error() EPL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    try {
      changed_.wait(mutex_, []() -> bool { throw std::runtime_error("not to be waited for"); });
    } catch (const std::runtime_error&) {
      return !is_free_for_another_thread(mutex_);
    }
    return false;
  }

 private:
  Mutex mutex_;
  Condition changed_;
  int count_ EPL_GUARDED_BY(mutex_) = 0;
};

TEST(Mutex, CostsWhatTheStandardOneDoes) {
  EXPECT_EQ(sizeof(Mutex), sizeof(std::mutex));
  EXPECT_EQ(sizeof(MutexLock), sizeof(std::lock_guard<std::mutex>));
  EXPECT_EQ(sizeof(Condition), sizeof(std::condition_variable));
}

TEST(Mutex, LetsOneThreadInAtATime) {
  constexpr int kTimes = 20000;
  Counter counter;
  const auto count = [&] {
    for (int i = 0; i < kTimes; ++i) counter.add();
  };
  std::thread other(count);
  count();
  other.join();
  EXPECT_EQ(counter.count(), 2 * kTimes);
}

TEST(Mutex, IsHeldWhileItsLockStands) {
  Mutex mutex;
  {
    const MutexLock lock(mutex);
    EXPECT_FALSE(is_free_for_another_thread(mutex));
  }
  EXPECT_TRUE(is_free_for_another_thread(mutex));
}

TEST(Condition, WaitsForWhatAnotherThreadDoes) {
  Counter counter;
  Counter answers;
  std::thread other([&] {
    counter.wait_for(1);
    answers.add();
  });
  counter.add();
  EXPECT_TRUE(answers.reaches(1, Clock::now() + minutes(1)));
  other.join();
}

TEST(Condition, ReturnsAtOnceWhereItHoldsAlready) {
  Counter counter;
  counter.add();
  counter.wait_for(1);
  EXPECT_TRUE(counter.reaches(1, Clock::now() - minutes(1)));
}

TEST(Condition, EndsAtTheDeadlineAndSaysSo) {
  Counter counter;
  const auto end = Clock::now() + milliseconds(20);
  EXPECT_FALSE(counter.reaches(1, end));
  EXPECT_GE(Clock::now(), end);
}

TEST(Condition, EndsAtTheDeadlineWithoutAnythingToHold) {
  Counter counter;
  counter.wait_for_any_news(Clock::now() + milliseconds(20));
  EXPECT_EQ(counter.count(), 0);
}

// Or the lock of the caller would give up what another thread has taken meanwhile.
TEST(Condition, HasTheMutexAgainWhereThePredicateThrows) {
  Counter counter;
  EXPECT_TRUE(counter.is_held_after_an_error());
  EXPECT_EQ(counter.count(), 0);
}

}  // namespace
}  // namespace epl

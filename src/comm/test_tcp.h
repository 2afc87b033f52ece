// Members of a TCP communicator as threads of the test.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "comm/communicator.h"
#include "comm/test_threads.h"

namespace epl::testing {

// Hands texts between the threads of a test.
class Board {
 public:
  explicit Board(int size) : texts_(static_cast<size_t>(size)) {}

  std::vector<std::string> exchange(int rank, const std::string& mine) {
    const MutexLock lock(mutex_);
    texts_[static_cast<size_t>(rank)] = mine;
    if (++there_ == texts_.size()) all_there_.notify_all();
    all_there_.wait(mutex_, [&]() EPL_REQUIRES(mutex_) { return there_ == texts_.size(); });
    return texts_;
  }

 private:
  Mutex mutex_;
  Condition all_there_;
  std::vector<std::string> texts_ EPL_GUARDED_BY(mutex_);
  size_t there_ EPL_GUARDED_BY(mutex_) = 0;
};

inline Ends connect_ends(int size, Watch& watch, std::chrono::milliseconds deadline,
                         const std::function<void()>& meanwhile = {}) {
  Board board(size);
  Ends ends(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ends[static_cast<size_t>(rank)] = comm::make_tcp_communicator(
          rank, size, watch, [&](const std::string& mine) { return board.exchange(rank, mine); },
          {"test", deadline, meanwhile}, "");
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

}  // namespace epl::testing

#include "comm/thread_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "base/mutex.h"
#include "base/text.h"
#include "comm/test_operations.h"
#include "comm/test_threads.h"

namespace epl::comm {
namespace {

using testing::Ends;
using testing::run_members;

// Hands texts between workers, which are threads of the test, by key.
class Noticeboard {
 public:
  ThreadMembers::Gather for_worker(int worker) {
    return [this, worker](const std::string& key, const std::vector<int>& workers,
                          const std::string& mine) {
      const MutexLock lock(mutex_);
      auto& texts = texts_[key];
      if (!texts.emplace(worker, mine).second) throw std::runtime_error(key + " is used twice");
      posted_.notify_all();
      const auto end = Condition::Clock::now() + std::chrono::seconds(30);
      const bool all = posted_.wait_until(mutex_, end, [&]() EPL_REQUIRES(mutex_) {
        return failed_ || texts.size() == workers.size();
      });
      if (!all || failed_) throw std::runtime_error("somebody does not come to " + key);
      std::vector<std::string> ordered;
      for (const int each : workers) ordered.push_back(texts.at(each));
      return ordered;
    };
  }
  void fail() {
    const MutexLock lock(mutex_);
    failed_ = true;
    posted_.notify_all();
  }

 private:
  Mutex mutex_;
  Condition posted_;
  bool failed_ EPL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::map<int, std::string>> texts_ EPL_GUARDED_BY(mutex_);
};

struct Layout {
  std::vector<int> worker_of;        // by rank
  std::vector<std::string> host_of;  // by worker
};

// All ends, in the order of ranks.
Ends connect(const Layout& layout, Watch& watch) {
  Noticeboard board;
  Ends ends(layout.worker_of.size());
  const auto work = [&](int worker) {
    ThreadMembers members;
    members.worker_of = layout.worker_of;
    members.worker = worker;
    members.host_of = layout.host_of;
    members.gather = board.for_worker(worker);
    Ends mine = connect_threads(members, "test", watch, {"test", std::chrono::minutes(1)});
    const std::vector<int> ranks = members.ranks_here();
    for (size_t i = 0; i < ranks.size(); ++i) {
      ends[static_cast<size_t>(ranks[i])] = std::move(mine[i]);
    }
  };
  std::vector<std::thread> threads;
  for (size_t worker = 0; worker < layout.host_of.size(); ++worker) {
    threads.emplace_back(work, static_cast<int>(worker));
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

void check_operations(Communicator& end) {
  testing::check_reductions(end, 5000, at::kBFloat16);
  testing::check_rows(end, testing::uneven_rows(end.size()), 5, at::kLong);
  testing::check_all_to_all(end, 1, at::kFloat);
  testing::check_broadcast(end, 1000);
  testing::check_messages(end, 1000);
  testing::check_groups(end);
  end.barrier();
}

TEST(ThreadMembers, AreRankedAsListedWhateverTheWorkersAndHosts) {
  const std::vector<Layout> layouts = {
      {{0}, {"a"}},
      {{0, 0}, {"a"}},
      {{0, 1}, {"a", "a"}},
      {{1, 0}, {"a", "a"}},
      {{0, 0, 1, 1}, {"a", "a"}},
      {{0, 1, 1, 1}, {"a", "a"}},
      {{1, 0, 1, 0}, {"a", "a"}},
      {{0, 2}, {"a", "a", "a"}},           // worker 1 has no member
      {{0, 1}, {"a", "b"}},                // a member a host
      {{0, 0, 1, 1}, {"a", "b"}},          // a worker a host
      {{0, 1, 1, 0}, {"a", "b"}},          //
      {{0, 0, 1, 2, 2}, {"a", "a", "b"}},  // several workers on a host
  };
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(join(layout.worker_of, ", ") + " on " + join(layout.host_of, ", "));
    Watch watch;
    const Ends ends = connect(layout, watch);
    for (size_t rank = 0; rank < ends.size(); ++rank) {
      EXPECT_EQ(ends[rank]->rank(), static_cast<int>(rank));
      EXPECT_EQ(ends[rank]->size(), static_cast<int>(ends.size()));
    }
    testing::expect_no_errors(run_members(ends, check_operations));
  }
}

TEST(ThreadMembers, AllEndWhereTheOtherWorkerDoesNotCome) {
  Watch watch;
  Noticeboard board;
  ThreadMembers members;
  members.worker_of = {0, 0, 1, 0};
  members.host_of = {"a", "a"};
  members.gather = board.for_worker(0);
  board.fail();
  EXPECT_THAT(
      [&] {
        connect_threads(members, "test", watch, {"test", std::chrono::minutes(1)});
      },
      ::testing::ThrowsMessage<std::runtime_error>(::testing::HasSubstr("does not come to test")));
}

}  // namespace
}  // namespace epl::comm

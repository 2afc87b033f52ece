// Lane: a thread of its own that makes blocking calls in the order in which they were started.
//
//   Lane lane("gradients 0", watch, deadline);
//   auto reduced = lane.start([&] { communicator.all_reduce(gradients, ReduceOp::kMean); });
//   ...                // computes while the lane communicates
//   reduced->wait();   // throws what the call threw
//
// A call that throws does not stop the lane, but once the Watch has failed no more calls are begun:
// their wait() throws its cause.
#pragma once

#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "comm/waiting.h"

namespace epl::comm {

class Work {
 public:
  Work(Watch& watch, std::chrono::milliseconds deadline);

  // Returns when the call has ended, and throws what it threw. Throws JobFailed where the Watch
  // failed or the call lasts longer than the deadline; since the call may still use the caller's
  // tensors, it is given some seconds to end by itself before that.
  void wait();
  bool done() const { return done_.load(std::memory_order_seq_cst); }

 private:
  friend class Lane;
  void finish(std::exception_ptr error);
  [[noreturn]] void throw_after_grace(std::exception_ptr cause);

  Waiting waiting_;
  Doorbell bell_;
  std::exception_ptr error_;  // written before done_
  std::atomic<bool> done_{false};
};

class Lane {
 public:
  // The thread bears the first 15 letters of the name.
  Lane(std::string name, Watch& watch,
       std::chrono::milliseconds deadline = std::chrono::minutes(30));
  // Ends when the calls that were started have ended; each of them has a deadline and looks at the
  // Watch.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  Watch& watch() const { return watch_; }

  // The Work is shared by the lane, which ends it, and the caller.
  std::shared_ptr<Work> start(std::function<void()> call);

 private:
  struct Order {
    std::function<void()> call;
    std::shared_ptr<Work> work;
  };
  void serve();
  std::optional<Order> next_order();
  void run(Order order);

  const std::string name_;
  Watch& watch_;
  const std::chrono::milliseconds deadline_;
  Doorbell bell_;
  std::atomic<uint64_t> events_{0};  // orders and the end: what the thread waits for
  Mutex mutex_;
  std::deque<Order> orders_ EPL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace epl::comm

namespace epl {
using comm::Lane;
using comm::Work;
}  // namespace epl

#include "comm/lane.h"

#include <pthread.h>

#include <utility>

#include "base/check.h"

namespace epl::comm {
namespace {

// How long a call may take to see that the Watch failed.
constexpr auto kGrace = std::chrono::seconds(10);
constexpr int kLaneSpins = 1000;  // the next call often comes soon after the last one
constexpr auto kLaneSlice = std::chrono::seconds(1);

}  // namespace

// --- Work --------------------------------------------------------------------------------------

Work::Work(Watch& watch, std::chrono::milliseconds deadline) : waiting_(watch, deadline, 1) {}

void Work::wait() {
  try {
    waiting_.until(
        bell_, [this] { return done(); }, [] {},
        [this] {
          return concat("a call on a lane lasts longer than ", waiting_.deadline().count(), " ms");
        });
  } catch (const JobFailed&) {
    throw_after_grace(std::current_exception());
  }
  if (error_) std::rethrow_exception(error_);
}

void Work::throw_after_grace(std::exception_ptr cause) {
  const auto end = std::chrono::steady_clock::now() + kGrace;
  while (!done() && std::chrono::steady_clock::now() < end) {
    bell_.sleep([this] { return done(); }, std::chrono::milliseconds(5));
  }
  std::rethrow_exception(done() && error_ ? error_ : cause);
}

void Work::finish(std::exception_ptr error) {
  error_ = std::move(error);
  done_.store(true, std::memory_order_seq_cst);
  bell_.ring();
}

// --- Lane --------------------------------------------------------------------------------------

Lane::Lane(std::string name, Watch& watch, std::chrono::milliseconds deadline)
    : name_(std::move(name)), watch_(watch), deadline_(deadline), thread_([this] { serve(); }) {
  pthread_setname_np(thread_.native_handle(), name_.substr(0, 15).c_str());
}

Lane::~Lane() {
  events_.fetch_add(1, std::memory_order_seq_cst);
  bell_.ring();
  thread_.join();
}

std::shared_ptr<Work> Lane::start(std::function<void()> call) {
  auto work = std::make_shared<Work>(watch_, deadline_);
  {
    const MutexLock lock(mutex_);
    orders_.push_back({std::move(call), work});
  }
  events_.fetch_add(1, std::memory_order_seq_cst);
  bell_.ring();
  return work;
}

void Lane::serve() {
  for (uint64_t seen = 0;; ++seen) {
    const auto ready = [&] { return events_.load(std::memory_order_seq_cst) != seen; };
    for (int i = 0; i < kLaneSpins && !ready(); ++i) pause_core();
    while (!ready()) bell_.sleep(ready, kLaneSlice);
    std::optional<Order> order = next_order();
    if (!order) return;  // the last event is the end
    run(std::move(*order));
  }
}

std::optional<Lane::Order> Lane::next_order() {
  const MutexLock lock(mutex_);
  if (orders_.empty()) return std::nullopt;
  Order order = std::move(orders_.front());
  orders_.pop_front();
  return order;
}

void Lane::run(Order order) {
  std::exception_ptr error;
  try {
    watch_.check();
    order.call();
  } catch (...) {
    error = std::current_exception();
  }
  order.call = nullptr;  // what it holds is free before the waiter goes on
  order.work->finish(std::move(error));
}

}  // namespace epl::comm

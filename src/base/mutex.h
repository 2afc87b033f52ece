// Mutex, MutexLock and Condition: std::mutex, std::lock_guard and std::condition_variable, with
// which a class says what its mutex guards. clang reads that and finds every access without the
// lock (tools/check_locks.sh); to other compilers it is nothing.
//
//   class Orders {
//    public:
//     void add(Order order) {
//       const MutexLock lock(mutex_);
//       waiting_.push_back(std::move(order));
//       came_.notify_one();
//     }
//     bool await(Condition::Clock::time_point end) {
//       const MutexLock lock(mutex_);
//       return came_.wait_until(mutex_, end, [&]() EPL_REQUIRES(mutex_) { return !empty(); });
//     }
//
//    private:
//     bool empty() const EPL_REQUIRES(mutex_) { return waiting_.empty(); }
//
//     Mutex mutex_;
//     Condition came_;
//     std::deque<Order> waiting_ EPL_GUARDED_BY(mutex_);
//   };
//
// Nothing is added to what the standard library does, neither in time nor in bytes. A MutexLock
// holds its mutex to the end of its block: where it is held can be seen.
//
// What clang does not see: constructors and destructors are not checked, so what locks in them is a
// function of its own; a lambda is checked as a function of its own, so one that runs under the
// lock says so, as above; a mutex that is reached by another name is another mutex. Mutexes of
// LibTorch (at::Generator::mutex) stay std::mutex.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#if defined(__clang__)
#define EPL_LOCK_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define EPL_LOCK_ATTRIBUTE(attribute)
#endif

// Of a member: read and written with the mutex held; the second speaks of what a pointer points at.
#define EPL_GUARDED_BY(mutex) EPL_LOCK_ATTRIBUTE(guarded_by(mutex))
#define EPL_POINTS_AT_GUARDED_BY(mutex) EPL_LOCK_ATTRIBUTE(pt_guarded_by(mutex))

// Of a function: its caller holds the mutex, or does not hold it, since the function takes it.
#define EPL_REQUIRES(...) EPL_LOCK_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define EPL_EXCLUDES(...) EPL_LOCK_ATTRIBUTE(locks_excluded(__VA_ARGS__))

// Of types that are a mutex, or hold one while they stand, and of their functions.
#define EPL_MUTEX_TYPE EPL_LOCK_ATTRIBUTE(capability("mutex"))
#define EPL_LOCK_TYPE EPL_LOCK_ATTRIBUTE(scoped_lockable)
#define EPL_ACQUIRES(...) EPL_LOCK_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define EPL_TRIES_TO_ACQUIRE(...) EPL_LOCK_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define EPL_RELEASES(...) EPL_LOCK_ATTRIBUTE(release_capability(__VA_ARGS__))

namespace epl {

class EPL_MUTEX_TYPE Mutex {
 public:
  void lock() EPL_ACQUIRES() { standard_.lock(); }
  bool try_lock() EPL_TRIES_TO_ACQUIRE(true) { return standard_.try_lock(); }
  void unlock() EPL_RELEASES() { standard_.unlock(); }

 private:
  friend class Condition;
  std::mutex standard_;
};

class EPL_LOCK_TYPE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) EPL_ACQUIRES(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() EPL_RELEASES() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// What threads sleep on until another one has changed what their mutex guards. Each wait gives the
// mutex up while it sleeps and has it again when it returns or throws.
class Condition {
 public:
  using Clock = std::chrono::steady_clock;

  void notify_one() noexcept { standard_.notify_one(); }
  void notify_all() noexcept { standard_.notify_all(); }

  // Until it holds. `holds` is called with the mutex held.
  template <typename Predicate>
  void wait(Mutex& mutex, Predicate holds) EPL_REQUIRES(mutex) {
    Borrowed borrowed(mutex);
    standard_.wait(borrowed.lock, std::move(holds));
  }

  // Until it holds, or the end has come; returns whether it holds.
  template <typename Predicate>
  bool wait_until(Mutex& mutex, Clock::time_point end, Predicate holds) EPL_REQUIRES(mutex) {
    Borrowed borrowed(mutex);
    return standard_.wait_until(borrowed.lock, end, std::move(holds));
  }

  // Until somebody notifies, or the end has come, or for no reason: the caller looks again.
  void wait_until(Mutex& mutex, Clock::time_point end) EPL_REQUIRES(mutex) {
    Borrowed borrowed(mutex);
    standard_.wait_until(borrowed.lock, end);
  }

 private:
  // The caller's lock in the form that the standard library asks for.
  struct Borrowed {
    explicit Borrowed(Mutex& mutex) : lock(mutex.standard_, std::adopt_lock) {}
    ~Borrowed() { lock.release(); }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;

    std::unique_lock<std::mutex> lock;
  };

  std::condition_variable standard_;
};

}  // namespace epl

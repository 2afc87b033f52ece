#include "capture/null_read.h"

#include <signal.h>
#include <unistd.h>

#include <cstdint>

#include "base/mutex.h"

namespace epl {
namespace {

constexpr char kMessage[] =
    "epl: C++ reads or writes the memory of a tensor that has a shape alone, by data_ptr(), which "
    "gave it a null pointer\n"
    "  asked by: a run on shapes alone\n"
    "  try:      operators in its place, or tensors of at most 64 KiB, which are real\n";

// One for the process, as handlers of signals are.
class NullReadHandler {
 public:
  static NullReadHandler& get() {
    static NullReadHandler handler;
    return handler;
  }

  void enter() EPL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (++standing_ > 1) return;
    struct sigaction action {};
    action.sa_sigaction = &handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &before);
  }

  void leave() EPL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (--standing_ == 0) sigaction(SIGSEGV, &before, nullptr);
  }

 private:
  static inline struct sigaction before {};

  // What was to happen happens: the access faults again, with the handler that was there before.
  static void handle(int number, siginfo_t* info, void*) {
    constexpr uintptr_t kNearNull = uintptr_t{1} << 20;
    if (reinterpret_cast<uintptr_t>(info->si_addr) < kNearNull) {
      const ssize_t written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
      (void)written;
    }
    sigaction(number, &before, nullptr);
  }

  Mutex mutex_;
  int standing_ EPL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

NullReadMessage::NullReadMessage() { NullReadHandler::get().enter(); }

NullReadMessage::~NullReadMessage() { NullReadHandler::get().leave(); }

}  // namespace epl

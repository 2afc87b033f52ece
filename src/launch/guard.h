// Ends the workers where the launcher itself is killed and can no longer do so.
//
// A small process that waits for the end of a pipe which only the launcher holds. The kernel's
// PR_SET_PDEATHSIG reaches the workers themselves, but not what a script has started; the guard
// kills their sessions.
#pragma once

#include <sys/types.h>

namespace epl {

class Guard {
 public:
  // Forks; called before anything is started. Throws Error where that is not possible.
  Guard();
  ~Guard();  // the guard ends without touching anything
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  void watch(pid_t leader);
  void forget(pid_t leader);  // called before the leader is reaped: from then on its number is free

 private:
  void tell(char what, pid_t leader);

  int pipe_ = -1;
  pid_t pid_ = 0;
};

}  // namespace epl

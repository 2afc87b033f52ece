#include "launch/guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "base/check.h"
#include "base/text.h"
#include "launch/sessions.h"

namespace epl {
namespace {

struct Message {
  char what;  // 'w' watch, 'f' forget
  pid_t leader;
};

// Returns false where the launcher is gone.
bool read_message(int pipe, Message& message) {
  for (;;) {
    const ssize_t size = read(pipe, &message, sizeof message);
    if (size < 0 && errno == EINTR) continue;
    return size == static_cast<ssize_t>(sizeof message);
  }
}

// Forks of a dying session may come after the list of its processes was read, hence several rounds.
void kill_sessions(const std::set<pid_t>& leaders) {
  for (int round = 0; round < 100; ++round) {
    for (const pid_t leader : leaders) signal_session(leader, SIGKILL);
    if (members_of_sessions(leaders).empty()) return;
    usleep(20000);
  }
}

[[noreturn]] void guard_from(int pipe) {
  setsid();  // what is typed at the launcher's terminal does not reach the guard
  prctl(PR_SET_NAME, "epl-launch-guard");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_IGN);
  const int nothing = open("/dev/null", O_RDWR);
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, file);
  std::set<pid_t> leaders;
  Message message;
  while (read_message(pipe, message)) {
    if (message.what == 'w') leaders.insert(message.leader);
    if (message.what == 'f') leaders.erase(message.leader);
  }
  kill_sessions(leaders);
  _exit(0);
}

}  // namespace

Guard::Guard() {
  int ends[2];
  EPL_CHECK(pipe2(ends, O_CLOEXEC) == 0, concat("cannot make a pipe: ", std::strerror(errno)),
            "epl-launch", "a higher limit of open files (ulimit -n)");
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[1]);
    guard_from(ends[0]);
  }
  const int reason = errno;
  close(ends[0]);
  pipe_ = ends[1];
  if (pid_ < 0) close(pipe_);
  EPL_CHECK(pid_ > 0, concat("cannot start a process: ", std::strerror(reason)), "epl-launch",
            "a higher limit of processes (ulimit -u)");
}

Guard::~Guard() {
  kill(pid_, SIGKILL);  // before its pipe ends
  close(pipe_);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guard::watch(pid_t leader) { tell('w', leader); }

void Guard::forget(pid_t leader) { tell('f', leader); }

void Guard::tell(char what, pid_t leader) {
  Message message{};
  message.what = what;
  message.leader = leader;
  (void)!write(pipe_, &message, sizeof message);  // a guard that was killed is not needed to go on
}

}  // namespace epl

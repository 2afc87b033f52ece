#include "launch/sessions.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace epl {
namespace {

// The session of a living process; 0 where there is none of that number, or a zombie.
pid_t session_of(pid_t pid) {
  const int file = open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[512];
  const ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  if (size <= 0) return 0;
  // "pid (name) state parent group session ...": the name may contain anything, also ')'.
  const std::string line(text, static_cast<size_t>(size));
  const size_t name_end = line.rfind(')');
  char state = 'X';
  int session = 0;
  if (name_end == std::string::npos ||
      std::sscanf(line.c_str() + name_end + 1, " %c %*d %*d %d", &state, &session) != 2) {
    return 0;
  }
  return state == 'Z' || state == 'X' ? 0 : session;
}

// The number may have passed to another process since it was looked up; a pidfd is opened first,
// and then it is asked again whose it is. (Declarations of glibc 2.36 are for C only.)
void signal_process(pid_t pid, pid_t session, int signal) {
  const int process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (process < 0) return;
  if (session_of(pid) == session) {
    syscall(SYS_pidfd_send_signal, process, signal, nullptr, 0);
    if (signal != SIGKILL) syscall(SYS_pidfd_send_signal, process, SIGCONT, nullptr, 0);
  }
  close(process);
}

}  // namespace

std::map<pid_t, std::vector<pid_t>> members_of_sessions(const std::set<pid_t>& leaders) {
  std::map<pid_t, std::vector<pid_t>> members;
  DIR* processes = opendir("/proc");
  if (processes == nullptr) return members;
  while (const dirent* entry = readdir(processes)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid <= 0) continue;
    const pid_t session = session_of(pid);
    if (session != 0 && leaders.count(session) != 0) members[session].push_back(pid);
  }
  closedir(processes);
  return members;
}

void signal_session(pid_t leader, int signal) {
  kill(-leader, signal);
  if (signal != SIGKILL) kill(-leader, SIGCONT);
  for (const auto& [session, pids] : members_of_sessions({leader})) {
    for (const pid_t pid : pids) {
      if (getpgid(pid) != leader) signal_process(pid, session, signal);
    }
  }
}

}  // namespace epl

#include "launch/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "launch/program.h"

namespace epl {
namespace {

// The pointers that execve() wants, made before fork(): a child may not allocate.
std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

class Pipe {
 public:
  Pipe() {
    EPL_CHECK(pipe2(ends_, O_CLOEXEC) == 0, concat("cannot make a pipe: ", std::strerror(errno)),
              "epl-launch", "fewer workers, or a higher limit of open files (ulimit -n)");
  }
  ~Pipe() {
    for (const int end : {0, 1}) close_end(end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int end(int which) const { return ends_[which]; }
  int take_end(int which) { return std::exchange(ends_[which], -1); }
  void close_end(int which) {
    if (ends_[which] >= 0) close(take_end(which));
  }

 private:
  int ends_[2] = {-1, -1};
};

// Runs in the child and does not come back. `trouble` takes the number of the error.
[[noreturn]] void become(char** words, char** environment, int output, int errors, int trouble,
                         pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the launcher died before the line above
  setsid();
  for (const int signal : {SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  if (nothing > STDERR_FILENO) close(nothing);
  dup2(output, STDOUT_FILENO);
  dup2(errors, STDERR_FILENO);
  execve(words[0], words, environment);
  const int reason = errno;
  (void)!write(trouble, &reason, sizeof reason);
  _exit(127);
}

}  // namespace

Child start_child(const std::vector<std::string>& words,
                  const std::map<std::string, std::string>& environment, Pipes pipes) {
  std::vector<std::string> word_texts = words;
  std::vector<std::string> settings;
  for (const auto& [name, value] : environment) settings.push_back(name + "=" + value);
  std::vector<char*> word_pointers = pointers(word_texts);
  std::vector<char*> setting_pointers = pointers(settings);

  Pipe output, errors, trouble;
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    become(word_pointers.data(), setting_pointers.data(), output.end(1),
           pipes == Pipes::kOne ? output.end(1) : errors.end(1), trouble.end(1), parent);
  }
  const int fork_error = errno;
  for (Pipe* each : {&output, &errors, &trouble}) each->close_end(1);
  int reason = 0;
  ssize_t size = 0;
  if (pid > 0) {
    do {
      size = read(trouble.end(0), &reason, sizeof reason);  // ends when the program runs
    } while (size < 0 && errno == EINTR);
  }
  if (pid > 0 && size == 0) {
    for (Pipe* each : {&output, &errors}) fcntl(each->end(0), F_SETFL, O_NONBLOCK);
    return {pid, {output.take_end(0), pipes == Pipes::kOne ? -1 : errors.take_end(0)}};
  }
  EPL_CHECK(pid > 0, concat("cannot start a process: ", std::strerror(fork_error)), "epl-launch",
            "fewer workers, or a higher limit of processes (ulimit -u)");
  waitpid(pid, nullptr, 0);
  throw CannotRun(126, concat("cannot run ", words[0], ": ", std::strerror(reason)), "epl-launch",
                  reason == ENOEXEC ? "a script needs a first line such as #!/bin/bash"
                                    : "a program of this machine's kind");
}

}  // namespace epl

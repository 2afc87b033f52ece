// The sides of a comparison, each in processes of its own, taking turns.
//
// In one process the sides share a heap, and what one leaves there changes what the other's
// allocations cost. So the benchmark starts a process a side, often itself (`--serve`), and hands
// out turns over pipes:
//
//   parent: "run\n"      side: runs its chunk, prints the seconds of each step on one line
//
// A side that dies or does not answer is an error that names it; it is ended and reaped in any
// case, and does not outlive its parent.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace epl::bench {

inline volatile sig_atomic_t interrupted = 0;

// Ctrl-C and SIGTERM become an error in Side::answer(), so that sides are ended on the way out.
inline void end_sides_when_interrupted() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// What a process is started with.
struct Start {
  std::vector<std::string> arguments;
  std::string program = "/proc/self/exe";
  std::map<std::string, std::string> environment = {};  // beside this process's own
};

class Side {
 public:
  Side(std::string name, Start start) : name_(std::move(name)) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0) throw std::runtime_error("cannot make a pipe");
    if (pipe2(from, O_CLOEXEC) != 0) {
      for (int end : to) close(end);
      throw std::runtime_error("cannot make a pipe");
    }
    signal(SIGPIPE, SIG_IGN);  // a side that is gone is an error, not the end of this process
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) become(start, parent, to[0], from[1]);
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = from[0];
    if (pid_ > 0) return;
    close(to_);
    close(from_);
    throw std::runtime_error("cannot start " + name_);
  }
  ~Side() {
    close(from_);
    finish();
    if (pid_ > 0) reap(/*most_milliseconds=*/3000);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  pid_t pid() const { return pid_; }

  void go() {
    if (write(to_, "run\n", 4) != 4) throw std::runtime_error(name_ + " takes no more turns");
  }

  // The numbers of the next line that the side prints.
  std::vector<double> answer() {
    while (unread_.find('\n') == std::string::npos) receive();
    const size_t end = unread_.find('\n');
    std::istringstream line(unread_.substr(0, end));
    unread_.erase(0, end + 1);
    std::vector<double> numbers;
    for (double number = 0; line >> number;) numbers.push_back(number);
    return numbers;
  }

  // There are no more turns; the side may end.
  void finish() {
    if (to_ >= 0) close(to_);
    to_ = -1;
  }

  // Waits until it has ended, which must be without an error.
  void end() {
    finish();
    const int status = reap(/*most_milliseconds=*/30'000);
    pid_ = -1;
    if (status == 0) return;
    throw std::runtime_error(name_ + " ended with " +
                             (WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "an error"));
  }

 private:
  [[noreturn]] static void become(Start& start, pid_t parent, int in, int out) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);  // it ended before the line above
    signal(SIGPIPE, SIG_DFL);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    for (const auto& [key, value] : start.environment) setenv(key.c_str(), value.c_str(), 1);
    std::vector<char*> argv{start.program.data()};
    for (auto& argument : start.arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv(start.program.c_str(), argv.data());
    _exit(127);
  }

  void receive() {
    constexpr int kDeadlineSeconds = 300;
    pollfd waits{from_, POLLIN, 0};
    char buffer[4096];
    int found = 0;
    for (int waited = 0; found == 0 && waited < kDeadlineSeconds; ++waited) {
      found = poll(&waits, 1, /*milliseconds=*/1000);
      if (interrupted) throw std::runtime_error("interrupted");
    }
    if (found <= 0) throw std::runtime_error(name_ + " does not answer");
    const ssize_t count = read(from_, buffer, sizeof buffer);
    if (count <= 0) throw std::runtime_error(name_ + " died");
    unread_.append(buffer, static_cast<size_t>(count));
  }

  // A side that has finished gets a moment to end by itself: its peers need not think that it died.
  int reap(int most_milliseconds) {
    int status = 0;
    for (int waited = 0; waited < most_milliseconds; ++waited) {
      if (waitpid(pid_, &status, WNOHANG) != 0) return status;
      usleep(1000);
    }
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
    return status;
  }

  std::string name_;
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string unread_;
};

// The other end: prints `first`, then one line a turn until the parent has no more.
inline void serve(const std::vector<double>& first,
                  const std::function<std::vector<double>()>& turn) {
  const auto print = [](const std::vector<double>& numbers) {
    for (double number : numbers) std::cout << std::setprecision(17) << number << " ";
    std::cout << std::endl;
  };
  print(first);
  for (std::string line; std::getline(std::cin, line);) print(turn());
}

inline void serve(double first, const std::function<std::vector<double>()>& turn) {
  serve(std::vector<double>{first}, turn);
}

}  // namespace epl::bench

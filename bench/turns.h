// Two sides of a comparison, each in a process of its own, taking turns.
//
// In one process the sides share a heap, and what one leaves there changes what the other's
// allocations cost. So the benchmark starts itself once a side (`--serve`), and hands out turns
// over pipes:
//
//   parent: "run\n"      side: runs its chunk, prints the seconds of each step on one line
//
// A side that dies or does not answer is an error that names it; it is killed and reaped in any
// case.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace epl::bench {

class Side {
 public:
  // Starts this program again with these arguments.
  Side(std::string name, std::vector<std::string> arguments) : name_(std::move(name)) {
    int to[2], from[2];
    // Closed on exec: a side must see the end of its own pipe, whoever was started after it.
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0)
      throw std::runtime_error("cannot make a pipe");
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("cannot start " + name_);
    if (pid_ == 0) {
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      std::vector<char*> argv{const_cast<char*>("bench")};
      for (auto& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      execv("/proc/self/exe", argv.data());
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = from[0];
  }
  // At the end of its pipe a side ends by itself, and its own processes with it.
  ~Side() {
    close(to_);
    for (int i = 0; i < 200; ++i) {
      if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
        close(from_);
        return;
      }
      usleep(10'000);
    }
    close(from_);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

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

 private:
  void receive() {
    constexpr int kDeadlineMilliseconds = 300'000;
    pollfd waits{from_, POLLIN, 0};
    char buffer[4096];
    if (poll(&waits, 1, kDeadlineMilliseconds) <= 0) {
      throw std::runtime_error(name_ + " does not answer");
    }
    const ssize_t count = read(from_, buffer, sizeof buffer);
    if (count <= 0) throw std::runtime_error(name_ + " died");
    unread_.append(buffer, static_cast<size_t>(count));
  }

  std::string name_;
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string unread_;
};

// The other end: prints `first`, then one line a turn until the parent is gone.
inline void serve(double first, const std::function<std::vector<double>()>& turn) {
  std::cout << first << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    for (double number : turn()) std::cout << number << " ";
    std::cout << std::endl;
  }
}

}  // namespace epl::bench

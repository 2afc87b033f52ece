// Workers as real processes, for tests: started by fork, heard through a pipe, never left behind.
//
//   TestWorkers workers;
//   workers.start([&](const Say& say) { auto membership = join_job(request); say("joined"); ... });
//   workers.await(0, "joined");
//   workers.send_signal(0, SIGKILL);
//   EXPECT_THAT(workers.words_of(1), HasSubstr("worker 0"));   // all it said, until it ended
//
// A body that throws says "threw: " and what. Every process ends with the test: by itself, or
// killed after kDeadline, which the words then tell.
#pragma once

#include <ATen/Parallel.h>
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/membership.h"
#include "comm/socket.h"

namespace epl {

using Say = std::function<void(const std::string&)>;

class TestWorkers {
 public:
  static constexpr std::chrono::seconds kDeadline{30};

  ~TestWorkers() {
    for (Process& each : processes_) {
      if (each.running) kill(each.pid, SIGKILL);
    }
    for (size_t i = 0; i < processes_.size(); ++i) reap(processes_[i]);
  }

  void start(const std::function<void(const Say&)>& body) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      close(ends[0]);
      run(body, ends[1]);
    }
    close(ends[1]);
    processes_.push_back({pid, comm::Descriptor(ends[0]), "", true});
  }

  pid_t pid_of(size_t index) const { return processes_[index].pid; }
  void send_signal(size_t index, int signal) { kill(processes_[index].pid, signal); }

  // Until the process has said it, or can say no more.
  void await(size_t index, const std::string& words) {
    Process& process = processes_[index];
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (process.words.find(words) == std::string::npos && hear_more(process, end)) {
    }
    EXPECT_THAT(process.words, ::testing::HasSubstr(words));
  }

  // All that the process says until it ends; "still running" where it had to be killed.
  std::string words_of(size_t index) {
    Process& process = processes_[index];
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (hear_more(process, end)) {
    }
    if (std::chrono::steady_clock::now() >= end) {
      kill(process.pid, SIGKILL);
      process.words += " still running";
    }
    reap(process);
    return process.words;
  }

 private:
  struct Process {
    pid_t pid;
    comm::Descriptor voice;
    std::string words;
    bool running;
  };

  [[noreturn]] static void run(const std::function<void(const Say&)>& body, int voice) {
    at::set_num_threads(1);  // the parent's OpenMP threads did not come along
    const Say say = [voice](const std::string& words) {
      const ssize_t written = write(voice, words.data(), words.size());
      if (written < 0) _exit(1);
    };
    try {
      body(say);
    } catch (const std::exception& error) {
      say(std::string("threw: ") + error.what());
    }
    _exit(0);
  }

  static bool hear_more(Process& process, std::chrono::steady_clock::time_point end) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd waited{process.voice.get(), POLLIN, 0};
    if (left.count() <= 0 || poll(&waited, 1, static_cast<int>(left.count())) <= 0) return false;
    char words[4096];
    const ssize_t count = read(process.voice.get(), words, sizeof(words));
    if (count > 0) process.words.append(words, static_cast<size_t>(count));
    return count > 0;
  }

  static void reap(Process& process) {
    if (!process.running) return;
    int status = 0;
    waitpid(process.pid, &status, 0);
    process.running = false;
    if (WIFSIGNALED(status)) {
      process.words += " ended by signal " + std::to_string(WTERMSIG(status));
    }
  }

  std::vector<Process> processes_;
};

// A port that nobody had a moment ago.
inline int free_port() {
  const comm::Descriptor probe(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  EXPECT_EQ(bind(probe.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(getsockname(probe.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  return ntohs(address.sin_port);
}

inline JoinRequest request_for(int worker_index, int worker_num, int port) {
  JoinRequest request;
  request.worker_index = worker_index;
  request.worker_num = worker_num;
  request.master_host = "127.0.0.1";
  request.master_port = port;
  request.patience = std::chrono::seconds(20);
  return request;
}

// Waits as a communicator would: until the job fails.
[[noreturn]] inline void wait_for_ever(const Watch& watch) {
  while (true) {
    watch.check();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace epl

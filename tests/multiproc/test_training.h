// A training job of real processes, for tests: fault_program, started by hand or by epl-launch.
//
//   TestTraining job(2, {"--do", "kill", "--at", "step", "--step", "3", "--on", "1"});
//   job.await(1, "goes wrong");
//   const TestTraining::End end = job.end_of(0);   // within kPromise, or it is killed
//   EXPECT_EQ(job.left_behind(), "");
//
// Every process ends with the test.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/text.h"
#include "comm/socket.h"
#include "comm/test_workers.h"

namespace epl {

class TestTraining {
 public:
  using Clock = std::chrono::steady_clock;
  using Words = std::vector<std::string>;
  using Variables = std::map<std::string, std::string>;

  // What users are promised from a fault to the end of the last survivor.
  static constexpr std::chrono::seconds kPromise{10};
  static constexpr std::chrono::seconds kPatience{120};  // with a busy machine, until a fault

  struct End {
    int code = 0;      // 128 + signal where it was killed; -1 where it did not end in time
    std::string said;  // stdout and stderr
  };

  TestTraining() : shared_memory_(names_in_shared_memory()) {
    std::string name = ::testing::TempDir() + "epl_training_XXXXXX";
    folder_ = mkdtemp(name.data());
    // What a process leaves running comes to this one, not to init.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
  }

  // Workers of this host, which meet at a free port.
  TestTraining(int workers, const Words& arguments, const Variables& variables = {})
      : TestTraining() {
    for (int index = 0; index < workers; ++index) {
      start_worker(index, workers, arguments, variables);
    }
  }

  ~TestTraining() {
    for (Process& each : processes_) {
      if (each.running) kill(each.pid, SIGKILL);
    }
    for (Process& each : processes_) {
      if (each.running) waitpid(each.pid, nullptr, 0);
    }
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TestTraining(const TestTraining&) = delete;
  TestTraining& operator=(const TestTraining&) = delete;

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  int port() const { return port_; }
  pid_t pid_of(size_t process) const { return processes_[process].pid; }
  void send_signal(size_t process, int signal) { kill(processes_[process].pid, signal); }

  void start_worker(
      int index, int workers, const Words& arguments, Variables variables = {},
      const std::string& master = "127.0.0.1", const std::function<void()>& in_child = [] {}) {
    variables.insert({{"EPL_WORKER_INDEX", std::to_string(index)},
                      {"EPL_WORKER_NUM", std::to_string(workers)},
                      {"EPL_MASTER", concat(master, ":", port_)}});
    Words words{EPL_FAULT_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    start(words, variables, in_child);
  }

  void start_launcher(const Words& options, const Words& arguments, const Variables& variables) {
    Words words{EPL_LAUNCH};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--log_dir", path("logs"), EPL_FAULT_PROGRAM});
    words.insert(words.end(), arguments.begin(), arguments.end());
    start(words, variables, [] {});
  }

  // Until the process has said it.
  void await(size_t process, const std::string& words) {
    const auto said = [&] { return processes_[process].said.find(words) != std::string::npos; };
    const bool in_time = hear_until(Clock::now() + kPatience,
                                    [&] { return said() || !processes_[process].running; });
    EXPECT_TRUE(in_time && said())
        << "process " << process << " did not say \"" << words << "\", but:\n"
        << processes_[process].said;
  }

  // From now on kPromise runs.
  void note_fault() { fault_ = Clock::now(); }

  // How a process ended, which it must within kPromise of the fault.
  End end_of(size_t process) {
    Process& each = processes_[process];
    const Clock::time_point last = fault_ ? *fault_ + kPromise : Clock::now() + kPatience;
    if (!hear_until(last, [&] { return !each.running; })) return {-1, each.said};
    return {each.code, each.said};
  }

  // The same for one that is not expected to end by itself.
  void put_away(size_t process) {
    send_signal(process, SIGKILL);
    hear_until(Clock::now() + kPatience, [&] { return !processes_[process].running; });
  }

  // Processes, shared memory and sockets that are still there; empty where nothing is.
  std::string left_behind() const {
    std::string found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string pid = entry.path().filename();
      if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
      if (read_all(concat("/proc/", pid, "/environ")).find(mark()) == std::string::npos) continue;
      found += concat("process ", pid, " ", read_all(concat("/proc/", pid, "/comm")));
    }
    for (const std::string& name : names_in_shared_memory()) {
      // The OpenMP of LLVM, which clang links, leaves these wherever a process is killed.
      const bool of_openmp = name.rfind("__KMP_REGISTERED_LIB_", 0) == 0;
      if (!of_openmp && shared_memory_.count(name) == 0) {
        found += concat("/dev/shm/", name, "\n");
      }
    }
    try {
      comm::listen_at("127.0.0.1", port_);
    } catch (const std::exception& error) {
      found += error.what();
    }
    return found;
  }

 private:
  struct Process {
    pid_t pid = 0;
    comm::Descriptor ended;  // readable once the process has
    comm::Descriptor voice;
    std::string said;
    bool running = true;
    int code = 0;
  };

  static std::set<std::string> names_in_shared_memory() {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      names.insert(entry.path().filename());
    }
    return names;
  }

  static std::string read_all(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }

  // By this every process of the job is known, whoever started it.
  std::string mark() const { return concat("TRAINING_TEST_MARK=", folder_); }

  void start(const Words& words, const Variables& variables,
             const std::function<void()>& in_child) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      in_child();
      run(words, variables);
    }
    close(ends[1]);
    Process process;
    process.pid = pid;
    process.ended = comm::Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    process.voice = comm::Descriptor(ends[0]);
    fcntl(process.voice.get(), F_SETFL, O_NONBLOCK);
    processes_.push_back(std::move(process));
  }

  [[noreturn]] void run(const Words& words, const Variables& variables) const {
    setenv("TRAINING_TEST_MARK", folder_.c_str(), 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> pointers;
    for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
    pointers.push_back(nullptr);
    execv(pointers[0], pointers.data());
    _exit(127);
  }

  // Listens to all processes at once: one that is not heard would stop at its full pipe.
  bool hear_until(Clock::time_point last, const std::function<bool()>& condition) {
    while (!condition()) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(last - Clock::now()).count();
      if (left <= 0) return false;
      std::vector<pollfd> waited;
      for (const Process& each : processes_) {
        if (each.running) waited.push_back({each.voice.get(), POLLIN, 0});
        if (each.running) waited.push_back({each.ended.get(), POLLIN, 0});
      }
      poll(waited.data(), waited.size(), static_cast<int>(left));
      for (Process& each : processes_) {
        if (each.running) hear(each);
      }
    }
    return true;
  }

  static void hear(Process& process) {
    int status = 0;
    const bool ended = waitpid(process.pid, &status, WNOHANG) == process.pid;
    char words[4096];
    for (ssize_t count = 0; (count = read(process.voice.get(), words, sizeof(words))) > 0;) {
      process.said.append(words, static_cast<size_t>(count));
    }
    if (!ended) return;
    process.running = false;
    process.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::string folder_;
  const int port_ = free_port();
  const std::set<std::string> shared_memory_;  // before
  std::vector<Process> processes_;
  std::optional<Clock::time_point> fault_;
};

}  // namespace epl

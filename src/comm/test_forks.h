// Members of a communicator as processes that the test forks, and an Exchange between them.
#pragma once

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace epl::testing {

// Texts in memory that forked processes share. Each member's Exchange may be called kTurns times.
class SharedText {
 public:
  explicit SharedText(int size) : size_(size) {
    void* place = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED) throw std::bad_alloc();
    texts_ = static_cast<Text*>(place);
  }
  ~SharedText() { munmap(texts_, bytes()); }
  SharedText(const SharedText&) = delete;
  SharedText& operator=(const SharedText&) = delete;

  Exchange exchange(int rank) {
    return [this, rank, turn = 0](const std::string& mine) mutable {
      Text& text = at(turn, rank);
      std::strncpy(text.letters, mine.c_str(), sizeof text.letters - 1);
      text.written.store(1, std::memory_order_release);
      std::vector<std::string> all;
      for (int member = 0; member < size_; ++member) all.push_back(read(at(turn, member)));
      ++turn;
      return all;
    };
  }

 private:
  static constexpr int kTurns = 8;
  struct Text {  // all zeros at first
    std::atomic<int> written;
    char letters[1020];
  };
  size_t bytes() const { return sizeof(Text) * kTurns * static_cast<size_t>(size_); }
  Text& at(int turn, int member) { return texts_[turn * size_ + member]; }
  static std::string read(const Text& text) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (text.written.load(std::memory_order_acquire) == 0) {
      if (std::chrono::steady_clock::now() > end) throw std::runtime_error("nobody answers");
      sched_yield();
    }
    return text.letters;
  }

  int size_;
  Text* texts_ = nullptr;
};

using ProcessBody = std::function<void(int rank)>;

// The child ends without the destructors and handlers of the test.
inline pid_t start_process(const ProcessBody& body, int rank = 0) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("cannot fork");
  if (pid > 0) return pid;
  try {
    body(rank);
    _exit(0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "process %d: %s\n", rank, error.what());
  }
  _exit(1);
}

// The exit code, or 128 and the signal.
inline int wait_for_process(pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

inline std::vector<int> run_processes(int count, const ProcessBody& body) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < count; ++rank) children.push_back(start_process(body, rank));
  std::vector<int> codes;
  for (const pid_t child : children) codes.push_back(wait_for_process(child));
  return codes;
}

}  // namespace epl::testing

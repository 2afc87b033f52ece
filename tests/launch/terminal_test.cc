// What a user sees on a terminal: lines of worker 0 above, the status line below.
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "tests/launch/launched.h"

namespace epl {
namespace {

// As much of a terminal as is needed: '\r', '\n' and "erase to the end of the line".
std::vector<std::string> screen_after(const std::string& bytes) {
  std::vector<std::string> rows(1);
  size_t column = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string& row = rows.back();
    if (bytes[at] == '\r') {
      column = 0;
    } else if (bytes[at] == '\n') {
      rows.emplace_back();
      column = 0;
    } else if (bytes.compare(at, 3, "\033[K") == 0) {
      row.resize(std::min(row.size(), column));
      at += 2;
    } else {
      row.resize(std::max(row.size(), column + 1), ' ');
      row[column++] = bytes[at];
    }
  }
  return rows;
}

class OnATerminal : public LaunchTest {
 protected:
  void start(const std::vector<std::string>& words) {
    std::vector<char*> pointers;
    for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
    pointers.push_back(nullptr);
    winsize size{24, 60, 0, 0};
    pid_ = forkpty(&terminal_, nullptr, nullptr, &size);
    if (pid_ != 0) return;
    if (chdir(folder().c_str()) == 0) execv(pointers[0], pointers.data());
    _exit(98);
  }
  ~OnATerminal() override {
    if (terminal_ >= 0) close(terminal_);  // hangs up: the launcher ends everything
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }

  // Reads until the screen holds `row`; the whole screen where it ends before.
  std::vector<std::string> screen_with(const std::string& row) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < until) {
      for (const std::string& seen : screen_after(bytes_)) {
        if (seen.find(row) != std::string::npos) return screen_after(bytes_);
      }
      pollfd ready{terminal_, POLLIN, 0};
      if (poll(&ready, 1, 1000) == 0) continue;
      char bytes[4096];
      const ssize_t size = ::read(terminal_, bytes, sizeof bytes);
      if (size <= 0) break;
      bytes_.append(bytes, static_cast<size_t>(size));
    }
    return screen_after(bytes_);
  }

  pid_t pid_ = -1;
  int terminal_ = -1;
  std::string bytes_;
};

TEST_F(OnATerminal, TheStatusStandsBelowTheLines) {
  script("echo one; printf '10%%\\r20%%\\r'; await go; printf '30%%\\ntwo\\n'; echo three");
  start(command({"--num_workers", "2"}));
  std::vector<std::string> screen = screen_with("worker 0: 20%");
  ASSERT_EQ(screen.size(), 3u);
  EXPECT_EQ(screen[1], "one");
  EXPECT_EQ(screen[2].rfind("epl-launch: 2 of 2 workers running, 0:00:0", 0), 0u) << screen[2];
  EXPECT_LT(screen[2].size(), 60u);

  std::ofstream(path("go")) << "";
  screen = screen_with("ended well");
  ASSERT_EQ(screen.size(), 7u) << testing::PrintToString(screen);
  EXPECT_EQ(std::vector<std::string>(screen.begin() + 1, screen.begin() + 5),
            (std::vector<std::string>{"one", "30%", "two", "three"}));
  EXPECT_EQ(screen[5].rfind("epl-launch: all workers ended well after 0:00:0", 0), 0u);
}

TEST_F(OnATerminal, CtrlCEndsTheJob) {
  script("mark self.0; sleep 100");
  start(command({"--num_workers", "1"}));
  ASSERT_TRUE(eventually([&] { return exists("self.0"); }));
  ASSERT_EQ(write(terminal_, "\003", 1), 1);
  screen_with("ended by signal 2 (Interrupt)");
  int status = 0;
  ASSERT_EQ(waitpid(pid_, &status, 0), pid_);
  pid_ = -1;
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_FALSE(lives("self.0"));
}

TEST_F(OnATerminal, ATerminalThatIsClosedEndsTheJob) {
  script("mark self.0; sleep 100");
  start(command({"--num_workers", "1"}));
  ASSERT_TRUE(eventually([&] { return exists("self.0"); }));
  close(terminal_);
  terminal_ = -1;
  int status = 0;
  ASSERT_EQ(waitpid(pid_, &status, 0), pid_);
  pid_ = -1;
  EXPECT_EQ(WEXITSTATUS(status), 129);
  EXPECT_FALSE(lives("self.0"));
}

}  // namespace
}  // namespace epl

// For tests: runs epl-launch on a little script, in a folder of its own.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace epl {

// How a command ended and what it printed.
struct Outcome {
  int code = -1;  // -1: it was killed by a signal
  std::string out;
  std::string err;
};

// A running command. Its process group is its own, as that of a job in a shell.
class Running {
 public:
  Running(const std::vector<std::string>& words, const std::string& folder);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  pid_t pid() const { return pid_; }
  Outcome wait();  // throws where it takes longer than 60 s, after killing it

 private:
  pid_t pid_ = 0;
  std::string out_, err_;  // files
};

class LaunchTest : public testing::Test {
 protected:
  LaunchTest();
  ~LaunchTest() override;

  const std::string& folder() const { return folder_; }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // Writes job.sh, which has the functions of this fixture: `mark name` makes the file `name`,
  // `await name` waits for it.
  void script(const std::string& text);
  // epl-launch with these arguments, then --log_dir logs job.sh.
  std::vector<std::string> command(const std::vector<std::string>& arguments) const;
  Outcome launch(const std::vector<std::string>& arguments);

  std::string read(const std::string& name) const;
  std::string log(int worker) const {
    return read("logs/worker-" + std::to_string(worker) + ".log");
  }

  // Waits until `condition` holds, for 30 s at most.
  static bool eventually(const std::function<bool()>& condition);
  bool exists(const std::string& name) const;
  // Whether a process with the number in that file lives (a zombie does not).
  bool lives(const std::string& name) const;

 private:
  std::string folder_;
};

// Whether some line of `text` contains `part`; prints `text` where none does.
testing::AssertionResult contains(const std::string& text, const std::string& part);

}  // namespace epl

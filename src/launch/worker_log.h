// The output of one worker: its log file, its last lines, its lines for the terminal.
//
// Bytes of stdout and stderr go to the file as they come, whatever they are. Where the file cannot
// take them (a full disk), training goes on: the file gets a note with the number of missing bytes
// once there is room again, and memory holds no more than the last lines.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "launch/child.h"

namespace epl {

class WorkerLog {
 public:
  enum class Lines { kKept, kDropped };  // whether take_lines() will be called

  // Makes the file, or empties it. Throws Error where that is not possible.
  WorkerLog(const std::string& path, Lines lines);
  ~WorkerLog();
  WorkerLog(const WorkerLog&) = delete;
  WorkerLog& operator=(const WorkerLog&) = delete;

  void add(Voice voice, const char* bytes, size_t size);

  // Whole lines of stdout or stderr that have come since the last call, newlines included. A line
  // of more than kLongLine bytes comes in parts.
  std::string take_lines(Voice voice);
  // What is left after the last newline.
  std::string take_rest(Voice voice);

  // At most `count` of the last lines, without newlines, long ones cut.
  std::vector<std::string> last_lines(size_t count) const;

  const std::string& path() const { return path_; }

  // Why bytes are missing in the file; empty where none are. Said once.
  std::string take_trouble();

  static constexpr size_t kLongLine = 64 * 1024;

 private:
  bool write_all(const char* bytes, size_t size);
  std::string& unshown(Voice voice) { return unshown_[static_cast<size_t>(voice)]; }

  std::string path_;
  Lines lines_;
  int file_ = -1;
  size_t missing_ = 0;   // bytes since the last that the file took
  std::string trouble_;  // the first reason
  bool trouble_said_ = false;
  std::array<std::string, 2> unshown_;  // not taken yet
  std::string tail_;                    // the last bytes of both
};

// What a terminal shows of a line: the text after the last carriage return that does not end it.
std::string as_seen(const std::string& line);

}  // namespace epl

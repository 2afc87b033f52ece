// stdout or stderr, written without ever blocking and, where possible, line by line.
//
// A reader that is slow (a pager, a stopped terminal) makes the text pile up; full() tells that
// workers' pipes should be left alone until it has caught up. A reader that is gone (`| head`) ends
// the showing, not the job.
#pragma once

#include <string>

namespace epl {

class OutStream {
 public:
  explicit OutStream(int file);

  void add(const std::string& text);
  void write_some();  // poll() says that there is room

  // Writes to the end of a line that is half written, so that something else can follow.
  void finish_line();

  bool waiting() const { return !text_.empty(); }
  bool full() const { return text_.size() - sent_ > kFull; }
  bool is_terminal() const { return kind_ == Kind::kTerminal; }

 private:
  enum class Kind { kTerminal, kOther, kGone };
  static constexpr size_t kFull = 1 << 20;

  int file_;
  Kind kind_;
  std::string text_;  // empty where all of it is sent
  size_t sent_ = 0;
  char last_ = '\n';  // of what was sent
};

// Writes all of `text` unless the file takes nothing for two seconds.
bool write_patiently(int file, const std::string& text);

// Whether something can be written without blocking, within so many milliseconds.
bool has_room(int file, int milliseconds);

}  // namespace epl

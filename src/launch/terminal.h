// What the user sees: lines of workers on stdout or stderr as they said them, messages and a status
// line on stderr.
//
// The status line is the last line of a terminal and is written again about once a second; it is
// taken away before anything else is written, and only whole lines are written. Where stderr is no
// terminal there is an ordinary line once a minute instead.
#pragma once

#include <chrono>
#include <string>

#include "launch/child.h"
#include "launch/out_stream.h"

namespace epl {

class Terminal {
 public:
  Terminal();

  void show_lines(Voice voice, const std::string& lines);  // whole lines of workers
  // A message of the launcher's own, "epl-launch: " is put in front; written at once.
  void say(const std::string& message);
  void set_status(const std::string& status);

  const OutStream& stream(Voice voice) const { return voice == Voice::kOut ? out_ : errors_; }
  bool waiting() const { return out_.waiting() || errors_.waiting(); }
  void write_some(Voice voice);  // it has room

  void close_status();
  bool has_status_line() const { return has_status_line_; }

  // Time from one status to the next.
  std::chrono::milliseconds status_interval() const;

 private:
  void clear_status();
  void draw_status();

  OutStream out_;
  OutStream errors_;
  const bool has_status_line_;  // stderr is a terminal
  std::string status_;          // as last set
  bool status_drawn_ = false;
};

// `text` made fit for one row of `columns` columns: control characters and broken UTF-8 become '?',
// the end is cut. A character outside of ASCII counts as two columns, the most it can take.
std::string one_row(const std::string& text, int columns);

// "0:01:23".
std::string elapsed_text(std::chrono::seconds elapsed);

}  // namespace epl

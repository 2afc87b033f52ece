#include "launch/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "launch/worker_log.h"

namespace epl {
namespace {

int columns_of(int file) {
  winsize size{};
  return ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// Bytes of the UTF-8 character at `at`; 0 where there is none.
size_t length_of_character(const std::string& text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const size_t length = first < 0x80             ? 1
                        : (first & 0xe0) == 0xc0 ? 2
                        : (first & 0xf0) == 0xe0 ? 3
                        : (first & 0xf8) == 0xf0 ? 4
                                                 : 0;
  if (length == 0 || at + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[at + i]) & 0xc0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

Terminal::Terminal()
    : out_(STDOUT_FILENO), errors_(STDERR_FILENO), has_status_line_(errors_.is_terminal()) {}

void Terminal::show_lines(Voice voice, const std::string& lines) {
  OutStream& shown = voice == Voice::kOut ? out_ : errors_;
  if (!shown.is_terminal()) {
    shown.add(lines);
    return;
  }
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size() - 1) + 1;
    shown.add(as_seen(lines.substr(begin, end - begin)));
    begin = end;
  }
}

void Terminal::write_some(Voice voice) {
  OutStream& shown = voice == Voice::kOut ? out_ : errors_;
  if (!shown.waiting()) return;
  if (shown.is_terminal()) clear_status();
  shown.write_some();
  draw_status();
}

void Terminal::say(const std::string& message) {
  out_.finish_line();
  errors_.finish_line();
  clear_status();
  write_patiently(STDERR_FILENO, "epl-launch: " + message + "\n");
  draw_status();
}

void Terminal::set_status(const std::string& status) {
  if (has_status_line_) {
    status_ = status;
    draw_status();
  } else {
    say(status);
  }
}

void Terminal::close_status() {
  clear_status();
  status_.clear();
}

std::chrono::milliseconds Terminal::status_interval() const {
  return has_status_line_ ? std::chrono::seconds(1) : std::chrono::minutes(1);
}

void Terminal::clear_status() {
  if (!status_drawn_) return;
  write_patiently(STDERR_FILENO, "\r\033[K");
  status_drawn_ = false;
}

void Terminal::draw_status() {
  // Half a line of a worker's may stand there while more is waiting.
  const bool in_the_way = (out_.is_terminal() && out_.waiting()) || errors_.waiting();
  if (!has_status_line_ || status_.empty() || in_the_way || !has_room(STDERR_FILENO, 0)) return;
  const std::string row = one_row("epl-launch: " + status_, columns_of(STDERR_FILENO) - 1);
  status_drawn_ = write_patiently(STDERR_FILENO, "\r" + row + "\033[K");
}

std::string one_row(const std::string& text, int columns) {
  std::string row;
  int used = 0;
  for (size_t at = 0; at < text.size();) {
    size_t length = length_of_character(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool control =
        byte < 0x20 || byte == 0x7f ||
        (byte == 0xc2 && length == 2 && static_cast<unsigned char>(text[at + 1]) < 0xa0);
    const int width = length > 1 && !control ? 2 : 1;
    if (used + width > columns) break;
    used += width;
    if (length == 0 || control) {
      row += byte == '\t' ? ' ' : '?';
    } else {
      row += text.substr(at, length);
    }
    at += length == 0 ? 1 : length;
  }
  return row;
}

std::string elapsed_text(std::chrono::seconds elapsed) {
  const long long seconds = elapsed.count();
  char text[32];
  std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", seconds / 3600, seconds / 60 % 60,
                seconds % 60);
  return text;
}

}  // namespace epl

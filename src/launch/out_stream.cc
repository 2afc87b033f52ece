#include "launch/out_stream.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace epl {
namespace {

constexpr int kPatience = 2000;  // milliseconds

}  // namespace

OutStream::OutStream(int file)
    : file_(file), kind_(isatty(file) != 0 ? Kind::kTerminal : Kind::kOther) {}

void OutStream::add(const std::string& text) {
  if (kind_ != Kind::kGone) text_ += text;
}

void OutStream::write_some() {
  // PIPE_BUF bytes fit without blocking where poll() says that something does.
  size_t size = std::min<size_t>(text_.size() - sent_, PIPE_BUF);
  const size_t newline = text_.rfind('\n', sent_ + size - 1);
  if (newline != std::string::npos && newline >= sent_) size = newline + 1 - sent_;
  const ssize_t written = write(file_, text_.data() + sent_, size);
  if (written > 0) {
    sent_ += static_cast<size_t>(written);
    last_ = text_[sent_ - 1];
  } else if (errno != EINTR && errno != EAGAIN) {
    kind_ = Kind::kGone;
    sent_ = text_.size();
    last_ = '\n';
  }
  if (sent_ == text_.size()) {
    text_.clear();
    sent_ = 0;
  } else if (sent_ > kFull) {
    text_.erase(0, sent_);
    sent_ = 0;
  }
}

void OutStream::finish_line() {
  while (waiting() && last_ != '\n' && has_room(file_, kPatience)) write_some();
}

bool has_room(int file, int milliseconds) {
  pollfd ready{file, POLLOUT, 0};
  return poll(&ready, 1, milliseconds) > 0 && (ready.revents & POLLOUT) != 0;
}

bool write_patiently(int file, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    if (!has_room(file, kPatience)) return false;
    const size_t size = std::min<size_t>(text.size() - at, PIPE_BUF);
    const ssize_t written = write(file, text.data() + at, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    at += static_cast<size_t>(written);
  }
  return true;
}

}  // namespace epl

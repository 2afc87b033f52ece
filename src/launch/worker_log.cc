#include "launch/worker_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/text.h"

namespace epl {
namespace {

constexpr size_t kTail = 64 * 1024;  // bytes in which the last lines are looked for
constexpr size_t kShownOfLine = 1000;

}  // namespace

WorkerLog::WorkerLog(const std::string& path, Lines lines) : path_(path), lines_(lines) {
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  EPL_CHECK(file_ >= 0, concat("cannot write the log ", path, ": ", std::strerror(errno)),
            "epl-launch", "--log_dir with a folder that can be written");
}

WorkerLog::~WorkerLog() { close(file_); }

bool WorkerLog::write_all(const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t written = write(file_, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      if (trouble_.empty()) trouble_ = written < 0 ? std::strerror(errno) : "nothing is written";
      missing_ += size;
      return false;
    }
    bytes += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

void WorkerLog::add(Voice voice, const char* bytes, size_t size) {
  if (missing_ > 0) {
    // The note comes before the bytes that follow the gap; where it does not fit, neither do they.
    const size_t before = missing_;
    missing_ = 0;
    const std::string note = concat("\n[epl-launch: ", before, " bytes are missing here]\n");
    if (write_all(note.data(), note.size())) {
      write_all(bytes, size);
    } else {
      missing_ = before + size;
    }
  } else {
    write_all(bytes, size);
  }
  if (lines_ == Lines::kKept) unshown(voice).append(bytes, size);
  tail_.append(bytes, size);
  if (tail_.size() > 4 * kTail) tail_.erase(0, tail_.size() - kTail);
}

std::string WorkerLog::take_lines(Voice voice) {
  std::string& text = unshown(voice);
  size_t end = text.rfind('\n');
  if (end == std::string::npos) {
    if (text.size() <= kLongLine) return "";
    end = text.size() - 1;
  }
  std::string lines = text.substr(0, end + 1);
  text.erase(0, end + 1);
  return lines;
}

std::string WorkerLog::take_rest(Voice voice) {
  std::string rest;
  rest.swap(unshown(voice));
  return rest;
}

std::vector<std::string> WorkerLog::last_lines(size_t count) const {
  std::vector<std::string> lines;
  size_t end = tail_.size();
  if (end > 0 && tail_[end - 1] == '\n') --end;
  while (lines.size() < count && end != std::string::npos && !tail_.empty()) {
    const size_t newline = end == 0 ? std::string::npos : tail_.rfind('\n', end - 1);
    const size_t begin = newline == std::string::npos ? 0 : newline + 1;
    std::string line = as_seen(tail_.substr(begin, end - begin));
    if (line.size() > kShownOfLine) line = line.substr(0, kShownOfLine) + " ...";
    lines.insert(lines.begin(), line);
    end = newline;
  }
  return lines;
}

std::string WorkerLog::take_trouble() {
  if (trouble_.empty() || trouble_said_) return "";
  trouble_said_ = true;
  return trouble_;
}

std::string as_seen(const std::string& line) {
  size_t end = line.size();
  while (end > 0 && (line[end - 1] == '\n' || line[end - 1] == '\r')) --end;
  const size_t start = line.rfind('\r', end == 0 ? 0 : end - 1);
  const bool newline = !line.empty() && line.back() == '\n';
  const size_t begin = start == std::string::npos || start >= end ? 0 : start + 1;
  return line.substr(begin, end - begin) + (newline ? "\n" : "");
}

}  // namespace epl

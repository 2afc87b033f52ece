#include "checkpoint/checked_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "checkpoint/crc32c.h"
#include "checkpoint/damage.h"

namespace epl {
namespace {

constexpr int64_t kWindowBytes = int64_t{1} << 20;

// Closes what open() gave.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path, int flags = O_RDONLY)
      : number_(::open(path.c_str(), flags | O_CLOEXEC)) {}
  ~OpenFile() {
    if (number_ >= 0) ::close(number_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int number() const { return number_; }

 private:
  const int number_;
};

void read_bytes(const std::string& path, int64_t offset, int64_t size, void* to) {
  const OpenFile file(path);
  if (file.number() < 0) throw DamagedCheckpoint(path, std::strerror(errno));
  auto* next = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t got = ::pread(file.number(), next, static_cast<size_t>(size), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw DamagedCheckpoint(path, std::strerror(errno));
    if (got == 0) throw DamagedCheckpoint(path, concat("it ends at byte ", offset));
    next += got;
    offset += got;
    size -= got;
  }
}

}  // namespace

int64_t block_count(int64_t bytes) {
  return bytes / kBlockBytes + (bytes % kBlockBytes != 0 ? 1 : 0);
}

CheckedFileWriter::CheckedFileWriter(std::string path)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (file_ < 0) fail();
}

CheckedFileWriter::~CheckedFileWriter() {
  if (file_ < 0) return;
  ::close(file_);
  if (!finished_) std::remove(path_.c_str());
}

void CheckedFileWriter::fail() const {
  throw Error(concat("cannot write ", path_, ": ", std::strerror(errno)), "saving a checkpoint",
              "a folder that exists, may be written and has room");
}

void CheckedFileWriter::count(const char* bytes, size_t size) {
  while (size > 0) {
    const int64_t filled = record_.bytes % kBlockBytes;
    if (filled == 0) record_.checksums.push_back(0);
    const size_t now = std::min(size, static_cast<size_t>(kBlockBytes - filled));
    record_.checksums.back() = crc32c(bytes, now, record_.checksums.back());
    record_.bytes += static_cast<int64_t>(now);
    bytes += now;
    size -= now;
  }
}

void CheckedFileWriter::write(const void* bytes, size_t size) {
  const auto* from = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = ::write(file_, from, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail();
    count(from, static_cast<size_t>(written));
    from += written;
    size -= static_cast<size_t>(written);
  }
}

FileRecord CheckedFileWriter::finish() {
  if (::fsync(file_) != 0) fail();
  finished_ = true;
  return record_;
}

CheckedFileReader::CheckedFileReader(std::string path, FileRecord record)
    : path_(std::move(path)), record_(std::move(record)), verified_(record_.checksums.size()) {
  const int64_t bytes = file_bytes(path_);
  if (bytes != record_.bytes) {
    throw DamagedCheckpoint(
        path_, concat("it has ", bytes, " bytes, and was written with ", record_.bytes));
  }
}

std::string CheckedFileReader::name_of_block(int64_t block) const {
  const int64_t begin = block * kBlockBytes;
  return concat("block ", block, " of ", record_.checksums.size(), " (bytes ", begin, " to ",
                std::min(begin + kBlockBytes, record_.bytes) - 1, ")");
}

bool CheckedFileReader::is_whole(int64_t block) {
  if (verified_[static_cast<size_t>(block)]) return true;
  const int64_t begin = block * kBlockBytes;
  const int64_t size = std::min(kBlockBytes, record_.bytes - begin);
  std::vector<char> bytes(static_cast<size_t>(size));
  read_bytes(path_, begin, size, bytes.data());
  const bool whole =
      crc32c(bytes.data(), bytes.size()) == record_.checksums[static_cast<size_t>(block)];
  verified_[static_cast<size_t>(block)] = whole;
  return whole;
}

void CheckedFileReader::verify(int64_t offset, int64_t size) {
  if (size == 0) return;
  EPL_ASSERT(offset >= 0 && size > 0 && size <= record_.bytes - offset, "a range of the file");
  for (int64_t block = offset / kBlockBytes; block <= (offset + size - 1) / kBlockBytes; ++block) {
    if (!is_whole(block)) {
      throw DamagedCheckpoint(path_,
                              concat(name_of_block(block), " is damaged: its checksum is not",
                                     " the one that was written"));
    }
  }
}

void CheckedFileReader::forget() {
  verified_.assign(verified_.size(), false);
  window_.clear();
}

std::vector<int64_t> CheckedFileReader::damaged_blocks() {
  std::vector<int64_t> damaged;
  for (int64_t block = 0; block < block_count(record_.bytes); ++block) {
    if (!is_whole(block)) damaged.push_back(block);
  }
  return damaged;
}

void CheckedFileReader::read(int64_t offset, int64_t size, void* to) {
  EPL_ASSERT(offset >= 0 && size >= 0 && size <= record_.bytes - offset, "a range of the file");
  if (size >= kWindowBytes) return read_bytes(path_, offset, size, to);
  const int64_t window_end = window_begin_ + static_cast<int64_t>(window_.size());
  if (offset < window_begin_ || offset + size > window_end) {
    window_.resize(static_cast<size_t>(std::min(kWindowBytes, record_.bytes - offset)));
    read_bytes(path_, offset, static_cast<int64_t>(window_.size()), window_.data());
    window_begin_ = offset;
  }
  std::copy_n(window_.data() + (offset - window_begin_), size, static_cast<char*>(to));
}

int64_t file_bytes(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw DamagedCheckpoint(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw DamagedCheckpoint(path, "it is no file");
  return status.st_size;
}

std::string read_text_file(const std::string& path, int64_t most) {
  const int64_t bytes = file_bytes(path);
  if (bytes > most) throw DamagedCheckpoint(path, concat("it has ", bytes, " bytes, too many"));
  std::string text(static_cast<size_t>(bytes), '\0');
  read_bytes(path, 0, bytes, text.data());
  return text;
}

void sync_folder(const std::string& path) {
  const OpenFile folder(path, O_RDONLY | O_DIRECTORY);
  EPL_CHECK(folder.number() >= 0 && ::fsync(folder.number()) == 0,
            concat("cannot write ", path, ": ", std::strerror(errno)), "saving a checkpoint",
            "a folder that exists and may be written");
}

}  // namespace epl

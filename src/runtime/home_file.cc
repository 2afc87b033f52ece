#include "runtime/home_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/text.h"

#ifndef MADV_POPULATE_READ  // Linux 5.14
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace epl {
namespace {

constexpr int64_t kPage = 4096;

[[noreturn]] void refuse_folder(const std::string& folder, const std::string& what,
                                const std::string& try_this) {
  throw Error(what, concat("offload.path = \"", folder, "\""), try_this);
}

// Without a name from the beginning, where the file system can do that.
int open_unlinked(const std::string& folder) {
  const int unnamed = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (unnamed >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return unnamed;
  std::string name = folder + "/epl-offload-XXXXXX";
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) unlink(name.c_str());
  return named;
}

bool lies_in_memory(int descriptor) {
  struct statfs system = {};
  if (fstatfs(descriptor, &system) != 0) return false;
  return system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC;
}

// Where the system cannot be asked for all of them at once.
void touch(const char* begin, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kPage) {
    static_cast<void>(*static_cast<const volatile char*>(begin + at));
  }
}

}  // namespace

// The context of the memory that take() returns.
struct HomeFile::Place {
  std::shared_ptr<HomeFile> file;
  char* begin;
  int64_t bytes;
};

int64_t HomeFile::rounded(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::shared_ptr<HomeFile> HomeFile::make(const std::string& folder, int64_t bytes) {
  const int64_t size = std::max(rounded(bytes), kPage);
  struct stat about = {};
  if (stat(folder.c_str(), &about) != 0 || !S_ISDIR(about.st_mode)) {
    refuse_folder(folder, concat("there is no folder \"", folder, "\""), "a folder that exists");
  }
  const int descriptor = open_unlinked(folder);
  if (descriptor < 0) {
    refuse_folder(folder,
                  concat("cannot write to the folder \"", folder, "\": ", std::strerror(errno)),
                  "a folder that this process may write to");
  }
  const int full = posix_fallocate(descriptor, 0, size);
  if (full != 0) {
    close(descriptor);
    refuse_folder(
        folder,
        concat("no room for ", human_bytes(size), " in \"", folder, "\": ", std::strerror(full)),
        "a folder on a larger disk");
  }
  void* const begin =
      mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (begin == MAP_FAILED) {
    const int error = errno;
    close(descriptor);
    refuse_folder(folder,
                  concat("cannot map ", human_bytes(size), " of a file in \"", folder,
                         "\": ", std::strerror(error)),
                  "a folder of another file system");
  }
  return std::shared_ptr<HomeFile>(
      new HomeFile(descriptor, static_cast<char*>(begin), size, lies_in_memory(descriptor)));
}

HomeFile::HomeFile(int descriptor, char* begin, int64_t bytes, bool in_memory)
    : descriptor_(descriptor),
      begin_(begin),
      bytes_(bytes),
      in_memory_(in_memory),
      owner_(getpid()) {}

bool HomeFile::is_owner() const { return getpid() == owner_; }

HomeFile::~HomeFile() {
  munmap(begin_, static_cast<size_t>(bytes_));
  close(descriptor_);
}

c10::DataPtr HomeFile::take(int64_t bytes) {
  EPL_ASSERT(has_room(bytes), "more is taken of a file than there is");
  char* const begin = begin_ + taken_;
  taken_ += rounded(bytes);
  auto* const place = new Place{shared_from_this(), begin, rounded(bytes)};
  return {begin, place, &give_back, c10::kCPU};
}

bool HomeFile::is_home(const c10::DataPtr& memory) { return memory.get_deleter() == &give_back; }

// The disk gets its room back at once, the addresses stay with the file.
void HomeFile::give_back(void* given) {
  const std::unique_ptr<Place> place(static_cast<Place*>(given));
  if (!place->file->is_owner()) return;
  madvise(place->begin, static_cast<size_t>(place->bytes), MADV_DONTNEED);
  static_cast<void>(fallocate(place->file->descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                              place->file->offset_of(place->begin), place->bytes));
}

// The system takes no more at once than it reads ahead by itself.
void HomeFile::start_reading(const void* begin, int64_t bytes) const {
  constexpr int64_t kAtOnce = 128 << 10;
  const int64_t offset = offset_of(begin);
  for (int64_t at = 0; at < bytes; at += kAtOnce) {
    posix_fadvise(descriptor_, offset + at, std::min(kAtOnce, bytes - at), POSIX_FADV_WILLNEED);
  }
}

void HomeFile::start_writing(const void* begin, int64_t bytes) const {
  sync_file_range(descriptor_, offset_of(begin), bytes, SYNC_FILE_RANGE_WRITE);
}

int HomeFile::fetch(const void* begin, int64_t bytes, bool to_be_written) const {
  start_reading(begin, bytes);
  void* const address = const_cast<void*>(begin);
  const int how = to_be_written ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  if (madvise(address, static_cast<size_t>(bytes), how) == 0) return 0;
  if (errno != EINVAL) return errno;
  touch(static_cast<const char*>(begin), bytes);
  return 0;
}

// Pages that are mapped, or not written yet, cannot go: so in this order. Those that could not be
// written count as clean afterwards, and are the only good copy.
int HomeFile::release(const void* begin, int64_t bytes) const {
  const int64_t offset = offset_of(begin);
  madvise(const_cast<void*>(begin), static_cast<size_t>(bytes), MADV_DONTNEED);
  constexpr unsigned kWritten =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  const bool written = sync_file_range(descriptor_, offset, bytes, kWritten) == 0;
  const int error = written || errno == ENOSYS || errno == ESPIPE ? 0 : errno;
  if (error == 0) posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_DONTNEED);
  return error;
}

}  // namespace epl

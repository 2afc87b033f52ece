#include "comm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "base/check.h"
#include "comm/socket.h"

namespace epl::comm {
namespace {

// By the process: whoever asks what it holds has no list of its communicators.
std::atomic<int64_t> mapped_by_all{0};

constexpr const char* kTry =
    "processes that share a host, its process numbers and their user (one container), or a "
    "communicator over the network";

// Throws what went wrong, by the system's word.
void require(bool fine, const std::string& what) {
  EPL_CHECK(fine, concat("cannot ", what, ": ", std::strerror(errno)));
}

struct stat status_of(const Descriptor& file) {
  struct stat status = {};
  require(fstat(file.get(), &status) == 0, "look at shared memory");
  return status;
}

// "pid descriptor device inode": the last two tell whether the pid means the same process here.
std::string create(Descriptor& file, size_t bytes) {
  file = Descriptor(memfd_create("epl", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  require(bool(file), "make shared memory");
  require(ftruncate(file.get(), static_cast<off_t>(bytes)) == 0,
          concat("make ", human_bytes(static_cast<int64_t>(bytes)), " of shared memory"));
  // Nobody may cut off what others have mapped.
  require(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0,
          "fix the size of shared memory");
  const struct stat status = status_of(file);
  return concat(getpid(), " ", file.get(), " ", status.st_dev, " ", status.st_ino);
}

void open_other(Descriptor& file, const std::string& handle, size_t bytes) {
  std::istringstream text(handle);
  int64_t pid = 0, number = 0;
  decltype(stat::st_dev) device = 0;
  decltype(stat::st_ino) inode = 0;
  EPL_CHECK(text >> pid >> number >> device >> inode,
            concat("the first member handed over \"", handle, "\" in place of shared memory"));
  const std::string path = concat("/proc/", pid, "/fd/", number);
  file = Descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC));
  require(bool(file), "open the shared memory of process " + std::to_string(pid) + ", " + path);
  const struct stat status = status_of(file);
  EPL_CHECK(status.st_dev == device && status.st_ino == inode &&
                status.st_size == static_cast<off_t>(bytes),
            concat(path,
                   " is not the shared memory of the first member: process numbers mean "
                   "other processes here"));
}

// Tells the others how it went. Throws where it went wrong for anyone.
void agree(const std::string& communicator, const std::string& error, const Exchange& exchange) {
  const std::vector<std::string> errors = exchange(error);
  for (size_t member = 0; member < errors.size(); ++member) {
    EPL_CHECK(errors[member].empty(),
              concat("the members of communicator \"", communicator,
                     "\" cannot share memory; member ", member, ": ", errors[member]),
              "", kTry);
  }
}

}  // namespace

Segment::Segment(const std::string& communicator, int rank, size_t bytes, const Exchange& exchange)
    : bytes_(bytes) {
  Descriptor file;
  std::string handle, error;
  try {
    if (rank == 0) handle = create(file, bytes);
  } catch (const Error& failure) {
    error = failure.what();
  }
  handle = exchange(handle).at(0);
  try {
    if (rank != 0 && !handle.empty()) open_other(file, handle, bytes);
    if (file) {
      void* place = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
      require(place != MAP_FAILED, "map shared memory");
      data_ = static_cast<char*>(place);
      mapped_by_all += static_cast<int64_t>(bytes);
    }
  } catch (const Error& failure) {
    error = failure.what();
  }
  try {
    agree(communicator, error, exchange);  // all have mapped it: its descriptor may be closed
  } catch (...) {
    unmap();
    throw;
  }
}

Segment::~Segment() { unmap(); }

void Segment::unmap() {
  if (data_ == nullptr) return;
  munmap(data_, bytes_);
  mapped_by_all -= static_cast<int64_t>(bytes_);
}

int64_t Segment::mapped() { return mapped_by_all; }

}  // namespace epl::comm

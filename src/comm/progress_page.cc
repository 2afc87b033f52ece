#include "comm/progress_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>

#include "base/check.h"

namespace epl::comm {
namespace {

constexpr size_t kBytes = 4096;
static_assert(sizeof(Progress) <= kBytes, "progress fits into a page");

}  // namespace

ProgressPage ProgressPage::make() {
  ProgressPage page;
  page.memory_ = Descriptor(memfd_create("epl progress", MFD_CLOEXEC));
  EPL_CHECK(page.memory_ && ftruncate(page.memory_.get(), kBytes) == 0,
            "there is no memory for a page that other processes can read (memfd_create)");
  void* place = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, page.memory_.get(), 0);
  EPL_CHECK(place != MAP_FAILED, "a page that other processes can read cannot be mapped (mmap)");
  page.progress_ = new (place) Progress;
  return page;
}

ProgressPage ProgressPage::open(int64_t pid, int descriptor) {
  ProgressPage page;
  const std::string path = concat("/proc/", pid, "/fd/", descriptor);
  const Descriptor memory(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!memory) return page;
  void* place = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, memory.get(), 0);
  if (place != MAP_FAILED) page.progress_ = static_cast<Progress*>(place);
  return page;
}

ProgressPage::ProgressPage(ProgressPage&& other) noexcept
    : memory_(std::move(other.memory_)), progress_(std::exchange(other.progress_, nullptr)) {}

ProgressPage& ProgressPage::operator=(ProgressPage&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(progress_, other.progress_);
  return *this;
}

ProgressPage::~ProgressPage() {
  if (progress_ != nullptr) munmap(progress_, kBytes);
}

}  // namespace epl::comm

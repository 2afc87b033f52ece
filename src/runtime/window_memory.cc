#include "runtime/window_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/text.h"

namespace epl {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = 2 << 20;

int64_t rounded_to(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

[[noreturn]] void refuse(int64_t bytes, int error) {
  throw Error(concat("no window of ", human_bytes(bytes), ": ", std::strerror(error)),
              "offload.level", "fewer bytes of parameters in one tensor, or a machine with more");
}

}  // namespace

int64_t WindowMemory::rounded(int64_t bytes) { return rounded_to(bytes, kPage); }

// Large ones begin with a huge page, so that the system can give such: fresh pages of the usual
// size cost more than what is copied into them.
std::shared_ptr<WindowMemory> WindowMemory::reserve(int64_t bytes) {
  const int64_t whole = rounded(bytes);
  const bool large = whole >= kHugePage;
  const auto mapped_bytes = static_cast<size_t>(large ? whole + kHugePage : whole);
  void* const mapped = mmap(nullptr, mapped_bytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, /*offset=*/0);
  if (mapped == MAP_FAILED) refuse(bytes, errno);
  auto address = reinterpret_cast<uintptr_t>(mapped);
  if (large) address = static_cast<uintptr_t>(rounded_to(static_cast<int64_t>(address), kHugePage));
  std::shared_ptr<WindowMemory> made(
      new WindowMemory(mapped, mapped_bytes, reinterpret_cast<char*>(address), bytes));
  made->wish_for_huge_pages();
  return made;
}

// The system may not have them.
void WindowMemory::wish_for_huge_pages() const {
  if (rounded(bytes_) >= kHugePage) madvise(begin_, whole(), MADV_HUGEPAGE);
}

WindowMemory::WindowMemory(void* mapped, size_t mapped_bytes, char* begin, int64_t bytes)
    : mapped_(mapped), mapped_bytes_(mapped_bytes), begin_(begin), bytes_(bytes) {}

WindowMemory::~WindowMemory() { munmap(mapped_, mapped_bytes_); }

void WindowMemory::open() {
  if (mprotect(begin_, whole(), PROT_READ | PROT_WRITE) != 0) refuse(bytes_, errno);
}

// Out of reach first. Neither of these can fail for a range that is mapped and of whole pages; were
// it so, nothing would be lost but memory.
void WindowMemory::close() {
  mprotect(begin_, whole(), PROT_NONE);
  madvise(begin_, whole(), MADV_DONTNEED);
}

c10::Storage WindowMemory::storage() {
  using Held = std::shared_ptr<WindowMemory>;
  c10::DataPtr memory(
      begin_, new Held(shared_from_this()), [](void* held) { delete static_cast<Held*>(held); },
      c10::kCPU);
  return c10::Storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(bytes_),
                      std::move(memory), /*allocator=*/nullptr, /*resizable=*/false);
}

}  // namespace epl

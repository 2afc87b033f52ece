#include "runtime/spread_tensor.h"

#include <ATen/Functions.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"

namespace epl {
namespace {

constexpr size_t kHugePage = 2 << 20;

size_t page_size() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t up_to(size_t bytes, size_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

[[noreturn]] void refuse_for_memory(int64_t bytes, int error) {
  throw Error(concat("no memory for a parameter of ", bytes, " bytes: ", std::strerror(error)),
              "zero.level = \"v2\"", "fewer devices on this machine, or more machines");
}

}  // namespace

void NearAccount::add(int64_t bytes) {
  const int64_t now = near_ += bytes;
  int64_t most = most_;
  while (now > most && !most_.compare_exchange_weak(most, now)) {
  }
}

// Pages of a private mapping. Large ones lie at huge pages, which come six times as fast: a step
// brings them anew each time.
class SpreadTensor::Mapping {
 public:
  explicit Mapping(int64_t bytes) : bytes_(up_to(static_cast<size_t>(bytes), page_size())) {
    const size_t aligned = bytes_ < kHugePage ? page_size() : kHugePage;
    mapped_bytes_ = bytes_ + aligned;
    mapped_ = static_cast<char*>(mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (mapped_ == MAP_FAILED) refuse_for_memory(bytes, errno);
    begin_ = reinterpret_cast<char*>(up_to(reinterpret_cast<size_t>(mapped_), aligned));
    if (aligned == kHugePage) madvise(begin_, bytes_, MADV_HUGEPAGE);  // or small ones
  }
  ~Mapping() { munmap(mapped_, mapped_bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  char* begin() const { return begin_; }

  // The whole pages that hold no byte of [begin, end).
  using Pages = std::vector<std::pair<char*, size_t>>;
  Pages pages_besides(int64_t begin, int64_t end) const {
    Pages pages;
    const size_t before = static_cast<size_t>(begin) / page_size() * page_size();
    const size_t behind = begin == end ? before : up_to(static_cast<size_t>(end), page_size());
    if (before > 0) pages.emplace_back(begin_, before);
    if (behind < bytes_) pages.emplace_back(begin_ + behind, bytes_ - behind);
    return pages;
  }

  static void bring(const Pages& pages) {
    for (const auto& [begin, bytes] : pages) {
      if (mprotect(begin, bytes, PROT_READ | PROT_WRITE) != 0) {
        refuse_for_memory(static_cast<int64_t>(bytes), errno);
      }
#ifdef MADV_POPULATE_WRITE
      // Where the system does not know this, pages come one by one as they are written.
      const int failed = madvise(begin, bytes, MADV_POPULATE_WRITE);
      if (failed != 0 && errno == ENOMEM) refuse_for_memory(static_cast<int64_t>(bytes), errno);
#endif
    }
  }

  // Out of reach first: what could not be put there stays as it is.
  static void drop(const Pages& pages) {
    for (const auto& [begin, bytes] : pages) {
      if (mprotect(begin, bytes, PROT_NONE) == 0) madvise(begin, bytes, MADV_DONTNEED);
    }
  }

  static void release(void* mapping) { delete static_cast<std::shared_ptr<Mapping>*>(mapping); }

 private:
  const size_t bytes_;
  size_t mapped_bytes_ = 0;
  char* mapped_ = nullptr;
  char* begin_ = nullptr;
};

SpreadTensor::SpreadTensor(const at::Tensor& tensor, NearAccount& account) : account_(account) {
  take(tensor);
}

SpreadTensor::~SpreadTensor() {
  if (near_) account_.add(-bytes_of_others_);
}

void SpreadTensor::take(const at::Tensor& tensor) {
  EPL_ASSERT(near_, "a tensor in whose place another one comes is whole");
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  EPL_ASSERT(tensor.is_non_overlapping_and_dense() && tensor.storage_offset() == 0 &&
                 static_cast<int64_t>(tensor.storage().nbytes()) == bytes,
             "a tensor that is spread fills its storage");
  auto mapping = std::make_shared<Mapping>(bytes);
  std::memcpy(mapping->begin(), tensor.data_ptr(), static_cast<size_t>(bytes));
  const at::Tensor own = at::from_blob(
      mapping->begin(), tensor.sizes(), tensor.strides(), [mapping](void* /*data*/) {},
      tensor.options().requires_grad(false));
  mapping_ = std::move(mapping);
  if (tensor_.defined()) {
    tensor_.unsafeGetTensorImpl()->shallow_copy_from(own.getIntrusivePtr());
  } else {
    tensor_ = own;
  }
  keep({0, tensor_.numel()});
}

c10::DataPtr SpreadTensor::memory() const {
  return {mapping_->begin(), new std::shared_ptr<Mapping>(mapping_), &Mapping::release, c10::kCPU};
}

bool SpreadTensor::is_memory_of(const at::Tensor& tensor) const {
  return tensor.has_storage() && tensor.storage().data() == mapping_->begin() &&
         tensor.storage_offset() == 0 && tensor.sizes() == tensor_.sizes() &&
         tensor.strides() == tensor_.strides() && tensor.scalar_type() == tensor_.scalar_type();
}

void SpreadTensor::keep(const Piece& elements) {
  if (kept_ == elements) return;
  EPL_ASSERT(near_, "a worker keeps another range only of what it has whole");
  const int64_t others =
      (tensor_.numel() - elements.length) * static_cast<int64_t>(tensor_.element_size());
  account_.add(others - std::exchange(bytes_of_others_, others));
  kept_ = elements;
}

void SpreadTensor::bring() {
  if (near_) return;
  Mapping::bring(mapping_->pages_besides(first_byte(), first_byte() + kept_bytes()));
  near_ = true;
  account_.add(bytes_of_others_);
}

void SpreadTensor::drop() {
  if (!near_) return;
  near_ = false;
  Mapping::drop(mapping_->pages_besides(first_byte(), first_byte() + kept_bytes()));
  account_.add(-bytes_of_others_);
}

}  // namespace epl

#include "runtime/pages.h"

#include <ATen/Functions.h>
#include <c10/util/accumulate.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>

#include "base/check.h"
#include "runtime/device_memory.h"
#include "state/state_map.h"

namespace epl {
namespace {

uintptr_t page_bytes() {
  static const auto bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

int64_t release_range(uintptr_t begin, uintptr_t end) {
  const uintptr_t page = page_bytes();
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = end / page * page;
  if (first >= last) return 0;
  // Where the system keeps them (locked pages), nothing is lost and nothing won.
  const int kept = madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  return kept == 0 ? static_cast<int64_t>(last - first) : 0;
}

// Shared by the tensor that lies there and whoever frees it.
std::shared_ptr<c10::DataPtr> pages_for(int64_t bytes, const char* what) {
  auto memory = std::make_shared<c10::DataPtr>(DeviceMemory::map_pages(bytes));
  EPL_CHECK(*memory, concat("no memory for ", what, " of ", bytes, " bytes"),
            "the parameter update", "more devices to cut parameters over, or smaller layers");
  return memory;
}

}  // namespace

at::Tensor zeros_by_page(const at::Tensor& like) { return zeros_by_page(like, kLeastPagedBytes); }

at::Tensor zeros_by_page(const at::Tensor& like, int64_t least_bytes) {
  const size_t bytes = like.nbytes();
  const bool ordinary = like.device().is_cpu() && like.is_non_overlapping_and_dense();
  if (bytes < static_cast<size_t>(least_bytes) || !ordinary) {
    return at::zeros_like(like, {}, at::MemoryFormat::Preserve);
  }
  auto memory = pages_for(static_cast<int64_t>(bytes), "a state");
  void* const data = memory->get();
  const auto give_back = [memory](void* /*data*/) { memory->clear(); };
  return at::from_blob(data, like.sizes(), like.strides(), give_back, like.options());
}

at::Tensor bytes_by_page(int64_t bytes) {
  auto memory = pages_for(bytes, "sums of gradients");
  const auto give_back = [memory](void* /*data*/) { memory->clear(); };
  return at::from_blob(memory->get(), {bytes}, give_back, at::kByte);
}

int64_t release_pages(const at::Tensor& whole, int64_t dim, int64_t begin, int64_t length) {
  EPL_ASSERT(whole.is_contiguous(), "pages are released of tensors without gaps");
  const auto sizes = whole.sizes();
  const auto at = static_cast<size_t>(dim);
  const int64_t element = static_cast<int64_t>(whole.element_size());
  const int64_t inner = c10::multiply_integers(sizes.slice(at + 1)) * element;
  const int64_t rows = c10::multiply_integers(sizes.slice(0, at));
  const auto base = reinterpret_cast<uintptr_t>(whole.data_ptr());
  DeviceMemory::note_changed_pages();
  int64_t released = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const uintptr_t from = base + static_cast<uintptr_t>((row * sizes[at] + begin) * inner);
    released += release_range(from, from + static_cast<uintptr_t>(length * inner));
  }
  return released;
}

int64_t release_pages_besides(const at::Tensor& whole, int64_t begin, int64_t length) {
  EPL_ASSERT(whole.is_non_overlapping_and_dense(), "pages are released of tensors without gaps");
  const auto base = reinterpret_cast<uintptr_t>(whole.data_ptr());
  const auto at = [&](int64_t element) {
    return base + static_cast<uintptr_t>(element) * whole.element_size();
  };
  DeviceMemory::note_changed_pages();
  return release_range(base, at(begin)) + release_range(at(begin + length), at(whole.numel()));
}

}  // namespace epl

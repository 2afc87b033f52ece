#include "capture/contents_hash.h"

#include <algorithm>
#include <cstring>

#include "capture/ghost.h"

namespace epl {

// FNV-1a by words: as fast as memory is read.
uint64_t hash_of_contents(const at::Tensor& tensor) {
  const bool has_memory = tensor.defined() && tensor.layout() == c10::kStrided &&
                          tensor.device().is_cpu() && tensor.is_non_overlapping_and_dense() &&
                          !is_ghost(tensor);
  if (!has_memory) return 0;
  const auto* bytes = static_cast<const char*>(tensor.data_ptr());
  const size_t count = tensor.nbytes();
  uint64_t hash = 14695981039346656037ULL;
  for (size_t i = 0; i < count; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, std::min(sizeof word, count - i));
    hash = (hash ^ word) * 1099511628211ULL;
  }
  return hash;
}

}  // namespace epl

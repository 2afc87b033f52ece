#include "batch/batch_types.h"

#include <ATen/ExpandUtils.h>

namespace epl {
namespace {

// How its copy lies in memory: rand_like() fills it in that order.
void append_order(const at::Tensor& tensor, std::vector<int64_t>& key) {
  const bool ordinary = tensor.layout() != c10::kStrided || tensor.is_contiguous();
  key.push_back(ordinary ? 0 : 1);
  if (ordinary) return;
  const auto strides = at::infer_dense_strides(tensor.sizes(), tensor.strides());
  for (size_t dim = 0; dim < strides.size(); ++dim) {
    key.push_back(tensor.size(static_cast<int64_t>(dim)) == 1 ? 0 : strides[dim]);
  }
}

}  // namespace

void append_types(const Batch& batch, std::vector<int64_t>& key) {
  for (const auto& tensor : batch) {
    key.push_back(static_cast<int64_t>(tensor.scalar_type()));
    key.push_back(static_cast<int64_t>(tensor.requires_grad()));
    key.push_back(tensor.dim());
    key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
    append_order(tensor, key);
  }
}

}  // namespace epl

#include "layout/tensor_type.h"

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "layout/dtype_names.h"

namespace epl {

int64_t TensorType::numel() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

int64_t TensorType::item_bytes() const { return static_cast<int64_t>(c10::elementSize(dtype)); }

int64_t TensorType::extent_bytes() const {
  if (numel() == 0) return 0;
  int64_t last = offset;
  for (size_t i = 0; i < sizes.size(); ++i) last += (sizes[i] - 1) * strides[i];
  return (last + 1) * item_bytes();
}

bool TensorType::dense() const {
  if (layout != c10::kStrided) return false;
  std::vector<size_t> order;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return strides[a] < strides[b]; });
  int64_t expected = 1;
  for (size_t i : order) {
    if (strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

bool TensorType::same_place(const TensorType& other) const {
  return dtype == other.dtype && layout == other.layout && offset == other.offset &&
         sizes == other.sizes && strides == other.strides;
}

TensorType type_of(const at::Tensor& tensor) {
  TensorType type;
  type.dtype = tensor.scalar_type();
  type.layout = tensor.layout();
  type.sizes = tensor.sizes().vec();
  if (type.layout == c10::kStrided) {
    type.strides = tensor.strides().vec();
    type.offset = tensor.storage_offset();
  }
  return type;
}

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t next = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = next;
    next *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

std::string print_type(const TensorType& type) {
  std::string text = dtype_name(type.dtype);
  if (type.layout == c10::kSparse) text = "sparse " + text;
  text += "[" + join(type.sizes, ",") + "]";
  if (type.layout == c10::kStrided && type.strides != contiguous_strides(type.sizes)) {
    text += "{" + join(type.strides, ",") + "}";
  }
  if (type.offset != 0) text += concat("+", type.offset);
  return text;
}

}  // namespace epl

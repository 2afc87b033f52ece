#include "layout/tensor_type.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "layout/dtype_names.h"

namespace epl {
namespace {

// Layouts other than kStrided, which has no name in the text.
struct LayoutName {
  c10::Layout layout;
  const char* name;
};

constexpr LayoutName kLayoutNames[] = {
    {c10::Layout::Sparse, "sparse"},        {c10::Layout::SparseCsr, "sparse_csr"},
    {c10::Layout::SparseCsc, "sparse_csc"}, {c10::Layout::SparseBsr, "sparse_bsr"},
    {c10::Layout::SparseBsc, "sparse_bsc"}, {c10::Layout::Mkldnn, "mkldnn"},
};

constexpr int64_t kMostBytes = int64_t{1}
                               << 46;  // of one tensor, so that sums of many can be counted

// Whether numbers of bytes and places can be counted: nobody means what is larger.
bool can_be_counted(const TensorType& type) {
  double elements = static_cast<double>(type.item_bytes());
  double extent = std::abs(static_cast<double>(type.offset));
  for (size_t i = 0; i < type.sizes.size(); ++i) {
    const auto size = static_cast<double>(type.sizes[i]);
    elements *= std::max(size, 1.0);
    if (!type.strides.empty()) extent += size * std::abs(static_cast<double>(type.strides[i]));
  }
  return elements <= kMostBytes && extent <= kMostBytes;
}

}  // namespace

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
  for (const auto& row : kLayoutNames) {
    if (row.layout == type.layout) text = concat(row.name, " ", text);
  }
  text += "[" + join(type.sizes, ",") + "]";
  if (type.layout == c10::kStrided && type.strides != contiguous_strides(type.sizes)) {
    text += "{" + join(type.strides, ",") + "}";
  }
  if (type.offset != 0) text += concat("+", type.offset);
  return text;
}

TensorType parse_type(TextLine& line) {
  TensorType type;
  std::string word = line.word();
  for (const auto& row : kLayoutNames) {
    if (word == row.name) type.layout = row.layout;
  }
  if (type.layout != c10::kStrided) word = line.word();
  const auto dtype = dtype_from_name(word);
  if (!dtype) line.fail("unknown element type '" + word + "'");
  type.dtype = *dtype;
  type.sizes = line.integers("[", "]");
  for (int64_t size : type.sizes) {
    if (size < 0) line.fail(concat("a size of ", size));
  }
  if (type.layout == c10::kStrided) {
    if (!can_be_counted(type)) line.fail("more elements than can be counted");
    type.strides = line.looking_at("{") ? line.integers("{", "}") : contiguous_strides(type.sizes);
    if (type.strides.size() != type.sizes.size()) {
      line.fail(concat(type.strides.size(), " strides for ", type.sizes.size(), " sizes"));
    }
  }
  if (line.take("+")) type.offset = line.integer();
  if (!can_be_counted(type)) line.fail("more elements than can be counted");
  return type;
}

}  // namespace epl

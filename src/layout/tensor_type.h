// What a tensor is and where it lies in its storage, apart from any contents.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "base/text_line.h"

namespace epl {

// How a tensor lies in its storage. Offset and strides count elements.
struct TensorType {
  c10::ScalarType dtype = c10::ScalarType::Float;
  c10::Layout layout = c10::kStrided;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // empty unless layout is kStrided
  int64_t offset = 0;

  int64_t numel() const;
  int64_t item_bytes() const;
  // Bytes from the storage's begin to the end of the last element.
  int64_t extent_bytes() const;
  // Every element has its own place and the places have no gaps.
  bool dense() const;
  bool same_place(const TensorType& other) const;  // all but the storage is equal
};

TensorType type_of(const at::Tensor& tensor);
std::string print_type(const TensorType& type);  // f32[4,8]{1,4}+2
TensorType parse_type(TextLine& line);
std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& sizes);

}  // namespace epl

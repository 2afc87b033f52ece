// Whether memory still holds what it held: a number for the bytes of a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace epl {

// 0 where there is no memory to look at: another device, other layouts, gaps between elements.
uint64_t hash_of_contents(const at::Tensor& tensor);

}  // namespace epl

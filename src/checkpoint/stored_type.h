// The element types that LibTorch and safetensors have in common, by their names in safetensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace epl {

enum class StoredType : uint8_t { kBool, kU8, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64 };

const char* name_of(StoredType type);  // "BF16"
int64_t bytes_of(StoredType type);
std::optional<StoredType> stored_type(const std::string& name);

// The number of elements of a tensor of this shape; none where a size is below 0, or where its
// bytes, whatever its type, are more than fit into an int64_t. 1 for a scalar.
std::optional<int64_t> element_count(const std::vector<int64_t>& shape);

std::string print_shape(const std::vector<int64_t>& shape);  // "[2, 3]"

}  // namespace epl

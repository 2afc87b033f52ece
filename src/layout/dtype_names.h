// Short names of element types: f32, bf16, i64, b8, ...
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

namespace epl {

std::string dtype_name(c10::ScalarType dtype);
std::optional<c10::ScalarType> dtype_from_name(const std::string& name);

}  // namespace epl

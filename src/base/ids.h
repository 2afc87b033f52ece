// Numbers that name things of a Graph. They index its tables and never change within a Graph.
#pragma once

#include <cstdint>

namespace epl {

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;  // an undefined tensor

}  // namespace epl

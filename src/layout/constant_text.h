// Constants as the text forms of Graph and Plan write them: 1, 0.5, true, [1, 2], none.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>

namespace epl {

std::string print_constant(const c10::IValue& value);
std::string quoted(const std::string& text);  // "with \"escapes\"", on one line

}  // namespace epl

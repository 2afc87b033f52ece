// Constants as the text forms of Graph and Plan write them: 1, 0.5, true, [1, 2], none.
//
// A text holds no generator's state: where it says "generator" the default one is meant.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <string>

#include "base/text_line.h"

namespace epl {

std::string print_constant(const c10::IValue& value);
// `element`: what a list is declared to hold; null where nothing is declared.
c10::IValue parse_constant(TextLine& line, const c10::TypePtr& element);

std::string quoted(const std::string& text);  // "with \"escapes\"", on one line
// As it is where TextLine::word() reads it, else quoted.
std::string word_or_quoted(const std::string& text);

}  // namespace epl

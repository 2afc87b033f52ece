// Operators and their arguments where text forms of Graph and Plan are read.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>

#include <string>

#include "base/text_line.h"

namespace epl {

// "aten::add.Tensor", which stands in the line; throws epl::Error where LibTorch has none.
c10::OperatorHandle find_operator(const TextLine& line, const std::string& name);

// How an argument of that declaration is written.
struct ArgumentForm {
  bool is_tensor_list = false;
  c10::TypePtr element;  // of a list, else null
};
ArgumentForm form_of(const c10::Argument& argument);

}  // namespace epl

// Operators of EPL's own, registered with LibTorch.
#pragma once

#include <torch/library.h>

#include <string>

#include "base/text.h"

namespace epl {

// An operator that makes one tensor, and its overload that writes into a given one.
inline void define_with_out(torch::Library& library, const std::string& name,
                            const std::string& arguments) {
  library.def(concat(name, "(", arguments, ") -> Tensor").c_str());
  library.def(concat(name, ".out(", arguments, ", *, Tensor(a!) out) -> Tensor(a!)").c_str());
}

}  // namespace epl

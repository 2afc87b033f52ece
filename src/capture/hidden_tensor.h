// A tensor of the program's whose memory must not be used for a while: workers keep parts of it
// (zero.level = "v2"), and what is missing here would be read as whatever lies there.
//
//   const at::Tensor shown = hide(weight, "layers.0.weight");
//   weight.sum();          // throws an epl::Error that names the parameter and what to call
//   weight.sizes();        // may still be asked
//   show(weight, shown);   // as it was
//
// The program's own object is changed, so that all who hold it see the same. Every operator that is
// given it throws, and so does data_ptr() and whatever else asks for its storage. What shares its
// storage is not hidden: whoever hides sees to it that there is nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace epl {

// Gives what show() needs: a tensor with the same memory. Not of a tensor that is hidden already.
at::Tensor hide(const at::Tensor& tensor, const std::string& name);
void show(const at::Tensor& tensor, const at::Tensor& shown);

bool is_hidden(const at::Tensor& tensor);

}  // namespace epl

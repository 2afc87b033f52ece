// What differs between the releases of LibTorch that EPL builds with: 1.13, 2.6 and 2.14. Elsewhere
// only tests ask for the version, where an expectation is that of LibTorch itself.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <torch/version.h>

#include <sstream>
#include <string>

#define EPL_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) ||      \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace epl {

// The key of a parameter in torch::optim::Optimizer::state(): its address, once as text.
#if EPL_TORCH_AT_LEAST(2, 1)
using StateKey = void*;
inline StateKey state_key(const at::Tensor& parameter) { return parameter.unsafeGetTensorImpl(); }
#else
using StateKey = std::string;
inline StateKey state_key(const at::Tensor& parameter) {
  std::ostringstream text;
  text << parameter.unsafeGetTensorImpl();
  return text.str();
}
#endif

// Whether Optimizer::zero_grad() fills gradients with zeros, on which momentum and decay go on;
// since 2.0 it removes them, and a parameter without a gradient rests.
constexpr bool kZeroGradLeavesZeros = !EPL_TORCH_AT_LEAST(2, 0);

#if EPL_TORCH_AT_LEAST(2, 4)
inline bool is_cpu_autocast() { return at::autocast::is_autocast_enabled(at::kCPU); }
inline at::ScalarType cpu_autocast_dtype() { return at::autocast::get_autocast_dtype(at::kCPU); }
#else
inline bool is_cpu_autocast() { return at::autocast::is_cpu_enabled(); }
inline at::ScalarType cpu_autocast_dtype() { return at::autocast::get_autocast_cpu_dtype(); }
#endif

// LibTorch 1 takes a transposed convolution in bfloat16 for another one.
constexpr bool kTransposesInLower = EPL_TORCH_AT_LEAST(2, 0);

}  // namespace epl

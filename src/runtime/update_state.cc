#include "runtime/update_state.h"

#include <ATen/ATen.h>

#include "base/check.h"
#include "runtime/pages.h"

namespace epl {
namespace {

bool is_state_of(const at::Tensor& parameter, const at::Tensor& state) {
  return state.defined() && is_plain(state) && state.dtype() == parameter.dtype() &&
         lies_like(parameter, state);
}

// As LibTorch makes it for a parameter's first gradient.
std::unique_ptr<torch::optim::OptimizerParamState> zero_state(
    const OptimizerRow& row, const torch::optim::OptimizerOptions& options,
    const at::Tensor& parameter) {
  auto state = row.make_state();
  for (const StateTensor& each : row.tensors) {
    if (each.exists(options)) each.in(*state) = zeros_by_page(parameter);
  }
  return state;
}

}  // namespace

bool is_plain(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kAutograd{c10::DispatchKey::ADInplaceOrView,
                                          c10::DispatchKey::AutogradCPU,
                                          c10::DispatchKey::AutocastCPU};
  constexpr c10::DispatchKeySet kStorage{c10::DispatchKey::CPU};
  return (tensor.key_set() | kAutograd) == (kStorage | kAutograd);
}

bool lies_like(const at::Tensor& tensor, const at::Tensor& other) {
  return other.sizes() == tensor.sizes() &&
         ((other.is_contiguous() && tensor.is_contiguous()) || other.strides() == tensor.strides());
}

bool prepare_state(const OptimizerRow& row, const torch::optim::OptimizerOptions& options,
                   OptimizerStates& states, const StateKey& key, const at::Tensor& parameter,
                   KernelState& prepared) {
  EPL_ASSERT(row.tensors.size() <= prepared.arrays.size(), "a row with too many tensors");
  if (!row.keeps_state(options)) return true;
  auto found = states.find(key);
  prepared.fresh = found == states.end() || found->second == nullptr;
  if (prepared.fresh) {
    if (row.begins == StateBegins::kWithOptimizer) return false;  // LibTorch complains of it
    states[key] = zero_state(row, options, parameter);
    found = states.find(key);
  }
  torch::optim::OptimizerParamState& state = *found->second;
  for (size_t i = 0; i < row.tensors.size(); ++i) {
    if (!row.tensors[i].exists(options)) continue;
    const at::Tensor& tensor = row.tensors[i].in(state);
    if (!is_state_of(parameter, tensor)) return false;
    prepared.arrays[i] = tensor.data_ptr();
  }
  if (row.step != nullptr) prepared.step = ++row.step(state);
  return true;
}

}  // namespace epl

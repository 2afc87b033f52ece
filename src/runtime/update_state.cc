#include "runtime/update_state.h"

#include <ATen/ATen.h>

#include <utility>

#include "base/check.h"
#include "runtime/pages.h"
#include "state/state_map.h"

namespace epl {
namespace {

bool is_state_of(const at::Tensor& parameter, const at::Tensor& state) {
  return state.defined() && is_plain(state) && state.dtype() == parameter.dtype() &&
         lies_like(parameter, state);
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

RuleOptions rule_options(const OptimizerRow& row, const OptionValues& values) {
  RuleOptions options;
  EPL_ASSERT(row.tensors.size() <= options.has.size(), "a row with too many tensors");
  options.values = values;
  options.keeps_state = row.keeps_state(values);
  for (size_t i = 0; i < row.tensors.size(); ++i) options.has[i] = row.tensors[i].exists(values);
  return options;
}

bool prepare_state(ModelOptimizer& optimizer, const StateOf& which, const RuleOptions& options,
                   const at::Tensor& parameter, KernelState& prepared,
                   const MakeStateZeros& make_zeros) {
  if (!options.keeps_state) return true;
  const size_t number = which.number;
  const bool shared = which.home == StateHome::kShared;
  if (shared && optimizer.state(number).exists) optimizer.set_partial(number, true);
  ParameterState state = optimizer.state(number);
  prepared.fresh = !state.exists;
  if (prepared.fresh) {
    if (optimizer.row()->begins == StateBegins::kWithOptimizer) return false;  // it complains
    const int64_t least = shared ? kLeastSharedBytes : kLeastPagedBytes;
    std::array<at::Tensor, kMostStateTensors> zeros;
    for (size_t i = 0; i < zeros.size(); ++i) {
      if (!options.has[i]) continue;
      zeros[i] = make_zeros ? make_zeros(parameter) : zeros_by_page(parameter, least);
    }
    optimizer.make_state(number);
    if (shared) optimizer.set_partial(number, true);
    state = optimizer.state(number);
    for (size_t i = 0; i < state.tensors.size(); ++i) {
      if (options.has[i]) *state.tensors[i] = std::move(zeros[i]);
    }
  }
  for (size_t i = 0; i < state.tensors.size(); ++i) {
    if (!options.has[i]) continue;
    const at::Tensor& tensor = *state.tensors[i];
    if (!is_state_of(parameter, tensor)) return false;
    prepared.arrays[i] = tensor.data_ptr();
  }
  if (state.step != nullptr) prepared.step = ++*state.step;
  return true;
}

}  // namespace epl

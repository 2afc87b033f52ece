#include "runtime/clip.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace epl {

ClipOptions checked(const ClipOptions& asked) {
  EPL_CHECK(asked.norm >= 0 && std::isfinite(asked.norm),
            concat("cannot clip gradients to a norm of ", asked.norm),
            "TrainerOptions::clip_grad_norm", "a positive number, or 0 for no clipping");
  EPL_CHECK(asked.value >= 0 && std::isfinite(asked.value),
            concat("cannot clip gradients to a value of ", asked.value),
            "TrainerOptions::clip_grad_value", "a positive number, or 0 for no clipping");
  EPL_CHECK(asked.norm_type > 0, concat("there is no norm of type ", asked.norm_type),
            "TrainerOptions::clip_norm_type", "2, 1 or infinity");
  return asked;
}

namespace {

// Of the gradients without the loss scale: squares of scaled ones may leave the range of float32.
at::Tensor total_norm(const std::vector<at::Tensor>& gradients, double type,
                      double loss_scale = 1) {
  std::vector<at::Tensor> norms;
  const bool largest = type == std::numeric_limits<double>::infinity();
  for (const auto& gradient : gradients) {
    const at::Tensor meant = loss_scale == 1 ? gradient : gradient.mul(1 / loss_scale);
    norms.push_back(largest ? meant.abs().max() : meant.norm(type));
  }
  if (norms.size() == 1) return norms[0];
  return largest ? at::max(at::stack(norms)) : at::stack(norms).norm(type);
}

// An infinite norm would make them 0, which is finite: the step would count as a good one.
void spoil(const std::vector<at::Tensor>& gradients) {
  for (const auto& gradient : gradients) {
    at::Tensor(gradient).mul_(std::numeric_limits<double>::quiet_NaN());
  }
}

}  // namespace

ClipOptions ClipOptions::norm_alone() const {
  ClipOptions asked = *this;
  if (norm > 0) asked.norm = std::numeric_limits<double>::infinity();
  asked.value = 0;
  return asked;
}

double clip_gradients(const std::vector<at::Tensor>& gradients, const ClipOptions& options,
                      double scale, double loss_scale) {
  double norm = 0;
  if (options.norm > 0 && !gradients.empty()) {
    const at::Tensor total = total_norm(gradients, options.norm_type, loss_scale) * scale;
    norm = total.item<double>();
    if (std::isinf(options.norm)) return norm;
    if (loss_scale != 1 && !std::isfinite(norm)) {
      spoil(gradients);
      return norm;
    }
    const at::Tensor factor = at::clamp_max(options.norm / (total + 1e-6), 1.0);
    for (const auto& gradient : gradients) at::Tensor(gradient).mul_(factor);
  }
  if (options.value > 0) {
    const double bound = options.value * loss_scale / scale;
    for (const auto& gradient : gradients) at::Tensor(gradient).clamp_(-bound, bound);
  }
  return norm;
}

double clip_gradients_of_workers(const std::vector<at::Tensor>& gradients,
                                 const std::vector<bool>& counts, const ClipOptions& options,
                                 Communicator& workers) {
  double norm = 0;
  if (options.norm > 0) {
    std::vector<at::Tensor> counted;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (counts[i]) counted.push_back(gradients[i]);
    }
    const double type = options.norm_type;
    const bool largest = type == std::numeric_limits<double>::infinity();
    const double own = counted.empty() ? 0 : total_norm(counted, type).item<double>();
    const at::Tensor total = at::full({1}, largest ? own : std::pow(own, type), at::kDouble);
    workers.all_reduce({total}, largest ? ReduceOp::kMax : ReduceOp::kSum);
    norm = largest ? total.item<double>() : std::pow(total.item<double>(), 1 / type);
    if (std::isinf(options.norm)) return norm;
    // A norm that is no number makes all gradients such, as LibTorch's clamp does.
    const double wanted = options.norm / (norm + 1e-6);
    const double factor = wanted > 1 ? 1 : wanted;
    for (const auto& gradient : gradients) at::Tensor(gradient).mul_(factor);
  }
  ClipOptions by_value = options;
  by_value.norm = 0;
  clip_gradients(gradients, by_value);
  return norm;
}

}  // namespace epl

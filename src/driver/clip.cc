#include "driver/clip.h"

#include <cmath>
#include <limits>

#include "base/check.h"

namespace epl {
namespace {

at::Tensor total_norm(const std::vector<at::Tensor>& gradients, double type) {
  std::vector<at::Tensor> norms;
  const bool largest = type == std::numeric_limits<double>::infinity();
  for (const auto& gradient : gradients) {
    norms.push_back(largest ? gradient.abs().max() : gradient.norm(type));
  }
  if (norms.size() == 1) return norms[0];
  return largest ? at::max(at::stack(norms)) : at::stack(norms).norm(type);
}

}  // namespace

void check_clipping(const TrainerOptions& options) {
  EPL_CHECK(options.clip_grad_norm >= 0 && std::isfinite(options.clip_grad_norm),
            concat("cannot clip gradients to a norm of ", options.clip_grad_norm),
            "TrainerOptions::clip_grad_norm", "a positive number, or 0 for no clipping");
  EPL_CHECK(options.clip_grad_value >= 0 && std::isfinite(options.clip_grad_value),
            concat("cannot clip gradients to a value of ", options.clip_grad_value),
            "TrainerOptions::clip_grad_value", "a positive number, or 0 for no clipping");
  EPL_CHECK(options.clip_norm_type > 0, concat("there is no norm of type ", options.clip_norm_type),
            "TrainerOptions::clip_norm_type", "2, 1 or infinity");
}

double clip_gradients(const std::vector<at::Tensor>& gradients, const TrainerOptions& options,
                      double scale) {
  double norm = 0;
  if (options.clip_grad_norm > 0 && !gradients.empty()) {
    const at::Tensor total = total_norm(gradients, options.clip_norm_type) * scale;
    norm = total.item<double>();
    if (std::isinf(options.clip_grad_norm)) return norm;
    const at::Tensor factor = at::clamp_max(options.clip_grad_norm / (total + 1e-6), 1.0);
    for (const auto& gradient : gradients) at::Tensor(gradient).mul_(factor);
  }
  if (options.clip_grad_value > 0) {
    const double bound = options.clip_grad_value / scale;
    for (const auto& gradient : gradients) at::Tensor(gradient).clamp_(-bound, bound);
  }
  return norm;
}

double clip_gradients_of_workers(const std::vector<at::Tensor>& gradients,
                                 const std::vector<bool>& counts, const TrainerOptions& options,
                                 Communicator& workers) {
  double norm = 0;
  if (options.clip_grad_norm > 0) {
    std::vector<at::Tensor> counted;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (counts[i]) counted.push_back(gradients[i]);
    }
    const double type = options.clip_norm_type;
    const bool largest = type == std::numeric_limits<double>::infinity();
    const double own = counted.empty() ? 0 : total_norm(counted, type).item<double>();
    const at::Tensor total = at::full({1}, largest ? own : std::pow(own, type), at::kDouble);
    workers.all_reduce({total}, largest ? ReduceOp::kMax : ReduceOp::kSum);
    norm = largest ? total.item<double>() : std::pow(total.item<double>(), 1 / type);
    if (std::isinf(options.clip_grad_norm)) return norm;
    const double factor = std::min(1.0, options.clip_grad_norm / (norm + 1e-6));
    for (const auto& gradient : gradients) at::Tensor(gradient).mul_(factor);
  }
  TrainerOptions by_value = options;
  by_value.clip_grad_norm = 0;
  clip_gradients(gradients, by_value);
  return norm;
}

bool clips(const TrainerOptions& options) {
  return options.clip_grad_norm > 0 || options.clip_grad_value > 0;
}

}  // namespace epl

// Small things that every training program needs.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace examples {

inline int64_t count_parameters(const torch::nn::Module& net) {
  int64_t count = 0;
  for (const torch::Tensor& parameter : net.parameters()) count += parameter.numel();
  return count;
}

// Rises over the first twentieth of the steps, then falls along a half cosine to a tenth.
inline double learning_rate_at(int64_t step, int64_t steps, double peak) {
  const int64_t warmup = std::max<int64_t>(steps / 20, 1);
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const double way = static_cast<double>(step - warmup) /
                     static_cast<double>(std::max<int64_t>(steps - warmup, 1));
  return peak * (0.1 + 0.45 * (1 + std::cos(M_PI * way)));
}

inline void set_learning_rate(torch::optim::Optimizer& optimizer, double rate) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
}

// For AdamW: matrices are drawn towards zero; biases, norms and what else has one dimension are
// not.
inline std::vector<torch::optim::OptimizerParamGroup> adamw_groups(const torch::nn::Module& net,
                                                                   double weight_decay,
                                                                   double eps = 1e-8) {
  std::vector<torch::Tensor> decayed, free;
  for (const torch::Tensor& parameter : net.parameters()) {
    (parameter.dim() > 1 ? decayed : free).push_back(parameter);
  }
  const auto group = [&](std::vector<torch::Tensor> parameters, double decay) {
    return torch::optim::OptimizerParamGroup(
        std::move(parameters), std::make_unique<torch::optim::AdamWOptions>(
                                   torch::optim::AdamWOptions().eps(eps).weight_decay(decay)));
  };
  return {group(std::move(decayed), weight_decay), group(std::move(free), 0)};
}

}  // namespace examples

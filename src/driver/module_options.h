// Numbers among the options of LibTorch's own modules that a step function reads as C++ values: the
// probability of a dropout, the momentum of a batch norm, the smoothing of a loss. A recording
// holds what they were, so a changed one asks for another recording.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/options/loss.h>

#include <cstdint>
#include <variant>
#include <vector>

namespace epl {

class ModuleOptions {
 public:
  // Finds the numbers of the module, if it is of a class that is known; it must outlive this.
  void add(const torch::nn::Module& module);
  // A few instructions for each number: they are compared in every step.
  void append_to(std::vector<int64_t>& key) const;

 private:
  void add_loss(const torch::nn::Module& module);

  using Reduction = torch::nn::MSELossOptions::reduction_t;
  using OfKLDiv = torch::nn::KLDivLossOptions::reduction_t;
  using Number = std::variant<const double*, const int64_t*, const bool*,
                              const c10::optional<double>*, const Reduction*, const OfKLDiv*>;
  std::vector<Number> numbers_;
};

}  // namespace epl

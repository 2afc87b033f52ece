// Numbers among the options of LibTorch's own modules that a step function reads as C++ values: the
// probability of a dropout, the momentum of a batch norm, the smoothing of a loss. A recording
// holds what they were, so a changed one asks for another recording.
#pragma once

#include <torch/expanding_array.h>
#include <torch/nn/module.h>
#include <torch/nn/options/conv.h>
#include <torch/nn/options/loss.h>
#include <torch/nn/options/upsampling.h>

#include <cstdint>
#include <type_traits>
#include <utility>
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
  void add_window(const torch::nn::Module& module);    // convolutions, pools
  void add_resizing(const torch::nn::Module& module);  // what changes sizes without a window

  struct Array {
    const int64_t* begin;
    size_t count;
  };
  template <size_t D>
  void note_array(const torch::ExpandingArray<D>& array) {
    numbers_.emplace_back(Array{array->data(), D});
  }
  template <size_t D>
  void note_array(const torch::ExpandingArrayWithOptionalElem<D>& array) {
    for (const auto& number : *array) numbers_.emplace_back(&number);
  }

  using Reduction = torch::nn::MSELossOptions::reduction_t;
  using OfKLDiv = torch::nn::KLDivLossOptions::reduction_t;
  template <size_t D>
  using Padding = const typename torch::nn::detail::ConvNdOptions<D>::padding_t*;
  template <typename Type>
  using Several = const c10::optional<std::vector<Type>>*;
  using OfUpsample =
      std::decay_t<decltype(std::declval<const torch::nn::UpsampleOptions&>().mode())>;
  using Number =
      std::variant<const double*, const int64_t*, const bool*, const c10::optional<double>*,
                   const c10::optional<int64_t>*, const c10::optional<bool>*, const Reduction*,
                   const OfKLDiv*, const OfUpsample*, Several<int64_t>, Several<double>, Array,
                   Padding<1>, Padding<2>, Padding<3>>;
  std::vector<Number> numbers_;
};

}  // namespace epl

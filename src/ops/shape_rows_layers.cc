// Shape rows of layers and losses, forward and backward.
#include <ATen/Functions.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/ConvUtils.h>

#include "config/libtorch.h"
#include "ops/shape_rows.h"

namespace epl {
namespace shapes {
namespace {

// A convolution is channels-last where one of its operands is.
at::MemoryFormat format_of(const at::Tensor& input, const at::Tensor& weight) {
  const auto of_input = input.suggest_memory_format();
  return of_input == at::MemoryFormat::Contiguous ? weight.suggest_memory_format() : of_input;
}

// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
ShapeResults convolution(ShapeArguments arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor& weight = arguments[1].toTensor();
  const auto dims = static_cast<size_t>(input.dim()) - 2;
  const auto stride = numbers_of(arguments[3], dims);
  const auto padding = numbers_of(arguments[4], dims);
  const auto dilation = numbers_of(arguments[5], dims);
  const auto sizes =
      arguments[6].toBool()
          ? at::native::conv_input_size(input.sizes(), weight.sizes(), padding,
                                        numbers_of(arguments[7], dims), stride, dilation,
                                        arguments[8].toInt())
          : at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
  return {at::empty(sizes, input.options(), format_of(input, weight))};
}

// convolution_backward(grad_output, input, weight, bias_sizes, ..., output_mask)
ShapeResults convolution_backward(ShapeArguments arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  const at::Tensor& weight = arguments[2].toTensor();
  const auto format = format_of(input, weight);
  const int64_t channels = arguments[0].toTensor().size(1);
  return asked_for_by(arguments[10], {dense_as(input, format), dense_as(weight, format),
                                      plain_of(input, {channels})});
}

// Norms of half precision may have parameters of single precision, and then have statistics of it.
at::Tensor statistics_of(const at::Tensor& input, ShapeArguments parameters,
                         at::IntArrayRef sizes) {
  for (const c10::IValue& parameter : parameters) {
    if (!parameter.isTensor() || !parameter.toTensor().defined()) continue;
    return plain_of(parameter.toTensor(), sizes);
  }
  return plain_of(input, sizes);
}

// native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)
ShapeResults batch_norm(ShapeArguments arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor saved =
      statistics_of(input, arguments.slice(1, 4), {arguments[5].toBool() ? input.size(1) : 0});
  return {channels_as(input), saved, at::empty_like(saved)};
}

// native_batch_norm_backward(grad_out, input, ..., output_mask)
ShapeResults batch_norm_backward(ShapeArguments arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  const at::Tensor channels = statistics_of(input, arguments.slice(2, 3), {input.size(1)});
  return asked_for_by(arguments[9], {channels_as(input), channels, at::empty_like(channels)});
}

// native_layer_norm(input, normalized_shape, weight, bias, eps)
ShapeResults layer_norm(ShapeArguments arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  auto statistics = input.sizes().vec();
  std::fill(statistics.end() - static_cast<std::ptrdiff_t>(arguments[1].toIntVector().size()),
            statistics.end(), 1);
  const at::Tensor mean = statistics_of(input, arguments.slice(2, 2), statistics);
  return {plain_as(input), mean, at::empty_like(mean)};
}

// native_layer_norm_backward(grad_out, input, normalized_shape, ..., output_mask)
ShapeResults layer_norm_backward(ShapeArguments arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  const at::Tensor weight = statistics_of(input, arguments.slice(5, 2), arguments[2].toIntVector());
  return asked_for_by(arguments[7], {plain_as(input), weight, at::empty_like(weight)});
}

// embedding(weight, indices, ...)
ShapeResults embedding(ShapeArguments arguments) {
  auto sizes = arguments[1].toTensor().sizes().vec();
  sizes.push_back(arguments[0].toTensor().size(1));
  return {plain_of(arguments[0].toTensor(), sizes)};
}

// embedding_dense_backward(grad_output, indices, num_weights, ...)
ShapeResults embedding_backward(ShapeArguments arguments) {
  const at::Tensor& gradient = arguments[0].toTensor();
  return {plain_of(gradient, {arguments[2].toInt(), gradient.size(-1)})};
}

// native_group_norm(input, weight, bias, N, C, HxW, group, eps)
ShapeResults group_norm(ShapeArguments arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor statistics =
      statistics_of(input, arguments.slice(1, 2), {arguments[3].toInt(), arguments[6].toInt()});
  return {channels_as(input), statistics, at::empty_like(statistics)};
}

// native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)
ShapeResults group_norm_backward(ShapeArguments arguments) {
  const at::Tensor& input = arguments[1].toTensor();
  const at::Tensor channels = statistics_of(input, arguments.slice(4, 1), {arguments[6].toInt()});
  const at::Tensor of_input = EPL_TORCH_AT_LEAST(2, 0) ? channels_as(input) : plain_as(input);
  return asked_for_by(arguments[9], {of_input, channels, at::empty_like(channels)});
}

bool is_reduced(const c10::IValue& reduction) { return reduction.toInt() != at::Reduction::None; }

// binary_cross_entropy(self, target, weight, reduction)
ShapeResults binary_cross_entropy(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  return {is_reduced(arguments[3]) ? plain_of(self, {}) : dense_as(self)};
}

// huber_loss(self, target, reduction, delta)
ShapeResults huber_loss(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& target = arguments[1].toTensor();
  return {is_reduced(arguments[2]) ? plain_of(self, {})
                                   : pointwise_of(self.scalar_type(), {self, target})};
}

// nll_loss2d_forward(self, target, weight, reduction, ignore_index): the loss, the sum of weights.
ShapeResults pixel_class_loss(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& target = arguments[1].toTensor();
  return {is_reduced(arguments[3]) ? plain_of(self, {}) : plain_of(self, target.sizes()),
          plain_of(self, {})};
}

// Whether LibTorch sums rows of bags without noting whose they are.
bool sums_bags_fast(const at::Tensor& weight, const c10::IValue& per_sample, int64_t padding) {
  const c10::ScalarType dtype = weight.scalar_type();
  const bool scaled = per_sample.isTensor() && per_sample.toTensor().defined();
  const bool small = dtype == c10::kHalf || (EPL_TORCH_AT_LEAST(2, 0) && dtype == c10::kBFloat16);
  return (dtype == c10::kFloat || small) && weight.stride(1) == 1 && padding < 0 &&
         (!scaled || per_sample.toTensor().stride(0) == 1);
}

// _embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
// include_last_offset, padding_idx): sums, whose each index is, sizes of bags, largest numbers.
ShapeResults embedding_bag(ShapeArguments arguments) {
  constexpr int64_t kSum = 0;
  constexpr int64_t kMax = 2;
  const at::Tensor& weight = arguments[0].toTensor();
  const at::Tensor& indices = arguments[1].toTensor();
  const at::Tensor& offsets = arguments[2].toTensor();
  const int64_t mode = arguments[4].toInt();
  const int64_t bags = offsets.size(0) - (arguments[7].toBool() ? 1 : 0);
  const bool noted = mode != kSum || !sums_bags_fast(weight, arguments[6], arguments[8].toInt());
  const std::vector<int64_t> largest =
      mode == kMax ? std::vector<int64_t>{bags, weight.size(1)} : std::vector<int64_t>{bags};
  return {plain_of(weight, {bags, weight.size(1)}),
          plain_of(offsets, {noted ? indices.size(0) : 0}), plain_of(offsets, {bags}),
          plain_of(offsets, largest)};
}

// _embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, num_weights,
// ...)
ShapeResults embedding_bag_backward(ShapeArguments arguments) {
  const at::Tensor& gradient = arguments[0].toTensor();
  return {plain_of(gradient, {arguments[5].toInt(), gradient.size(1)})};
}

// _embedding_bag_per_sample_weights_backward(grad, weight, indices, ...)
ShapeResults embedding_bag_weights_backward(ShapeArguments arguments) {
  return {plain_of(arguments[0].toTensor(), {arguments[2].toTensor().size(0)})};
}

}  // namespace
}  // namespace shapes

const ShapeRows& shape_rows_of_layers() {
  using namespace shapes;
  static const auto* const rows = new ShapeRows{
      {"aten::convolution", convolution},
      {"aten::_convolution", convolution},
      {"aten::convolution_backward", convolution_backward},
      {"aten::native_batch_norm", batch_norm},
      {"aten::native_batch_norm_backward", batch_norm_backward},
      {"aten::native_layer_norm", layer_norm},
      {"aten::native_layer_norm_backward", layer_norm_backward},
      {"aten::embedding", embedding},
      {"aten::embedding_dense_backward", embedding_backward},
      {"aten::_embedding_bag", embedding_bag},
      {"aten::_embedding_bag_backward", runs_in_parts},
      {"aten::_embedding_bag_dense_backward", embedding_bag_backward},
      {"aten::_embedding_bag_per_sample_weights_backward", embedding_bag_weights_backward},
      {"aten::native_group_norm", group_norm},
      {"aten::native_group_norm_backward", group_norm_backward},
      {"aten::mse_loss_backward", plain_like_second},
      {"aten::binary_cross_entropy", binary_cross_entropy},
      {"aten::binary_cross_entropy_backward", dense_like_second},
      {"aten::huber_loss", huber_loss},
      {"aten::huber_loss_backward", plain_like_second},
      {"aten::smooth_l1_loss_backward", plain_like_second},
      {"aten::nll_loss2d_forward", pixel_class_loss},
      {"aten::nll_loss2d_backward", dense_like_second},
  };
  return *rows;
}

}  // namespace epl

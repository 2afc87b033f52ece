// Shape rows of pools, padding and sampling of images.
#include <ATen/Functions.h>
#include <ATen/native/Pool.h>

#include "config/libtorch.h"
#include "ops/shape_rows.h"

namespace epl {
namespace shapes {
namespace {

// Which kernels keep channels last is another list with each version.
constexpr bool kPadsKeepChannels = EPL_TORCH_AT_LEAST(2, 0);

std::vector<int64_t> padded(const at::Tensor& self, const std::vector<int64_t>& padding) {
  std::vector<int64_t> sizes = self.sizes().vec();
  for (size_t i = 0; i * 2 < padding.size(); ++i) {
    sizes[sizes.size() - 1 - i] += padding[i * 2] + padding[i * 2 + 1];
  }
  return sizes;
}

}  // namespace

ShapeResults pad2d(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const auto sizes = padded(self, arguments[1].toIntVector());
  const bool keeps = kPadsKeepChannels && self.dim() == 4;
  return {keeps ? channels_as(self, sizes) : plain_of(self, sizes)};
}

namespace {

// reflection_pad2d_backward(grad_output, self, padding)
ShapeResults pad2d_backward(ShapeArguments arguments) {
  return kPadsKeepChannels ? channels_like_second(arguments) : plain_like_second(arguments);
}

// _adaptive_avg_pool2d(self, output_size)
ShapeResults adaptive_pool2d(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const auto sizes = with_last(self, arguments[1].toIntVector());
  return {self.dim() == 4 ? channels_as(self, sizes) : plain_of(self, sizes)};
}

ShapeResults adaptive_pool3d(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  return {plain_of(self, with_last(self, arguments[1].toIntVector()))};
}

// max_pool3d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode)
ShapeResults max_pool3d(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const auto kernel = numbers_of(arguments[1], 3);
  const bool strides_given = !arguments[2].toIntVector().empty();
  const auto stride = strides_given ? numbers_of(arguments[2], 3) : kernel;
  const auto padding = numbers_of(arguments[3], 3);
  const auto dilation = numbers_of(arguments[4], 3);
  std::vector<int64_t> last;
  for (size_t i = 0; i < 3; ++i) {
    last.push_back(at::native::pooling_output_shape<int64_t>(self.size(static_cast<int64_t>(i) - 3),
                                                             kernel[i], padding[i], stride[i],
                                                             dilation[i], arguments[5].toBool()));
  }
  const auto sizes = with_last(self, last);
  return {plain_of(self, sizes), plain_of(c10::kLong, sizes)};
}

// max_unpool2d(self, indices, output_size), and with stride and padding in three dimensions.
ShapeResults max_unpool(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  return {channels_as(self, with_last(self, arguments[2].toIntVector()))};
}

// grid_sampler_2d(input, grid, ...): a place of the image for each place of the grid.
ShapeResults sample_grid(ShapeArguments arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const at::Tensor& grid = arguments[1].toTensor();
  std::vector<int64_t> sizes = {input.size(0), input.size(1)};
  for (int64_t dim = 1; dim + 1 < grid.dim(); ++dim) sizes.push_back(grid.size(dim));
  return {plain_of(input, sizes)};
}

// grid_sampler_2d_backward(grad_output, input, grid, ..., output_mask)
ShapeResults sample_grid_backward(ShapeArguments arguments) {
  const bool of_input = arguments[6].toBoolList().get(0);
  const at::Tensor& input = arguments[1].toTensor();
  return {of_input ? plain_as(input) : at::Tensor(), plain_as(arguments[2].toTensor())};
}

// col2im(self, output_size, kernel_size, dilation, padding, stride)
ShapeResults columns_to_image(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const auto image = arguments[1].toIntVector();
  const auto kernel = numbers_of(arguments[2], 2);
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes.pop_back();
  sizes.back() /= kernel[0] * kernel[1];
  sizes.insert(sizes.end(), image.begin(), image.end());
  return {plain_of(self, sizes)};
}

// im2col(self, kernel_size, dilation, padding, stride)
ShapeResults image_to_columns(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const auto kernel = numbers_of(arguments[1], 2);
  const auto dilation = numbers_of(arguments[2], 2);
  const auto padding = numbers_of(arguments[3], 2);
  const auto stride = numbers_of(arguments[4], 2);
  int64_t places = 1;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t room = self.size(static_cast<int64_t>(i) - 2) + 2 * padding[i];
    places *= (room - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1;
  }
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes.pop_back();
  sizes[sizes.size() - 2] *= kernel[0] * kernel[1];
  sizes.back() = places;
  return {plain_of(self, sizes)};
}

// pixel_shuffle(self, upscale_factor)
ShapeResults pixel_shuffle(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const int64_t factor = arguments[1].toInt();
  return {channels_as(self, with_last(self, {self.size(-3) / (factor * factor),
                                             self.size(-2) * factor, self.size(-1) * factor}))};
}

ShapeResults pixel_unshuffle(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const int64_t factor = arguments[1].toInt();
  return {channels_as(self, with_last(self, {self.size(-3) * factor * factor,
                                             self.size(-2) / factor, self.size(-1) / factor}))};
}

ShapeResults channel_shuffle(ShapeArguments arguments) {
  return {channels_as(arguments[0].toTensor())};
}

}  // namespace
}  // namespace shapes

const ShapeRows& shape_rows_of_images() {
  using namespace shapes;
  static const auto* const rows = new ShapeRows{
      {"aten::_adaptive_avg_pool2d", adaptive_pool2d},
      {"aten::_adaptive_avg_pool2d_backward", channels_like_second},
      {"aten::_adaptive_avg_pool3d", adaptive_pool3d},
      {"aten::_adaptive_avg_pool3d_backward", plain_like_second},
      {"aten::fractional_max_pool3d_backward", plain_like_second},
      {"aten::max_pool3d_with_indices", max_pool3d},
      {"aten::max_pool3d_with_indices_backward", plain_like_second},
      {"aten::max_unpool2d", max_unpool},
      {"aten::max_unpool3d", max_unpool},
      {"aten::reflection_pad2d", pad2d},
      {"aten::reflection_pad2d_backward", pad2d_backward},
      {"aten::replication_pad2d_backward", pad2d_backward},
      {"aten::replication_pad3d_backward", plain_like_second},
      {"aten::grid_sampler_2d", sample_grid},
      {"aten::grid_sampler_3d", sample_grid},
      {"aten::grid_sampler_2d_backward", sample_grid_backward},
      {"aten::grid_sampler_3d_backward", sample_grid_backward},
      {"aten::col2im", columns_to_image},
      {"aten::im2col", image_to_columns},
      {"aten::pixel_shuffle", pixel_shuffle},
      {"aten::pixel_unshuffle", pixel_unshuffle},
      {"aten::native_channel_shuffle", channel_shuffle},
  };
  return *rows;
}

}  // namespace epl

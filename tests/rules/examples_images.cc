// Examples of convolutions, of what works on images, and of normalisations over channels.
#include "tests/rules/examples.h"

namespace epl::testing {
namespace {

c10::List<bool> mask(bool x, bool w, bool b) { return c10::List<bool>({x, w, b}); }

}  // namespace

Examples convolution_examples() {
  Examples examples;
  const auto convolve = [&](const at::Tensor& x, const at::Tensor& weight, const c10::IValue& bias,
                            bool transposed, int64_t groups) {
    const auto all = [&](int64_t n) {
      return std::vector<int64_t>(static_cast<size_t>(x.dim() - 2), n);
    };
    const c10::optional<at::Tensor> bias_tensor =
        bias.isNone() ? c10::nullopt : c10::make_optional(bias.toTensor());
    const at::Tensor y =
        at::convolution(x, weight, bias_tensor, all(1), all(1), all(1), transposed, all(0), groups);
    examples.push_back({"aten::convolution",
                        {x, weight, bias, all(1), all(1), all(1), transposed, all(0), groups}});
    examples.push_back({"aten::_convolution",
                        {x, weight, bias, all(1), all(1), all(1), transposed, all(0), groups, false,
                         false, false, false}});
    examples.push_back({"aten::convolution_backward",
                        {reals(y.sizes()), x, weight, ints({y.size(1)}), all(1), all(1), all(1),
                         transposed, all(0), groups, mask(true, true, true)}});
    examples.push_back({"aten::convolution_backward",
                        {reals(y.sizes()), x, weight, c10::IValue(), all(1), all(1), all(1),
                         transposed, all(0), groups, mask(false, true, false)}});
  };
  const c10::IValue none;
  convolve(reals({3, 4, 5, 5}), reals({6, 4, 3, 3}), reals({6}), false, 1);
  convolve(reals({3, 4, 5, 5}), reals({6, 4, 3, 3}), none, false, 1);
  convolve(reals({3, 4, 7}), reals({5, 4, 3}), reals({5}), false, 1);
  convolve(reals({3, 4, 5, 5}), reals({4, 6, 3, 3}), reals({6}), true, 1);
  convolve(reals({3, 4, 5, 5}), reals({4, 1, 3, 3}), reals({4}), false, 4);
  convolve(reals({3, 4, 5, 5}), reals({8, 1, 3, 3}), none, false, 4);
  convolve(reals({3, 4, 5, 5}), reals({6, 2, 3, 3}), none, false, 2);
  convolve(reals({3, 4, 5, 5}), reals({4, 3, 3, 3}), reals({6}), true, 2);
  return examples;
}

Examples pool_examples() {
  const at::Tensor x = reals({3, 4, 6, 6});
  const at::Tensor volume = reals({3, 4, 4, 4, 4});
  const c10::IValue two = ints({2, 2});
  const c10::IValue none = ints({0, 0});
  const c10::IValue one = ints({1, 1});
  const c10::IValue two3 = ints({2, 2, 2});
  const c10::IValue none3 = ints({0, 0, 0});
  const c10::IValue one3 = ints({1, 1, 1});
  const auto pooled = at::max_pool2d_with_indices(x, {2, 2}, {2, 2});
  const auto pooled3 = at::max_pool3d_with_indices(volume, {2, 2, 2}, {2, 2, 2});
  const auto adapted = at::adaptive_max_pool2d(x, {2, 3});
  const at::Tensor samples = positives({3, 4, 2});
  const at::Tensor samples3 = positives({3, 4, 3});
  return {
      {"aten::max_pool2d_with_indices", {x, two, two}},
      {"aten::max_pool2d_with_indices", {reals({4, 6, 6}), two, two}},
      {"aten::max_pool2d_with_indices_backward",
       {reals({3, 4, 3, 3}), x, two, two, none, one, false, std::get<1>(pooled)}},
      {"aten::max_pool3d_with_indices", {volume, two3, two3}},
      {"aten::max_pool3d_with_indices_backward",
       {reals({3, 4, 2, 2, 2}), volume, two3, two3, none3, one3, false, std::get<1>(pooled3)}},
      {"aten::adaptive_max_pool2d", {x, ints({2, 3})}},
      {"aten::adaptive_max_pool2d_backward", {reals({3, 4, 2, 3}), x, std::get<1>(adapted)}},
      {"aten::avg_pool2d", {x, two, two}},
      {"aten::avg_pool2d_backward",
       {reals({3, 4, 3, 3}), x, two, two, none, false, true, c10::IValue()}},
      {"aten::avg_pool3d", {volume, two3, two3}},
      {"aten::avg_pool3d_backward",
       {reals({3, 4, 2, 2, 2}), volume, two3, two3, none3, false, true, c10::IValue()}},
      {"aten::_adaptive_avg_pool2d", {x, ints({1, 2})}},
      {"aten::_adaptive_avg_pool2d_backward", {reals({3, 4, 1, 2}), x}},
      {"aten::adaptive_max_pool3d", {volume, ints({2, 1, 3})}},
      {"aten::adaptive_max_pool3d_backward",
       {reals({3, 4, 2, 1, 3}), volume, std::get<1>(at::adaptive_max_pool3d(volume, {2, 1, 3}))}},
      {"aten::_adaptive_avg_pool3d", {volume, ints({1, 2, 3})}},
      {"aten::_adaptive_avg_pool3d_backward", {reals({3, 4, 1, 2, 3}), volume}},
      {"aten::max_unpool2d", {std::get<0>(pooled), std::get<1>(pooled), ints({6, 6})}},
      {"aten::max_unpool3d",
       {std::get<0>(pooled3), std::get<1>(pooled3), ints({4, 4, 4}), two3, none3}},
      {"aten::fractional_max_pool2d", {x, two, ints({3, 4}), samples}},
      {"aten::fractional_max_pool2d", {reals({4, 6, 6}), two, ints({3, 4}), positives({1, 4, 2})}},
      {"aten::fractional_max_pool2d_backward",
       {reals({3, 4, 3, 4}), x, two, ints({3, 4}),
        std::get<1>(at::fractional_max_pool2d(x, {2, 2}, {3, 4}, samples))}},
      {"aten::fractional_max_pool3d", {volume, two3, two3, samples3}},
      {"aten::fractional_max_pool3d_backward",
       {reals({3, 4, 2, 2, 2}), volume, two3, two3,
        std::get<1>(at::fractional_max_pool3d(volume, {2, 2, 2}, {2, 2, 2}, samples3))}},
  };
}

Examples resize_examples() {
  Examples examples;
  const std::vector<std::vector<int64_t>> images = {{3, 4, 6}, {3, 4, 6, 5}, {3, 4, 4, 5, 3}};
  // Images of so many places, made twice as large and brought back.
  const auto resize = [&](const std::string& op, size_t places,
                          const std::vector<c10::IValue>& options) {
    const std::vector<int64_t>& small = images[places - 1];
    std::vector<int64_t> large = small;
    for (size_t i = 2; i < large.size(); ++i) large[i] *= 2;
    const std::vector<int64_t> sizes(large.begin() + 2, large.end());
    std::vector<c10::IValue> forward = {reals(small), sizes};
    std::vector<c10::IValue> backward = {reals(large), sizes, small};
    for (auto* arguments : {&forward, &backward}) {
      arguments->insert(arguments->end(), options.begin(), options.end());
    }
    examples.push_back({"aten::" + op, forward});
    examples.push_back({"aten::" + op + "_backward", backward});
  };
  for (const char* op : {"upsample_nearest", "_upsample_nearest_exact"}) {
    for (size_t places : {1, 2, 3}) resize(op + std::to_string(places) + "d", places, {});
  }
  for (bool corners : {false, true}) {
    resize("upsample_linear1d", 1, {corners});
    resize("upsample_bilinear2d", 2, {corners});
    resize("upsample_bicubic2d", 2, {corners});
    resize("_upsample_bilinear2d_aa", 2, {corners});
    resize("_upsample_bicubic2d_aa", 2, {corners});
    resize("upsample_trilinear3d", 3, {corners});
  }
  const auto pad = [&](const std::string& op, size_t places, const std::vector<int64_t>& pads) {
    std::vector<int64_t> padded = images[places - 1];
    for (size_t i = 0; i < pads.size(); ++i) padded[padded.size() - 1 - i / 2] += pads[i];
    const at::Tensor x = reals(images[places - 1]);
    examples.push_back({"aten::" + op, {x, pads}});
    examples.push_back({"aten::" + op + "_backward", {reals(padded), x, pads}});
  };
  for (const char* op : {"reflection_pad", "replication_pad"}) {
    pad(std::string(op) + "1d", 1, {1, 2});
    pad(std::string(op) + "2d", 2, {1, 1, 2, 0});
    pad(std::string(op) + "3d", 3, {1, 1, 2, 0, 0, 1});
  }
  examples.push_back({"aten::reflection_pad1d", {reals({4, 6}), ints({1, 2})}});
  return examples;
}

Examples sampling_examples() {
  const at::Tensor x = reals({3, 4, 6, 5});
  const at::Tensor volume = reals({3, 4, 4, 5, 3});
  const at::Tensor grid = reals({3, 5, 4, 2});
  const at::Tensor grid3 = reals({3, 2, 5, 4, 3});
  const c10::IValue one = ints({1, 1});
  const c10::IValue three = ints({3, 3});
  const c10::IValue none = ints({0, 0});
  const c10::List<bool> both({true, true});
  const c10::List<bool> second({false, true});
  return {
      {"aten::grid_sampler_2d", {x, grid, 0, 0, false}},
      {"aten::grid_sampler_2d", {x, grid, 2, 1, true}},
      {"aten::grid_sampler_2d_backward", {reals({3, 4, 5, 4}), x, grid, 0, 0, false, both}},
      {"aten::grid_sampler_2d_backward", {reals({3, 4, 5, 4}), x, grid, 0, 0, false, second}},
      {"aten::grid_sampler_3d", {volume, grid3, 0, 0, false}},
      {"aten::grid_sampler_3d_backward",
       {reals({3, 4, 2, 5, 4}), volume, grid3, 0, 0, false, both}},
      {"aten::im2col", {x, three, one, none, one}},
      {"aten::im2col", {reals({4, 6, 5}), three, one, none, one}},
      {"aten::col2im", {reals({3, 36, 12}), ints({6, 5}), three, one, none, one}},
      {"aten::col2im", {reals({36, 12}), ints({6, 5}), three, one, none, one}},
      {"aten::pixel_shuffle", {reals({3, 8, 4, 6}), 2}},
      {"aten::pixel_shuffle", {reals({5, 3, 4, 4, 6}), 2}},
      {"aten::pixel_unshuffle", {reals({3, 2, 8, 12}), 2}},
      {"aten::native_channel_shuffle", {reals({3, 6, 4, 5}), 3}},
  };
}

Examples channel_norm_examples() {
  Examples examples;
  const at::Tensor x = reals({3, 6, 2, 5});
  const c10::IValue none;
  const auto group = [&](int64_t groups, const at::Tensor& weight) {
    const auto y = at::native_group_norm(x, weight, weight, 3, 6, 10, groups, 1e-5);
    const c10::IValue given = weight.defined() ? c10::IValue(weight) : none;
    examples.push_back({"aten::native_group_norm", {x, given, given, 3, 6, 10, groups, 1e-5}});
    examples.push_back({"aten::native_group_norm_backward",
                        {reals(x.sizes()), x, std::get<1>(y), std::get<2>(y), given, 3, 6, 10,
                         groups, mask(true, weight.defined(), weight.defined())}});
  };
  for (int64_t groups : {1, 2, 3, 6}) group(groups, reals({6}));
  group(3, at::Tensor());

  const at::Tensor weight = reals({6});
  const at::Tensor mean = reals({6});
  const at::Tensor variance = positives({6});
  const at::Tensor saved = positives({6});
  for (bool training : {true, false}) {
    examples.push_back(
        {"aten::native_batch_norm", {x, weight, reals({6}), mean, variance, training, 0.1, 1e-5}});
    const at::Tensor kept = training ? saved : at::empty({0}, at::kDouble);
    examples.push_back({"aten::native_batch_norm_backward",
                        {reals(x.sizes()), x, weight, mean, variance, kept, kept, training, 1e-5,
                         mask(true, true, true)}});
  }
  examples.push_back(
      {"aten::native_batch_norm", {reals({5, 6}), none, none, none, none, true, 0.1, 1e-5}});
  return examples;
}

}  // namespace epl::testing

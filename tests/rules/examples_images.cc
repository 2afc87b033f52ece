// Examples of convolutions, pooling, and of normalisations over channels.
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
  convolve(reals({3, 4, 5, 5}), reals({6, 2, 3, 3}), none, false, 2);  // stays whole
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
      {"aten::upsample_nearest1d", {reals({3, 4, 6}), ints({12})}},
      {"aten::upsample_nearest1d_backward", {reals({3, 4, 12}), ints({12}), ints({3, 4, 6})}},
      {"aten::upsample_nearest2d", {x, ints({12, 12})}},
      {"aten::upsample_nearest2d_backward",
       {reals({3, 4, 12, 12}), ints({12, 12}), ints({3, 4, 6, 6})}},
      {"aten::upsample_bilinear2d", {x, ints({12, 12}), false}},
      {"aten::upsample_bilinear2d_backward",
       {reals({3, 4, 12, 12}), ints({12, 12}), ints({3, 4, 6, 6}), false}},
      {"aten::reflection_pad2d", {x, ints({1, 1, 2, 0})}},
      {"aten::reflection_pad2d_backward", {reals({3, 4, 8, 8}), x, ints({1, 1, 2, 0})}},
      {"aten::replication_pad2d", {x, ints({1, 1, 2, 0})}},
      {"aten::replication_pad2d_backward", {reals({3, 4, 8, 8}), x, ints({1, 1, 2, 0})}},
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

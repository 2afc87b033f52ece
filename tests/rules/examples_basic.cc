// Examples of products, views, pointwise operators and of what makes tensors.
#include "config/libtorch.h"
#include "tests/rules/examples.h"

namespace epl::testing {

Examples product_examples() {
  const at::Tensor square = reals({6, 6});
  return {
      {"aten::mm", {reals({6, 7}), reals({7, 5})}},
      {"aten::mm", {reals({4, 2}), reals({8, 2}).t()}},
      {"aten::mm", {square, square}},
      {"aten::bmm", {reals({4, 3, 5}), reals({4, 5, 6})}},
      {"aten::matmul", {reals({3, 4, 5, 2}), reals({3, 4, 2, 6})}},
      {"aten::matmul", {reals({3, 4, 5, 2}), reals({4, 2, 6})}},
      {"aten::matmul", {reals({4, 5}), reals({3, 1, 5, 6})}},
      {"aten::mv", {reals({4, 7}), reals({7})}},
      {"aten::dot", {reals({7}), reals({7})}},
      {"aten::addmm", {reals({5}), reals({4, 7}), reals({7, 5})}},
      {"aten::addmm", {reals({4, 5}), reals({4, 7}), reals({7, 5}), 0.5, 2.0}},
      {"aten::addmm", {reals({4, 1}), reals({4, 7}), reals({7, 5})}},
      {"aten::addmm", {reals({}), reals({4, 7}), reals({5, 7}).t()}},
      {"aten::baddbmm", {reals({3, 1, 5}), reals({3, 4, 6}), reals({3, 6, 5}), 1, 0.25}},
      {"aten::_addmm_activation", {reals({5}), reals({4, 7}), reals({7, 5}), 1, 2.0, true}},
      // As torch::bilinear calls it, and as its backward does for the weight.
      {"aten::_trilinear",
       {reals({4, 3}), reals({6, 3, 5}), reals({4, 5}), ints({1, 3}), ints({0}), ints({1, 2}),
        ints({2, 3})}},
      {"aten::_trilinear",
       {reals({4, 3}), reals({4, 6}), reals({4, 5}), ints({1, 3}), ints({2, 3}), ints({1, 2}),
        ints({0})}},
      {"aten::addmv", {reals({4}), reals({4, 7}), reals({7})}},
  };
}

Examples view_examples() {
  const auto sizes = [](std::vector<int64_t> list) { return list; };
  return {
      {"aten::t", {reals({4, 7})}},
      {"aten::t", {reals({7})}},
      {"aten::transpose.int", {reals({4, 7, 3}), 0, -1}},
      {"aten::permute", {reals({4, 7, 3, 5}), sizes({2, 0, -1, 1})}},
      {"aten::alias", {reals({4, 3})}},
      {"aten::detach", {reals({4, 3})}},
      {"aten::lift_fresh", {reals({4, 3})}},
      {"aten::view", {reals({4, 6}), sizes({4, 6})}},
      {"aten::view", {reals({5, 12}), sizes({5, 6, 2})}},
      {"aten::view", {reals({5, 12}), sizes({5, 2, 6})}},
      {"aten::view", {reals({5, 9}), sizes({5, 3, 3})}},
      {"aten::view", {reals({4, 3, 5}), sizes({12, 5})}},
      {"aten::view", {reals({6, 1, 4}), sizes({1, 6, -1, 2})}},
      {"aten::view", {reals({2, 3, 4}).transpose(0, 1), sizes({3, 2, 2, 2})}},
      {"aten::_unsafe_view", {reals({4, 6}), sizes({2, 2, 6})}},
      {"aten::reshape", {reals({4, 6}), sizes({2, 2, 6})}},
      {"aten::_reshape_alias", {reals({4, 6}), sizes({4, 2, 3}), sizes({6, 3, 1})}},
      {"aten::_reshape_alias", {reals({4, 3, 6}), sizes({12, 6}), sizes({6, 1})}},
      {"aten::expand", {reals({4, 1, 6}), sizes({5, 4, 3, 6})}},
      {"aten::expand", {reals({4, 1}), sizes({-1, 7})}},
      {"aten::unsqueeze", {reals({4, 6}), -2}},
      {"aten::unsqueeze", {reals({4, 6}), 2}},
      {"aten::squeeze", {reals({1, 4, 1, 3})}},
      {"aten::squeeze.dim", {reals({4, 1, 3}), 1}},
      {"aten::squeeze.dim", {reals({4, 3}), 1}},
      {"aten::slice.Tensor", {reals({4, 7}), 1, 2, 6, 2}},
      {"aten::slice.Tensor", {reals({4, 7}), 0, 0, 9223372036854775807}},
      {"aten::select.int", {reals({4, 7, 3}), 1, -2}},
  };
}

Examples pointwise_examples() {
  Examples examples;
  const at::Tensor same = reals({4, 3});
  const auto add = [&](const char* ops, const std::vector<c10::IValue>& arguments) {
    std::istringstream names(ops);
    for (std::string name; names >> name;) examples.push_back({"aten::" + name, arguments});
  };
  add("add.Tensor sub.Tensor rsub.Tensor mul.Tensor maximum minimum fmax fmin atan2 hypot"
      " logaddexp logaddexp2 copysign.Tensor heaviside",
      {reals({4, 1, 5}), reals({3, 5})});
  add("add.Tensor sub.Tensor mul.Tensor", {reals({4, 5}), reals({})});
  add("add.Tensor mul.Tensor", {same, same});
  add("add.Tensor sub.Tensor rsub.Tensor", {reals({5, 3}), reals({5, 3}), 0.5});
  add("div.Tensor xlogy.Tensor remainder.Tensor fmod.Tensor floor_divide pow.Tensor_Tensor",
      {positives({4, 7}), positives({7})});
  add("mul.Scalar div.Scalar add.Scalar sub.Scalar rsub.Scalar pow.Tensor_Scalar remainder.Scalar"
      " fmod.Scalar fill.Scalar",
      {positives({4, 7}), 1.5});
  add("neg clone abs sgn sign ceil floor round trunc frac exp exp2 expm1 sin cos tan sinh cosh tanh"
      " asin acos atan asinh atanh erf erfc erfinv sinc sigmoid log_sigmoid_forward nan_to_num "
      "relu elu celu silu mish"
      " gelu leaky_relu hardtanh hardswish hardsigmoid softplus softshrink hardshrink isnan isinf"
      " isposinf isneginf signbit logical_not",
      {reals({4, 7})});
  add("reciprocal sqrt rsqrt log log1p log2 log10 lgamma digamma logit", {positives({3, 5, 2})});
  add("acosh", {positives({7}) + 1});
  add("round.decimals", {reals({6}), 1});
  add("threshold", {reals({6}), 0.1, 0.2});
  add("_to_copy", {reals({4, 7}), c10::IValue(static_cast<int64_t>(at::kFloat))});
  add("_to_copy", {reals({4, 7}) * 9, c10::IValue(static_cast<int64_t>(at::kLong))});
  add("copy", {reals({4, 7}), reals({7})});
  add("lerp.Scalar", {reals({4, 7}), reals({7}), 0.3});
  add("lerp.Tensor", {reals({4, 7}), reals({7}), reals({4, 1})});
  add("addcmul addcdiv", {reals({4, 7}), reals({4, 1}), positives({7}), 0.3});
  add("eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor",
      {wholes(3, {4, 7}), wholes(3, {7})});
  add("eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar bitwise_and.Scalar",
      {wholes(3, {4, 7}), 1});
  add("bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor logical_and logical_or logical_xor",
      {wholes(4, {4, 7}), wholes(4, {4, 1})});
  add("bitwise_not", {truths({6})});
  examples.push_back({"epl_rows::note_ignored", {wholes(3, {4, 7}), 1}});
  add("pow.Scalar remainder.Scalar_Tensor", {2.5, positives({7})});
  add("div.Tensor_mode", {reals({7}), positives({7}), "floor"});
  add("div.Scalar_mode", {reals({7}), 0.3, "trunc"});
  add("clamp", {reals({4, 7}), -0.5, 0.5});
  add("clamp.Tensor", {reals({4, 7}), reals({7}), reals({4, 1})});
  add("clamp.Tensor", {reals({4, 7}), c10::IValue(), reals({4, 1})});
  add("clamp_min clamp_max", {reals({4, 7}), 0.1});
  add("clamp_min.Tensor clamp_max.Tensor", {reals({4, 7}), reals({7})});
  add("where.self", {truths({4, 1}), reals({4, 7}), reals({7})});
  add("masked_fill.Scalar", {reals({4, 7}), truths({4, 1}), 0});
  add("masked_fill.Scalar", {reals({4, 7}), truths({7}), 2.5});
  add("masked_fill.Tensor", {reals({4, 7}), truths({7}), reals({})});
  add("fill.Tensor", {reals({4, 7}), reals({})});
  add("tanh_backward sigmoid_backward silu_backward mish_backward gelu_backward"
      " hardswish_backward hardsigmoid_backward logit_backward",
      {reals({4, 7}), positives({4, 7})});
  add("log_sigmoid_backward", {reals({4, 7}), reals({4, 7}), positives({4, 7})});
  add("threshold_backward softshrink_backward hardshrink_backward", {reals({5}), reals({5}), 0.2});
  add("leaky_relu_backward", {reals({4, 7}), reals({4, 7}), 0.1, false});
  add("elu_backward", {reals({4, 7}), 1.0, 1.0, 1.0, false, reals({4, 7})});
  add("softplus_backward", {reals({4, 7}), reals({4, 7}), 1.0, 20.0});
  add("rrelu_with_noise_backward",
      {reals({4, 7}), reals({4, 7}), positives({4, 7}), 0.1, 0.3, true, false});
  add("prelu", {reals({4, 3, 5}), reals({3})});
  add("prelu", {reals({4, 7}), reals({1})});
  if (!EPL_TORCH_AT_LEAST(2, 0)) {
    add("prelu_backward", {reals({4, 3, 5}), reals({4, 3, 5}), reals({3})});
    add("prelu_backward", {reals({4, 7}), reals({4, 7}), reals({1})});
  }
  add("special_entr", {positives({4, 7})});
  add("polygamma", {1, positives({4, 7})});
  add("_standard_gamma_grad", {positives({4, 7}), positives({4, 7})});
  add("_dirichlet_grad", {positives({4, 7}), positives({4, 7}), positives({4, 7}) * 7});
  add("isin.Tensor_Tensor", {wholes(9, {4, 7}), wholes(9, {3})});
  add("isin.Tensor_Scalar", {wholes(3, {4, 7}), 1});
  add("bucketize.Tensor", {reals({4, 7}), std::get<0>(reals({5}).sort())});
  add("take", {reals({4, 7}), wholes(28, {5, 3})});
  add("hardtanh_backward", {reals({4, 7}), reals({4, 7}), -0.5, 0.5});
  return examples;
}

Examples complex_examples() {
  return {
      {"aten::complex", {reals({4, 7}), reals({4, 7})}},
      {"aten::polar", {positives({4, 7}), reals({4, 7})}},
      {"aten::_conj_physical", {complexes({4, 7})}},
      {"aten::angle", {complexes({4, 7})}},
      {"aten::view_as_real", {complexes({4, 7})}},
      {"aten::view_as_complex", {reals({4, 7, 2})}},
      {"aten::mm", {complexes({4, 7}), complexes({7, 5})}},
  };
}

Examples creation_examples() {
  const c10::IValue sizes = ints({4, 7});
  return {
      {"aten::zeros_like", {reals({4, 7})}},
      {"aten::ones_like", {reals({4, 7})}},
      {"aten::full_like", {reals({4, 7}), 2.5}},
      {"aten::empty_like", {reals({4, 7})}},
      {"aten::zeros", {sizes}},
      {"aten::ones", {sizes}},
      {"aten::full", {sizes, 2.5}},
      {"aten::empty.memory_format", {sizes}},
      {"aten::new_zeros", {reals({2, 2}), sizes}},
      {"aten::new_ones", {reals({2, 2}), sizes}},
      {"aten::new_full", {reals({2, 2}), sizes, 2.5}},
      {"aten::new_empty", {reals({2, 2}), sizes}},
  };
}

}  // namespace epl::testing

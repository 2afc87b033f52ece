// Operators that work element by element on tensors that are broadcast to each other.
#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

// Which of two tensors it takes does not depend on them.
std::optional<Pattern> where(const Graph& graph, const Node& node) {
  Pattern pattern = pointwise_pattern(graph, node);
  pattern.partial = InputSets{{1, 2}};
  return pattern;
}

// Zeros may be put into a partial sum, other numbers would be there several times.
std::optional<Pattern> masked_fill(const Graph& graph, const Node& node) {
  Pattern pattern = pointwise_pattern(graph, node);
  const bool zeros = node.arguments[2].constant.toScalar().equal(0);
  pattern.partial = zeros ? InputSets{{0}} : InputSets();
  return pattern;
}

}  // namespace

Rules pointwise_rules() {
  static const OpRule rows[] = {
      // Linear in all tensors together.
      {"aten::add.Tensor", "...", "...", Linear::kAll},
      {"aten::sub.Tensor", "...", "...", Linear::kAll},
      {"aten::rsub.Tensor", "...", "...", Linear::kAll},
      {"aten::mul.Scalar", "...", "...", Linear::kAll},
      {"aten::div.Scalar", "...", "...", Linear::kAll},
      {"aten::neg", "...", "...", Linear::kAll},
      {"aten::lerp.Scalar", "...", "...", Linear::kAll},
      {"aten::clone", "...", "...", Linear::kAll},
      {"aten::copy", "...", "...", Linear::kAll},
      {"aten::_to_copy", "...", "...", Linear::kAll},

      // Linear in each of them.
      {"aten::mul.Tensor", "...", "...", Linear::kOneInput},

      // Linear in the first one, which most often is a gradient.
      {"aten::div.Tensor", "...", "...", Linear::kFirst},
      {"aten::threshold_backward", "...", "...", Linear::kFirst},
      {"aten::gelu_backward", "...", "...", Linear::kFirst},
      {"aten::tanh_backward", "...", "...", Linear::kFirst},
      {"aten::sigmoid_backward", "...", "...", Linear::kFirst},
      {"aten::silu_backward", "...", "...", Linear::kFirst},
      {"aten::mish_backward", "...", "...", Linear::kFirst},
      {"aten::leaky_relu_backward", "...", "...", Linear::kFirst},
      {"aten::elu_backward", "...", "...", Linear::kFirst},
      {"aten::softplus_backward", "...", "...", Linear::kFirst},
      {"aten::softshrink_backward", "...", "...", Linear::kFirst},
      {"aten::hardshrink_backward", "...", "...", Linear::kFirst},
      {"aten::hardtanh_backward", "...", "...", Linear::kFirst},
      {"aten::hardswish_backward", "...", "...", Linear::kFirst},
      {"aten::hardsigmoid_backward", "...", "...", Linear::kFirst},
      {"aten::logit_backward", "...", "...", Linear::kFirst},
      {"aten::log_sigmoid_backward", "...", "...", Linear::kFirst},
      {"aten::_prelu_kernel_backward", "...", "...", Linear::kFirst},

      // Linear in some arguments, or for some constants.
      {"aten::where.self", "", "", Linear::kNo, where},
      {"aten::masked_fill.Scalar", "", "", Linear::kNo, masked_fill},

      // Not linear.
      {"epl_rows::note_ignored", "...", "..."},
      {"aten::abs", "...", "..."},
      {"aten::sgn", "...", "..."},
      {"aten::sign", "...", "..."},
      {"aten::ceil", "...", "..."},
      {"aten::floor", "...", "..."},
      {"aten::round", "...", "..."},
      {"aten::round.decimals", "...", "..."},
      {"aten::trunc", "...", "..."},
      {"aten::frac", "...", "..."},
      {"aten::reciprocal", "...", "..."},
      {"aten::sqrt", "...", "..."},
      {"aten::rsqrt", "...", "..."},
      {"aten::exp", "...", "..."},
      {"aten::exp2", "...", "..."},
      {"aten::expm1", "...", "..."},
      {"aten::log", "...", "..."},
      {"aten::log1p", "...", "..."},
      {"aten::log2", "...", "..."},
      {"aten::log10", "...", "..."},
      {"aten::sin", "...", "..."},
      {"aten::cos", "...", "..."},
      {"aten::tan", "...", "..."},
      {"aten::asin", "...", "..."},
      {"aten::acos", "...", "..."},
      {"aten::atan", "...", "..."},
      {"aten::sinh", "...", "..."},
      {"aten::cosh", "...", "..."},
      {"aten::tanh", "...", "..."},
      {"aten::asinh", "...", "..."},
      {"aten::acosh", "...", "..."},
      {"aten::atanh", "...", "..."},
      {"aten::erf", "...", "..."},
      {"aten::erfc", "...", "..."},
      {"aten::erfinv", "...", "..."},
      {"aten::lgamma", "...", "..."},
      {"aten::digamma", "...", "..."},
      {"aten::sinc", "...", "..."},
      {"aten::sigmoid", "...", "..."},
      {"aten::log_sigmoid_forward", "...", "..."},
      {"aten::logit", "...", "..."},
      {"aten::nan_to_num", "...", "..."},
      {"aten::relu", "...", "..."},
      {"aten::leaky_relu", "...", "..."},
      {"aten::_prelu_kernel", "...", "..."},
      {"aten::elu", "...", "..."},
      {"aten::celu", "...", "..."},
      {"aten::silu", "...", "..."},
      {"aten::mish", "...", "..."},
      {"aten::gelu", "...", "..."},
      {"aten::hardtanh", "...", "..."},
      {"aten::hardswish", "...", "..."},
      {"aten::hardsigmoid", "...", "..."},
      {"aten::softplus", "...", "..."},
      {"aten::softshrink", "...", "..."},
      {"aten::hardshrink", "...", "..."},
      {"aten::threshold", "...", "..."},
      {"aten::isnan", "...", "..."},
      {"aten::isinf", "...", "..."},
      {"aten::isposinf", "...", "..."},
      {"aten::isneginf", "...", "..."},
      {"aten::signbit", "...", "..."},
      {"aten::logical_not", "...", "..."},
      {"aten::bitwise_not", "...", "..."},
      {"aten::add.Scalar", "...", "..."},
      {"aten::sub.Scalar", "...", "..."},
      {"aten::rsub.Scalar", "...", "..."},
      {"aten::pow.Tensor_Scalar", "...", "..."},
      {"aten::pow.Scalar", "...", "..."},
      {"aten::pow.Tensor_Tensor", "...", "..."},
      {"aten::div.Tensor_mode", "...", "..."},
      {"aten::div.Scalar_mode", "...", "..."},
      {"aten::floor_divide", "...", "..."},
      {"aten::remainder.Scalar", "...", "..."},
      {"aten::remainder.Tensor", "...", "..."},
      {"aten::remainder.Scalar_Tensor", "...", "..."},
      {"aten::fmod.Scalar", "...", "..."},
      {"aten::fmod.Tensor", "...", "..."},
      {"aten::eq.Scalar", "...", "..."},
      {"aten::ne.Scalar", "...", "..."},
      {"aten::lt.Scalar", "...", "..."},
      {"aten::le.Scalar", "...", "..."},
      {"aten::gt.Scalar", "...", "..."},
      {"aten::ge.Scalar", "...", "..."},
      {"aten::eq.Tensor", "...", "..."},
      {"aten::ne.Tensor", "...", "..."},
      {"aten::lt.Tensor", "...", "..."},
      {"aten::le.Tensor", "...", "..."},
      {"aten::gt.Tensor", "...", "..."},
      {"aten::ge.Tensor", "...", "..."},
      {"aten::logical_and", "...", "..."},
      {"aten::logical_or", "...", "..."},
      {"aten::logical_xor", "...", "..."},
      {"aten::bitwise_and.Tensor", "...", "..."},
      {"aten::bitwise_or.Tensor", "...", "..."},
      {"aten::bitwise_xor.Tensor", "...", "..."},
      {"aten::bitwise_and.Scalar", "...", "..."},
      {"aten::maximum", "...", "..."},
      {"aten::minimum", "...", "..."},
      {"aten::fmax", "...", "..."},
      {"aten::fmin", "...", "..."},
      {"aten::clamp", "...", "..."},
      {"aten::clamp.Tensor", "...", "..."},
      {"aten::clamp_min", "...", "..."},
      {"aten::clamp_max", "...", "..."},
      {"aten::clamp_min.Tensor", "...", "..."},
      {"aten::clamp_max.Tensor", "...", "..."},
      {"aten::atan2", "...", "..."},
      {"aten::hypot", "...", "..."},
      {"aten::logaddexp", "...", "..."},
      {"aten::logaddexp2", "...", "..."},
      {"aten::xlogy.Tensor", "...", "..."},
      {"aten::copysign.Tensor", "...", "..."},
      {"aten::heaviside", "...", "..."},
      {"aten::addcmul", "...", "..."},
      {"aten::addcdiv", "...", "..."},
      {"aten::lerp.Tensor", "...", "..."},
      {"aten::masked_fill.Tensor", "...", "..."},
      {"aten::fill.Scalar", "...", "..."},
      {"aten::fill.Tensor", "...", "..."},
  };
  return rows;
}

}  // namespace epl

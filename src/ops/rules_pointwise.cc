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

// prelu(self, weight) and prelu_backward(grad, self, weight): one weight for all, or one for each
// channel, which is dimension 1. The gradient of the weight is a sum over all that it stands for.
std::string prelu_weight_word(const Graph& graph, const Node& node, const std::string& word) {
  const Sizes& weight = sizes_of(graph, inputs_of(node).back());
  const bool by_channel = weight.size() == 1 && weight[0] != 1;
  return by_channel ? word.substr(1, 1) : std::string(weight.size(), '1');
}

std::optional<Pattern> prelu(const Graph& graph, const Node& node) {
  const std::string word = letters(input_sizes(graph, node, 0).size());
  return Pattern{{word, prelu_weight_word(graph, node, word)}, {word}, "", ""};
}

std::optional<Pattern> prelu_backward(const Graph& graph, const Node& node) {
  const std::string word = letters(input_sizes(graph, node, 0).size());
  const std::string weight = prelu_weight_word(graph, node, word);
  return Pattern{{word, word, weight}, {word, weight}, "", ""};
}

// isin(elements, test_elements), bucketize(self, boundaries), take(self, index), whose numbers are
// the second tensor: each element is looked up in a tensor that stays whole.
std::optional<Pattern> looked_up(const Graph& graph, const Node& node, size_t elements) {
  const std::string word = letters(sizes_of(graph, outputs_of(node)[0]).size());
  Pattern pattern;
  pattern.outputs = {word};
  for (ValueId id : inputs_of(node)) {
    const bool is_table = pattern.inputs.size() != elements;
    pattern.inputs.push_back(is_table ? std::string(sizes_of(graph, id).size(), '1') : word);
  }
  return pattern;
}

std::optional<Pattern> look_up_first(const Graph& graph, const Node& node) {
  return looked_up(graph, node, 0);
}
std::optional<Pattern> look_up_second(const Graph& graph, const Node& node) {
  return looked_up(graph, node, 1);
}

}  // namespace

Rules pointwise_rules() {
  static const OperatorRow rows[] = {
      // Linear in all tensors together.
      {"aten::add.Tensor", in_widest().pointwise(), "...", "...", Linear::kAll},
      {"aten::sub.Tensor", in_widest().pointwise(), "...", "...", Linear::kAll},
      {"aten::rsub.Tensor", in_widest(), "...", "...", Linear::kAll},
      {"aten::mul.Scalar", in_widest().pointwise(), "...", "...", Linear::kAll},
      {"aten::div.Scalar", in_widest().pointwise(), "...", "...", Linear::kAll},
      {"aten::neg", in_widest().pointwise(), "...", "...", Linear::kAll},
      {"aten::lerp.Scalar", in_widest(), "...", "...", Linear::kAll},
      {"aten::clone", in_widest(), "...", "...", Linear::kAll},
      {"aten::copy", in_widest(), "...", "...", Linear::kAll},
      {"aten::_to_copy", in_widest(), "...", "...", Linear::kAll},

      // Linear in each of them.
      {"aten::mul.Tensor", in_widest().pointwise(), "...", "...", Linear::kOneInput},

      // Linear in the first one, which most often is a gradient.
      {"aten::div.Tensor", in_widest().pointwise(), "...", "...", Linear::kFirst},
      {"aten::threshold_backward", in_widest().pointwise(), "...", "...", Linear::kFirst},
      {"aten::gelu_backward", in_widest().seconds_each(2e-9).pointwise(), "...", "...",
       Linear::kFirst},
      {"aten::tanh_backward", in_widest().pointwise(), "...", "...", Linear::kFirst},
      {"aten::sigmoid_backward", in_widest().pointwise(), "...", "...", Linear::kFirst},
      {"aten::silu_backward", in_widest().seconds_each(1e-9).pointwise(), "...", "...",
       Linear::kFirst},
      {"aten::mish_backward", in_widest(), "...", "...", Linear::kFirst},
      {"aten::leaky_relu_backward", in_widest().pointwise(), "...", "...", Linear::kFirst},
      {"aten::elu_backward", in_widest().pointwise(), "...", "...", Linear::kFirst},
      {"aten::softplus_backward", in_float32().pointwise(), "...", "...", Linear::kFirst},
      {"aten::softshrink_backward", in_widest(), "...", "...", Linear::kFirst},
      {"aten::hardshrink_backward", in_widest(), "...", "...", Linear::kFirst},
      {"aten::hardtanh_backward", in_widest(), "...", "...", Linear::kFirst},
      {"aten::hardswish_backward", in_widest(), "...", "...", Linear::kFirst},
      {"aten::hardsigmoid_backward", in_widest(), "...", "...", Linear::kFirst},
      {"aten::logit_backward", in_float32(), "...", "...", Linear::kFirst},
      {"aten::log_sigmoid_backward", in_float32(), "...", "...", Linear::kFirst},
      {"aten::rrelu_with_noise_backward", in_widest(), "...", "...", Linear::kFirst},
      {"aten::_prelu_kernel_backward", in_lower(), "...", "...", Linear::kFirst},

      // Linear in some arguments, or for some constants.
      {"aten::prelu", in_lower(), "", "", Linear::kNo, prelu},
      {"aten::prelu_backward", in_lower(), "", "", Linear::kFirst, prelu_backward},
      {"aten::where.self", in_widest().pointwise(), "", "", Linear::kNo, where},
      {"aten::masked_fill.Scalar", in_widest().seconds_each(2e-9).pointwise(), "", "", Linear::kNo,
       masked_fill},

      // Each element by a tensor that says what numbers mean.
      {"aten::isin.Tensor_Tensor", in_widest(), "", "", Linear::kNo, look_up_first},
      {"aten::bucketize.Tensor", in_widest(), "", "", Linear::kNo, look_up_first},
      {"aten::take", in_widest().gathers(), "", "", Linear::kFirst, look_up_second},

      // Not linear.
      {"epl_rows::note_ignored", in_widest(), "...", "..."},
      {"aten::isin.Tensor_Scalar", in_widest(), "...", "..."},
      {"aten::abs", in_widest(), "...", "..."},
      {"aten::sgn", in_widest(), "...", "..."},
      {"aten::sign", in_widest(), "...", "..."},
      {"aten::ceil", in_widest(), "...", "..."},
      {"aten::floor", in_widest(), "...", "..."},
      {"aten::round", in_widest(), "...", "..."},
      {"aten::round.decimals", in_widest(), "...", "..."},
      {"aten::trunc", in_widest(), "...", "..."},
      {"aten::frac", in_widest(), "...", "..."},
      {"aten::reciprocal", in_float32(), "...", "..."},
      {"aten::sqrt", in_widest().pointwise(), "...", "..."},
      {"aten::rsqrt", in_float32().pointwise(), "...", "..."},
      {"aten::exp", in_float32().seconds_each(1e-9).pointwise(), "...", "..."},
      {"aten::exp2", in_float32(), "...", "..."},
      {"aten::expm1", in_float32(), "...", "..."},
      {"aten::log", in_float32().seconds_each(1e-9).pointwise(), "...", "..."},
      {"aten::log1p", in_float32(), "...", "..."},
      {"aten::log2", in_float32(), "...", "..."},
      {"aten::log10", in_float32(), "...", "..."},
      {"aten::sin", in_widest().seconds_each(1e-9), "...", "..."},
      {"aten::cos", in_widest().seconds_each(1e-9), "...", "..."},
      {"aten::tan", in_float32(), "...", "..."},
      {"aten::asin", in_float32(), "...", "..."},
      {"aten::acos", in_float32(), "...", "..."},
      {"aten::atan", in_widest(), "...", "..."},
      {"aten::sinh", in_float32(), "...", "..."},
      {"aten::cosh", in_float32(), "...", "..."},
      {"aten::tanh", in_widest().seconds_each(2e-9).pointwise(), "...", "..."},
      {"aten::asinh", in_float32(), "...", "..."},
      {"aten::acosh", in_float32(), "...", "..."},
      {"aten::atanh", in_float32(), "...", "..."},
      {"aten::erf", in_widest().seconds_each(1e-9), "...", "..."},
      {"aten::erfc", in_widest(), "...", "..."},
      {"aten::erfinv", in_float32(), "...", "..."},
      {"aten::lgamma", in_float32(), "...", "..."},
      {"aten::digamma", in_float32(), "...", "..."},
      {"aten::polygamma", in_float32(), "...", "..."},
      {"aten::special_entr", in_float32(), "...", "..."},
      {"aten::_standard_gamma_grad", in_float32(), "...", "..."},
      {"aten::_dirichlet_grad", in_float32(), "...", "..."},
      {"aten::angle", in_widest(), "...", "..."},
      {"aten::sinc", in_widest(), "...", "..."},
      {"aten::sigmoid", in_widest().seconds_each(1e-9).pointwise(), "...", "..."},
      {"aten::log_sigmoid_forward", in_float32(), "...", "..."},
      {"aten::logit", in_float32(), "...", "..."},
      {"aten::nan_to_num", in_widest(), "...", "..."},
      {"aten::relu", in_widest().pointwise(), "...", "..."},
      {"aten::leaky_relu", in_widest().pointwise(), "...", "..."},
      {"aten::_prelu_kernel", in_lower(), "...", "..."},
      {"aten::elu", in_widest().pointwise(), "...", "..."},
      {"aten::celu", in_widest(), "...", "..."},
      {"aten::silu", in_widest().seconds_each(1e-9).pointwise(), "...", "..."},
      {"aten::mish", in_widest(), "...", "..."},
      {"aten::gelu", in_widest().seconds_each(1e-9).pointwise(), "...", "..."},
      {"aten::hardtanh", in_widest(), "...", "..."},
      {"aten::hardswish", in_widest(), "...", "..."},
      {"aten::hardsigmoid", in_widest(), "...", "..."},
      {"aten::softplus", in_float32().seconds_each(2e-9).pointwise(), "...", "..."},
      {"aten::softshrink", in_widest(), "...", "..."},
      {"aten::hardshrink", in_widest(), "...", "..."},
      {"aten::threshold", in_widest(), "...", "..."},
      {"aten::isnan", in_widest(), "...", "..."},
      {"aten::isinf", in_widest(), "...", "..."},
      {"aten::isposinf", in_widest(), "...", "..."},
      {"aten::isneginf", in_widest(), "...", "..."},
      {"aten::signbit", in_widest(), "...", "..."},
      {"aten::logical_not", in_widest(), "...", "..."},
      {"aten::bitwise_not", in_widest(), "...", "..."},
      {"aten::add.Scalar", in_widest().pointwise(), "...", "..."},
      {"aten::sub.Scalar", in_widest().pointwise(), "...", "..."},
      {"aten::rsub.Scalar", in_widest(), "...", "..."},
      {"aten::pow.Tensor_Scalar", in_float32(), "...", "..."},
      {"aten::pow.Scalar", in_float32(), "...", "..."},
      {"aten::pow.Tensor_Tensor", in_float32(), "...", "..."},
      {"aten::div.Tensor_mode", in_widest().pointwise(), "...", "..."},
      {"aten::div.Scalar_mode", in_widest().pointwise(), "...", "..."},
      {"aten::floor_divide", in_widest(), "...", "..."},
      {"aten::remainder.Scalar", in_widest(), "...", "..."},
      {"aten::remainder.Tensor", in_widest(), "...", "..."},
      {"aten::remainder.Scalar_Tensor", in_widest(), "...", "..."},
      {"aten::fmod.Scalar", in_widest(), "...", "..."},
      {"aten::fmod.Tensor", in_widest(), "...", "..."},
      {"aten::eq.Scalar", in_widest(), "...", "..."},
      {"aten::ne.Scalar", in_widest(), "...", "..."},
      {"aten::lt.Scalar", in_widest(), "...", "..."},
      {"aten::le.Scalar", in_widest(), "...", "..."},
      {"aten::gt.Scalar", in_widest(), "...", "..."},
      {"aten::ge.Scalar", in_widest(), "...", "..."},
      {"aten::eq.Tensor", in_widest(), "...", "..."},
      {"aten::ne.Tensor", in_widest(), "...", "..."},
      {"aten::lt.Tensor", in_widest(), "...", "..."},
      {"aten::le.Tensor", in_widest(), "...", "..."},
      {"aten::gt.Tensor", in_widest(), "...", "..."},
      {"aten::ge.Tensor", in_widest(), "...", "..."},
      {"aten::logical_and", in_widest(), "...", "..."},
      {"aten::logical_or", in_widest(), "...", "..."},
      {"aten::logical_xor", in_widest(), "...", "..."},
      {"aten::bitwise_and.Tensor", in_widest(), "...", "..."},
      {"aten::bitwise_or.Tensor", in_widest(), "...", "..."},
      {"aten::bitwise_xor.Tensor", in_widest(), "...", "..."},
      {"aten::bitwise_and.Scalar", in_widest(), "...", "..."},
      {"aten::maximum", in_widest(), "...", "..."},
      {"aten::minimum", in_widest(), "...", "..."},
      {"aten::fmax", in_widest(), "...", "..."},
      {"aten::fmin", in_widest(), "...", "..."},
      {"aten::clamp", in_widest().pointwise(), "...", "..."},
      {"aten::clamp.Tensor", in_widest().pointwise(), "...", "..."},
      {"aten::clamp_min", in_widest().pointwise(), "...", "..."},
      {"aten::clamp_max", in_widest(), "...", "..."},
      {"aten::clamp_min.Tensor", in_widest().pointwise(), "...", "..."},
      {"aten::clamp_max.Tensor", in_widest(), "...", "..."},
      {"aten::atan2", in_widest(), "...", "..."},
      {"aten::hypot", in_widest(), "...", "..."},
      {"aten::logaddexp", in_float32(), "...", "..."},
      {"aten::logaddexp2", in_float32(), "...", "..."},
      {"aten::xlogy.Tensor", in_float32(), "...", "..."},
      {"aten::copysign.Tensor", in_widest(), "...", "..."},
      {"aten::heaviside", in_widest(), "...", "..."},
      // Devices do not sum up complex numbers, so that these are linear in vain.
      {"aten::complex", in_float32(), "...", "..."},
      {"aten::polar", in_float32(), "...", "..."},
      {"aten::_conj_physical", in_widest(), "...", "..."},
      {"aten::addcmul", in_widest().pointwise(), "...", "..."},
      {"aten::addcdiv", in_widest().pointwise(), "...", "..."},
      {"aten::lerp.Tensor", in_widest(), "...", "..."},
      {"aten::masked_fill.Tensor", in_widest().seconds_each(2e-9).pointwise(), "...", "..."},
      {"aten::fill.Scalar", in_widest(), "...", "..."},
      {"aten::fill.Tensor", in_widest(), "...", "..."},
  };
  return rows;
}

}  // namespace epl

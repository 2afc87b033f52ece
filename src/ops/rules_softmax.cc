// Softmax and its kin. Over a cut dimension the devices exchange one number a row: its largest
// element, then the sum of exponentials (Milakov and Gimelshein, "Online normalizer calculation for
// softmax", 2018, for why two numbers are enough).
#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

std::optional<Pattern> softmax_over(const Graph& graph, const Node& node, size_t dim_argument) {
  const Sizes& sizes = input_sizes(graph, node, 0);
  const std::string word = letters(sizes.size());
  Pattern pattern;
  pattern.inputs.assign(inputs_of(node).size(), word);
  pattern.outputs = {word};
  if (!sizes.empty()) pattern.expanded = word[wrap_dim(int_at(node, dim_argument), sizes.size())];
  return pattern;
}

std::optional<Pattern> softmax(const Graph& graph, const Node& node) {
  return softmax_over(graph, node, 1);
}

// Rows of which nothing is left (-inf everywhere) become zeros, which the sums over devices do not
// tell from others: such a row stays on one device.
std::optional<Pattern> safe_softmax(const Graph& graph, const Node& node) {
  auto pattern = softmax_over(graph, node, 1);
  std::swap(pattern->whole, pattern->expanded);
  return pattern;
}

std::optional<Pattern> softmax_backward(const Graph& graph, const Node& node) {
  return softmax_over(graph, node, 2);
}

// LibTorch computes in float where elements are shorter.
ValueId in_float(Expression& e, ValueId x) {
  const auto dtype = e.dtype(x);
  const bool is_short = dtype == c10::ScalarType::Half || dtype == c10::ScalarType::BFloat16;
  return is_short ? e.converted(x, c10::ScalarType::Float) : x;
}

struct Sums {
  ValueId largest;  // element of a row
  ValueId exp;      // sum of exponentials of what an element is less than the largest
};

Sums sums_over_devices(Expression& e, Emitter& to, ValueId x, int64_t dim) {
  const ValueId largest = e.all_reduce(e.over("aten::amax", x, {dim}, true), "max");
  const ValueId sum = to.call("epl_rows::sum_exp",
                              {value_argument(x), value_argument(largest), constant_argument(dim)});
  return {largest, e.all_reduce(sum, "sum")};
}

c10::ScalarType result_dtype(const LocalNode& at) {
  return at.graph.value(outputs_of(at.node)[0]).type.dtype;
}

std::vector<ValueId> split_softmax(const LocalNode& at, Emitter& to) {
  Expression e(to);
  const ValueId x = in_float(e, at.inputs[0]);
  const Sums sums = sums_over_devices(e, to, x, int_at(at.node, 1));
  const ValueId exponentials = e.unary("aten::exp", e.binary("aten::sub.Tensor", x, sums.largest));
  return {e.converted(e.binary("aten::div.Tensor", exponentials, sums.exp), result_dtype(at))};
}

std::vector<ValueId> split_log_softmax(const LocalNode& at, Emitter& to) {
  Expression e(to);
  const ValueId x = in_float(e, at.inputs[0]);
  const Sums sums = sums_over_devices(e, to, x, int_at(at.node, 1));
  const ValueId result =
      to.call("epl_rows::log_softmax",
              {value_argument(x), value_argument(sums.largest), value_argument(sums.exp)});
  return {e.converted(result, result_dtype(at))};
}

// output * (gradient - sum(gradient * output))
std::vector<ValueId> split_softmax_backward(const LocalNode& at, Emitter& to) {
  Expression e(to);
  const ValueId gradient = in_float(e, at.inputs[0]);
  const ValueId output = in_float(e, at.inputs[1]);
  const ValueId product = e.binary("aten::mul.Tensor", gradient, output);
  const ValueId sum =
      e.all_reduce(e.over("aten::sum.dim_IntList", product, {int_at(at.node, 2)}, true), "sum");
  const ValueId result = to.call("aten::addcmul", {value_argument(product), value_argument(output),
                                                   value_argument(sum), constant_argument(-1)});
  return {e.converted(result, result_dtype(at))};
}

// gradient - exp(output) * sum(gradient)
std::vector<ValueId> split_log_softmax_backward(const LocalNode& at, Emitter& to) {
  Expression e(to);
  const ValueId gradient = in_float(e, at.inputs[0]);
  const ValueId output = in_float(e, at.inputs[1]);
  const ValueId sum =
      e.all_reduce(e.over("aten::sum.dim_IntList", gradient, {int_at(at.node, 2)}, true), "sum");
  const ValueId result =
      to.call("epl_rows::log_softmax_backward",
              {value_argument(gradient), value_argument(output), value_argument(sum)});
  return {e.converted(result, result_dtype(at))};
}

}  // namespace

Rules softmax_rules() {
  constexpr Linear kNo = Linear::kNo;
  constexpr Linear kFirst = Linear::kFirst;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize, expand, wants
      {"aten::_softmax", in_float32().seconds_each(1e-9), "", "", kNo, softmax, nullptr,
       split_softmax},
      {"aten::_safe_softmax", in_float32().seconds_each(2e-9), "", "", kNo, safe_softmax},
      {"aten::_log_softmax", in_float32().seconds_each(1e-9), "", "", kNo, softmax, nullptr,
       split_log_softmax},
      // Reads the output of the last dimension as if there were no gaps, whatever its strides.
      {"aten::_softmax_backward_data", in_float32(), "", "", kFirst, softmax_backward, nullptr,
       split_softmax_backward, Wants::kDense},
      {"aten::_log_softmax_backward_data", in_float32(), "", "", kFirst, softmax_backward, nullptr,
       split_log_softmax_backward},
  };
  return rows;
}

}  // namespace epl

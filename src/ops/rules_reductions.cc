// Sums, means and extrema over dimensions.
#include <algorithm>
#include <cmath>

#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

// Dimensions that go away: those of the argument, or all where there are none.
std::vector<size_t> reduced_dims(const Graph& graph, const Node& node) {
  const size_t rank = input_sizes(graph, node, 0).size();
  if (rank == 0) return {};
  const auto argument = argument_named(node, "dim");
  auto dims = argument ? wrap_dims(ints_at(node, *argument), rank) : std::vector<size_t>();
  if (dims.empty()) {
    for (size_t i = 0; i < rank; ++i) dims.push_back(i);
  }
  std::sort(dims.begin(), dims.end());
  return dims;
}

struct ReducedWords {
  std::string from;
  std::string to;
  std::string gone;  // letters of the dimensions that are reduced
};

ReducedWords reduced_words(const Graph& graph, const Node& node) {
  const size_t rank = input_sizes(graph, node, 0).size();
  const bool keeps = rank != 0 && sizes_of(graph, outputs_of(node)[0]).size() == rank;
  ReducedWords words{letters(rank), "", ""};
  const auto dims = reduced_dims(graph, node);
  for (size_t i = 0; i < rank; ++i) {
    const bool reduced = std::find(dims.begin(), dims.end(), i) != dims.end();
    if (reduced) words.gone += words.from[i];
    if (!reduced) {
      words.to += words.from[i];
    } else if (keeps) {
      words.to += '1';
    }
  }
  return words;
}

std::optional<Pattern> sum(const Graph& graph, const Node& node) {
  const auto words = reduced_words(graph, node);
  return Pattern{{words.from}, {words.to}, "", ""};
}

std::optional<Pattern> mean(const Graph& graph, const Node& node) {
  const auto words = reduced_words(graph, node);
  return Pattern{{words.from}, {words.to}, "", words.gone};
}

// The count is that of the whole.
std::vector<ValueId> split_mean(const LocalNode& at, Emitter& to) {
  Node local = local_copy(at);
  const Sizes& sizes = input_sizes(at.graph, at.node, 0);
  int64_t count = 1;
  for (size_t dim : reduced_dims(at.graph, at.node)) count *= sizes[dim];
  const bool by_dims = argument_named(local, "dim").has_value();
  const ValueId sum =
      to.call(by_dims ? "aten::sum.dim_IntList" : "aten::sum", std::move(local.arguments));
  return {Expression(to).scalar("aten::div.Scalar", sum, count)};
}

// Reductions that are no sums: what they reduce stays whole.
std::optional<Pattern> whole_dims(const Graph& graph, const Node& node) {
  const auto words = reduced_words(graph, node);
  Pattern pattern{{words.from}, {}, words.gone, ""};
  pattern.outputs.assign(outputs_of(node).size(), words.to);
  return pattern;
}

// --- the largest of all devices' largest ------------------------------------------------------

std::optional<Pattern> extremum(const Graph& graph, const Node& node) {
  const auto words = reduced_words(graph, node);
  const bool truths = graph.value(tensor_at(node, 0)).type.dtype == c10::ScalarType::Bool;
  Pattern pattern{{words.from}, {words.to}, truths ? words.gone : "", words.gone};
  pattern.same = {words.gone};
  return pattern;
}

// As the opposite of the largest opposite, which integers may not have; or by logarithms, which
// are no integers.
std::optional<Pattern> extremum_of_reals(const Graph& graph, const Node& node) {
  auto pattern = extremum(graph, node);
  const auto dtype = graph.value(tensor_at(node, 0)).type.dtype;
  if (c10::isIntegralType(dtype, /*includeBool=*/true)) pattern->whole = pattern->expanded;
  return pattern;
}

ValueId local_result(const LocalNode& at, Emitter& to) {
  return to.call_for(op_name(at.node), local_copy(at).arguments, at.output_sizes(0));
}

std::vector<ValueId> split_max(const LocalNode& at, Emitter& to) {
  return {Expression(to).all_reduce(local_result(at, to), "max")};
}

std::vector<ValueId> split_min(const LocalNode& at, Emitter& to) {
  Expression e(to);
  const ValueId negated = e.unary("aten::neg", local_result(at, to));
  return {e.unary("aten::neg", e.all_reduce(negated, "max"))};
}

// log of the sum over devices of exp(logsumexp)
std::vector<ValueId> split_logsumexp(const LocalNode& at, Emitter& to) {
  Expression e(to);
  const ValueId mine = local_result(at, to);
  ValueId largest = e.all_reduce(mine, "max");
  for (double infinite : {HUGE_VAL, -HUGE_VAL}) {  // inf - inf is no number
    largest = e.zero_where(e.scalar("aten::eq.Scalar", largest, infinite), largest);
  }
  const ValueId exponential = e.unary("aten::exp", e.binary("aten::sub.Tensor", mine, largest));
  const ValueId sum = e.all_reduce(exponential, "sum");
  return {e.binary("aten::add.Tensor", e.unary("aten::log", sum), largest)};
}

}  // namespace

Rules reduction_rules() {
  constexpr Linear kNo = Linear::kNo;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize, expand
      {"aten::sum", in_float32(), "", "", Linear::kAll, sum},
      {"aten::sum.dim_IntList", in_float32(), "", "", Linear::kAll, sum},
      {"aten::count_nonzero", in_widest(), "", "", kNo, sum},
      {"aten::count_nonzero.dim_IntList", in_widest(), "", "", kNo, sum},
      {"aten::mean", in_float32(), "", "", Linear::kAll, mean, nullptr, split_mean},
      {"aten::mean.dim", in_float32(), "", "", Linear::kAll, mean, nullptr, split_mean},
      {"aten::amax", in_widest(), "", "", kNo, extremum, nullptr, split_max},
      {"aten::amin", in_widest(), "", "", kNo, extremum_of_reals, nullptr, split_min},
      {"aten::max", in_widest(), "", "", kNo, extremum, nullptr, split_max},
      {"aten::min", in_widest(), "", "", kNo, extremum_of_reals, nullptr, split_min},
      {"aten::logsumexp", in_float32(), "", "", kNo, extremum_of_reals, nullptr, split_logsumexp},
      {"aten::norm.ScalarOpt_dim", in_float32(), "", "", kNo, whole_dims},
      {"aten::linalg_vector_norm", in_float32(), "", "", kNo, whole_dims},
      {"aten::var.correction", in_float32(), "", "", kNo, whole_dims},
      {"aten::std.correction", in_float32(), "", "", kNo, whole_dims},
      {"aten::var_mean.correction", in_float32(), "", "", kNo, whole_dims},
      {"aten::std_mean.correction", in_float32(), "", "", kNo, whole_dims},
      {"aten::prod.dim_int", in_float32(), "", "", kNo, whole_dims},
      {"aten::any.dim", in_widest(), "", "", kNo, whole_dims},
      {"aten::all.dim", in_widest(), "", "", kNo, whole_dims},
  };
  return rows;
}

}  // namespace epl

// What gates choose by: the largest elements of a row and where they stand, their order, running
// sums. Over a cut dimension the devices find the largest of all by one number a row.
#include <limits>

#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

// The dimension that is searched; none where it is all elements of several.
std::optional<size_t> dim_of(const Graph& graph, const Node& node) {
  const size_t rank = input_sizes(graph, node, 0).size();
  const c10::IValue& dim = node.arguments[*argument_named(node, "dim")].constant;
  if (rank == 0) return std::nullopt;
  if (!dim.isNone()) return wrap_dim(dim.toInt(), rank);
  return rank == 1 ? std::optional<size_t>(0) : std::nullopt;
}

// topk, sort, cumsum: the same number of dimensions comes out.
std::optional<Pattern> along(const Graph& graph, const Node& node) {
  const auto dim = dim_of(graph, node);
  if (!dim) return std::nullopt;
  const std::string word = with_whole(letters(input_sizes(graph, node, 0).size()), *dim);
  Pattern pattern{{word}, {}, "", ""};
  pattern.outputs.assign(outputs_of(node).size(), word);
  return pattern;
}

// kthvalue, median: the dimension goes, unless keepdim.
std::optional<Pattern> reduced(const Graph& graph, const Node& node) {
  const auto dim = dim_of(graph, node);
  if (!dim) return std::nullopt;
  const std::string word = letters(input_sizes(graph, node, 0).size());
  const bool keeps = sizes_of(graph, outputs_of(node)[0]).size() == word.size();
  const std::string to = keeps ? with_whole(word, *dim) : without(word, *dim);
  Pattern pattern{{word}, {}, word.substr(*dim, 1), ""};
  pattern.outputs.assign(outputs_of(node).size(), to);
  return pattern;
}

// max.dim(self, dim, keepdim) -> (values, indices); argmax gives the indices alone.
std::optional<Pattern> extremum_along(const Graph& graph, const Node& node) {
  auto pattern = reduced(graph, node);
  const bool truths = graph.value(tensor_at(node, 0)).type.dtype == c10::ScalarType::Bool;
  if (!pattern || truths) return pattern;
  pattern->expanded.swap(pattern->whole);
  pattern->same.assign(pattern->outputs.size(), pattern->expanded);
  return pattern;
}

// Of integers the smallest is not looked for by opposites, which some of them have not.
std::optional<Pattern> smallest_along(const Graph& graph, const Node& node) {
  auto pattern = extremum_along(graph, node);
  const auto dtype = graph.value(tensor_at(node, 0)).type.dtype;
  const bool integral = c10::isIntegralType(dtype, /*includeBool=*/true);
  if (pattern && integral) pattern->whole += pattern->expanded;
  return pattern;
}

// Each device finds its largest element; among those that equal the largest of all the first
// index counts, as LibTorch has it.
std::vector<ValueId> split_extremum(const LocalNode& at, Emitter& to, bool largest) {
  const ValueId x = at.inputs[0];
  const int64_t dim = at.cut.inputs[0].dim;
  Expression e(to);
  const ValueId mine =
      to.call(largest ? "aten::argmax" : "aten::argmin",
              {value_argument(x), constant_argument(dim), constant_argument(true)});
  ValueId value =
      to.call("aten::gather", {value_argument(x), constant_argument(dim), value_argument(mine)});
  if (!largest) value = e.unary("aten::neg", value);
  ValueId best = e.all_reduce(value, "max");

  const ValueId place =
      e.unary("aten::neg", e.scalar("aten::add.Scalar", mine, shard_of_input(at, 0).piece.begin));
  const ValueId candidate =
      to.call("aten::masked_fill.Scalar",
              {value_argument(place), value_argument(e.binary("aten::lt.Tensor", value, best)),
               constant_argument(std::numeric_limits<int64_t>::min())});
  ValueId index = e.unary("aten::neg", e.all_reduce(candidate, "max"));
  if (!largest) best = e.unary("aten::neg", best);

  const bool keeps = at.output_sizes(0).size() == e.sizes(x).size();
  if (!keeps) {
    best = e.scalar("aten::squeeze.dim", best, dim);
    index = e.scalar("aten::squeeze.dim", index, dim);
  }
  return outputs_of(at.node).size() == 1 ? std::vector<ValueId>{index}
                                         : std::vector<ValueId>{best, index};
}

std::vector<ValueId> split_max_along(const LocalNode& at, Emitter& to) {
  return split_extremum(at, to, true);
}
std::vector<ValueId> split_min_along(const LocalNode& at, Emitter& to) {
  return split_extremum(at, to, false);
}

}  // namespace

Rules gating_rules() {
  constexpr Linear kNo = Linear::kNo;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize, expand
      {"aten::argmax", in_widest(), "", "", kNo, extremum_along, nullptr, split_max_along},
      {"aten::argmin", in_widest(), "", "", kNo, smallest_along, nullptr, split_min_along},
      {"aten::max.dim", in_widest(), "", "", kNo, extremum_along, nullptr, split_max_along},
      {"aten::min.dim", in_widest(), "", "", kNo, smallest_along, nullptr, split_min_along},
      {"aten::topk", in_widest().seconds_each(30e-9), "", "", kNo, along},
      {"aten::sort", in_widest().seconds_each(60e-9), "", "", kNo, along},
      {"aten::sort.stable", in_widest().seconds_each(60e-9), "", "", kNo, along},
      {"aten::cumsum", in_float32(), "", "", Linear::kAll, along},
      {"aten::cumprod", in_float32(), "", "", kNo, along},
      {"aten::logcumsumexp", in_float32(), "", "", kNo, along},
      {"aten::cummax", in_widest(), "", "", kNo, along},
      {"aten::cummin", in_widest(), "", "", kNo, along},
      {"aten::kthvalue", in_widest(), "", "", kNo, reduced},
      {"aten::median.dim", in_widest(), "", "", kNo, reduced},
      {"aten::mode", in_widest(), "", "", kNo, reduced},
  };
  return rows;
}

}  // namespace epl

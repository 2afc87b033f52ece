// Elements by their numbers along a dimension. Reading from a dimension that is cut gives what this
// device holds and zeros for the rest, so that the devices' results sum up; writing into one writes
// what falls into the piece, and the rest into a place behind it that is left out.
#include <algorithm>

#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

// --- gather, scatter: one number for each element ----------------------------------------------

// A letter where all tensors have the same size; in other dimensions a tensor of numbers may be
// smaller than what it counts.
std::string common_word(const Graph& graph, const Node& node, size_t dim) {
  const auto ids = inputs_of(node);
  std::string word = letters(sizes_of(graph, ids[0]).size());
  for (size_t i = 0; i < word.size(); ++i) {
    for (ValueId id : ids) {
      if (sizes_of(graph, id)[i] != sizes_of(graph, ids[0])[i]) word[i] = '1';
    }
  }
  return with_whole(word, dim);
}

std::string with_letter(std::string word, size_t dim, char letter) {
  word[dim] = letter;
  return word;
}

bool same_rank(const Graph& graph, const Node& node) {
  const auto ids = inputs_of(node);
  const size_t rank = sizes_of(graph, ids[0]).size();
  return rank != 0 && std::all_of(ids.begin(), ids.end(),
                                  [&](ValueId id) { return sizes_of(graph, id).size() == rank; });
}

// gather(self, dim, index)
std::optional<Pattern> gather(const Graph& graph, const Node& node) {
  if (!same_rank(graph, node)) return std::nullopt;
  const size_t dim = wrap_dim(int_at(node, 1), input_sizes(graph, node, 0).size());
  const std::string word = common_word(graph, node, dim);
  const std::string index = with_letter(word, dim, 'I');
  return Pattern{{with_letter(word, dim, kIndexed), index}, {index}, "", {kIndexed}};
}

std::vector<ValueId> split_gather(const LocalNode& at, Emitter& to) {
  Node local = local_copy(at);
  Expression e(to);
  const auto within = e.within(tensor_at(local, 2), {shard_of_input(at, 0)});
  local.arguments[2] = value_argument(within.index);
  const ValueId found = to.call("aten::gather", local.arguments);
  return {e.zero_where(e.unary("aten::bitwise_not", within.inside), found)};
}

// scatter.src, scatter_add(self, dim, index, src); scatter.value(self, dim, index, value)
std::optional<Pattern> scatter(const Graph& graph, const Node& node) {
  if (!same_rank(graph, node)) return std::nullopt;
  const size_t dim = wrap_dim(int_at(node, 1), input_sizes(graph, node, 0).size());
  const std::string word = common_word(graph, node, dim);
  const std::string self = with_letter(word, dim, kIndexed);
  Pattern pattern{{self, word}, {self}, "", {kIndexed}};
  if (inputs_of(node).size() == 3) {
    pattern.inputs.push_back(word);
    pattern.partial = InputSets{{0, 2}};
  } else {
    const bool zeros = node.arguments[3].constant.toScalar().equal(0);
    pattern.partial = zeros ? InputSets{{0}} : InputSets();
  }
  return pattern;
}

// scatter_reduce(self, dim, index, src, reduce, include_self): the largest is no sum.
std::optional<Pattern> scatter_reduce(const Graph& graph, const Node& node) {
  auto pattern = scatter(graph, node);
  if (pattern) pattern->partial = InputSets();
  return pattern;
}

std::vector<ValueId> split_scatter(const LocalNode& at, Emitter& to) {
  Node local = local_copy(at);
  const auto dim = static_cast<size_t>(at.cut.inputs[0].dim);
  const Shard shard = shard_of_input(at, 0);
  Expression e(to);
  local.arguments[0] = value_argument(e.one_longer(tensor_at(local, 0), dim));
  local.arguments[2] = value_argument(e.within_or_behind(tensor_at(local, 2), {shard}));
  Sizes sizes = at.output_sizes(0);
  sizes[dim] += 1;
  const ValueId longer = to.call_for(op_name(local), local.arguments, sizes);
  return {e.first(longer, dim, shard.piece.length)};
}

// --- index_select, index_add: one number for each slice ----------------------------------------

// index_select(self, dim, index)
std::optional<Pattern> index_select(const Graph& graph, const Node& node) {
  const std::string word = letters(input_sizes(graph, node, 0).size());
  if (word.empty()) return std::nullopt;
  const size_t dim = wrap_dim(int_at(node, 1), word.size());
  const bool has_dim = !input_sizes(graph, node, 2).empty();
  return Pattern{{with_letter(word, dim, kIndexed), has_dim ? "I" : ""},
                 {with_letter(word, dim, has_dim ? 'I' : '1')},
                 "",
                 {kIndexed}};
}

std::vector<ValueId> split_index_select(const LocalNode& at, Emitter& to) {
  Node local = local_copy(at);
  const auto dim = static_cast<size_t>(at.cut.inputs[0].dim);
  const Sizes sizes = at.output_sizes(0);
  Expression e(to);
  const auto within = e.within(tensor_at(local, 2), {shard_of_input(at, 0)});
  local.arguments[2] = value_argument(within.index);
  const ValueId found = to.call_for("aten::index_select", local.arguments, sizes);
  const ValueId outside = e.unary("aten::bitwise_not", within.inside);
  return {e.zero_where(e.spread(outside, dim, sizes.size()), found)};
}

// index_add, index_copy(self, dim, index, source)
std::optional<Pattern> index_add(const Graph& graph, const Node& node) {
  const std::string word = letters(input_sizes(graph, node, 0).size());
  const bool fits = !word.empty() && input_sizes(graph, node, 2).size() == 1 &&
                    input_sizes(graph, node, 3).size() == word.size();
  if (!fits) return std::nullopt;
  const size_t dim = wrap_dim(int_at(node, 1), word.size());
  const std::string self = with_letter(word, dim, kIndexed);
  Pattern pattern{{self, "1", with_whole(word, dim)}, {self}, "", {kIndexed}};
  pattern.partial = InputSets{{0, 2}};
  return pattern;
}

// index_fill(self, dim, index, value)
std::optional<Pattern> index_fill(const Graph& graph, const Node& node) {
  const std::string word = letters(input_sizes(graph, node, 0).size());
  if (word.empty()) return std::nullopt;
  const std::string self = with_whole(word, wrap_dim(int_at(node, 1), word.size()));
  return Pattern{{self, std::string(input_sizes(graph, node, 2).size(), '1')}, {self}, "", ""};
}

}  // namespace

Rules gather_rules() {
  constexpr Linear kNo = Linear::kNo;
  constexpr Linear kFirst = Linear::kFirst;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize, expand
      {"aten::gather", in_widest().gathers(), "", "", kFirst, gather, nullptr, split_gather},
      {"aten::scatter.src", in_widest().changes_some(), "", "", kNo, scatter, nullptr,
       split_scatter},
      {"aten::scatter.value", in_widest().changes_some(), "", "", kNo, scatter, nullptr,
       split_scatter},
      {"aten::scatter_add", in_widest().seconds_each(3e-9).changes_some(), "", "", kNo, scatter,
       nullptr, split_scatter},
      {"aten::scatter_reduce.two", in_widest().changes_some(), "", "", kNo, scatter_reduce, nullptr,
       split_scatter},
      {"aten::index_fill.int_Scalar", in_widest().changes_some(), "", "", kNo, index_fill},
      {"aten::index_select", in_widest().gathers(), "", "", kFirst, index_select, nullptr,
       split_index_select},
      {"aten::index_add", in_widest().seconds_each(3e-9).changes_some(), "", "", kNo, index_add,
       nullptr, split_scatter},
      {"aten::index_copy", in_widest().changes_some(), "", "", kNo, index_add, nullptr,
       split_scatter},
  };
  return rows;
}

}  // namespace epl

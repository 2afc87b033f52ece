// index and index_put: x[:, i, j] with tensors of numbers for some dimensions. What is said of cut
// dimensions in rules_gather.cc holds where one dimension is indexed; several of them stay whole.
#include <algorithm>

#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

struct IndexWords {
  std::string self;
  std::vector<std::string> indices;
  std::string numbers;  // the letters of all indices broadcast to each other
  std::string result;
  Sizes result_sizes;
  size_t place = 0;  // of the dimensions of the indices in the result
};

// The dimensions that have a tensor of numbers; none where one of them is a mask.
std::vector<size_t> indexed_dims(const Graph& graph, const Node& node) {
  std::vector<size_t> dims;
  const auto& ids = node.arguments[1].values;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == kNoValue) continue;
    if (graph.value(ids[i]).type.dtype != c10::ScalarType::Long) return {};
    dims.push_back(i);
  }
  return dims;
}

Sizes broadcast_sizes(const Sizes& a, const Sizes& b) {
  Sizes sizes(std::max(a.size(), b.size()), 1);
  for (const Sizes* from : {&a, &b}) {
    const size_t added = sizes.size() - from->size();
    for (size_t i = 0; i < from->size(); ++i) {
      if ((*from)[i] != 1) sizes[added + i] = (*from)[i];
    }
  }
  return sizes;
}

// Dimensions that are not indexed go through. Those of the indices take the place of the indexed
// ones, or the first where these do not stand together.
std::optional<IndexWords> index_words(const Graph& graph, const Node& node) {
  const auto dims = indexed_dims(graph, node);
  if (dims.empty()) return std::nullopt;
  const auto& ids = node.arguments[1].values;
  Sizes shape;
  for (size_t dim : dims) shape = broadcast_sizes(shape, sizes_of(graph, ids[dim]));

  IndexWords words;
  words.numbers = letters(shape.size(), 'P');
  for (size_t dim : dims) {
    words.indices.push_back(broadcast_word(sizes_of(graph, ids[dim]), words.numbers, shape));
  }
  const Sizes& self = input_sizes(graph, node, 0);
  words.self = letters(self.size());
  for (size_t i = 0; i < self.size(); ++i) {
    if (std::find(dims.begin(), dims.end(), i) != dims.end()) {
      words.self[i] = dims.size() == 1 ? kIndexed : '1';
    } else {
      words.result += words.self[i];
      words.result_sizes.push_back(self[i]);
    }
  }
  const bool together = dims.back() - dims.front() + 1 == dims.size();
  words.place = together ? dims.front() : 0;
  words.result.insert(words.place, words.numbers);
  words.result_sizes.insert(words.result_sizes.begin() + static_cast<std::ptrdiff_t>(words.place),
                            shape.begin(), shape.end());
  return words;
}

// index.Tensor(self, indices)
std::optional<Pattern> index(const Graph& graph, const Node& node) {
  const auto words = index_words(graph, node);
  if (!words) return std::nullopt;
  Pattern pattern{{words->self}, {words->result}, "", {kIndexed}};
  pattern.inputs.insert(pattern.inputs.end(), words->indices.begin(), words->indices.end());
  return pattern;
}

// Numbers below zero count from the end of the whole.
Expression::Range numbers_of(const LocalNode& at) {
  return {shard_of_input(at, 0), std::nullopt, /*from_end=*/true};
}

std::vector<ValueId> split_index(const LocalNode& at, Emitter& to) {
  Node local = local_copy(at);
  const auto dim = static_cast<size_t>(at.cut.inputs[0].dim);
  Expression e(to);
  ValueId& numbers = local.arguments[1].values[dim];
  const auto within = e.within(numbers, numbers_of(at));
  numbers = within.index;
  const ValueId found = to.call("aten::index.Tensor", local.arguments);
  const ValueId outside = e.unary("aten::bitwise_not", within.inside);
  return {e.zero_where(e.spread(outside, dim, e.sizes(found).size()), found)};
}

// index_put(self, indices, values, accumulate); what is written several times is written in order,
// so that numbers stay whole.
std::optional<Pattern> index_put(const Graph& graph, const Node& node) {
  const auto words = index_words(graph, node);
  if (!words) return std::nullopt;
  Pattern pattern{{words->self}, {words->self}, words->numbers, {kIndexed}};
  pattern.inputs.insert(pattern.inputs.end(), words->indices.begin(), words->indices.end());
  pattern.inputs.push_back(
      broadcast_word(input_sizes(graph, node, 2), words->result, words->result_sizes));
  pattern.partial = InputSets{{0, pattern.inputs.size() - 1}};
  return pattern;
}

std::vector<ValueId> split_index_put(const LocalNode& at, Emitter& to) {
  Node local = local_copy(at);
  const auto dim = static_cast<size_t>(at.cut.inputs[0].dim);
  const Shard shard = shard_of_input(at, 0);
  Expression e(to);
  local.arguments[0] = value_argument(e.one_longer(tensor_at(local, 0), dim));
  ValueId& numbers = local.arguments[1].values[dim];
  numbers = e.within_or_behind(numbers, numbers_of(at));
  Sizes sizes = at.output_sizes(0);
  sizes[dim] += 1;
  const ValueId longer = to.call_for(op_name(local), local.arguments, sizes);
  return {e.first(longer, dim, shard.piece.length)};
}

}  // namespace

Rules index_rules() {
  constexpr Linear kNo = Linear::kNo;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize, expand
      {"aten::index.Tensor", in_widest().gathers(), "", "", Linear::kFirst, index, nullptr,
       split_index},
      {"aten::index_put", in_widest().seconds_each(5e-9).changes_some(), "", "", kNo, index_put,
       nullptr, split_index_put},
      {"aten::_index_put_impl", in_widest().seconds_each(5e-9), "", "", kNo, index_put, nullptr,
       split_index_put},
  };
  return rows;
}

}  // namespace epl

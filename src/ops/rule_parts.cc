#include "ops/rule_parts.h"

#include <algorithm>

#include "base/check.h"

namespace epl {

bool has_tensor(const Node& node, size_t argument) {
  const auto& values = node.arguments[argument].values;
  return !values.empty() && values[0] != kNoValue;
}

ValueId tensor_at(const Node& node, size_t argument) {
  return node.arguments[argument].values.at(0);
}

std::optional<size_t> argument_named(const Node& node, const std::string& name) {
  const auto& arguments = node.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == name) return i;
  }
  return std::nullopt;
}

int64_t int_at(const Node& node, size_t argument) {
  return node.arguments[argument].constant.toInt();
}

Sizes ints_at(const Node& node, size_t argument) {
  const c10::IValue& constant = node.arguments[argument].constant;
  if (constant.isNone()) return {};
  if (constant.isInt()) return {constant.toInt()};
  Sizes numbers;
  for (const auto& number : constant.toListRef()) numbers.push_back(number.toInt());
  return numbers;
}

void set(Node& node, size_t argument, c10::IValue constant) {
  node.arguments[argument] = constant_argument(std::move(constant));
}

std::vector<ValueId> inputs_of(const Node& node) {
  std::vector<ValueId> ids;
  for_each_input(node, [&](ValueId id) { ids.push_back(id); });
  return ids;
}

std::vector<ValueId> outputs_of(const Node& node) {
  std::vector<ValueId> ids;
  for_each_output(node, [&](ValueId id) { ids.push_back(id); });
  return ids;
}

const Sizes& sizes_of(const Graph& graph, ValueId id) { return graph.value(id).type.sizes; }

const Sizes& input_sizes(const Graph& graph, const Node& node, size_t argument) {
  return sizes_of(graph, tensor_at(node, argument));
}

size_t wrap_dim(int64_t dim, size_t rank) {
  const int64_t wrapped = dim < 0 ? dim + static_cast<int64_t>(std::max<size_t>(rank, 1)) : dim;
  return static_cast<size_t>(wrapped);
}

std::vector<size_t> wrap_dims(const Sizes& dims, size_t rank) {
  std::vector<size_t> wrapped;
  for (int64_t dim : dims) wrapped.push_back(wrap_dim(dim, rank));
  return wrapped;
}

std::string letters(size_t count, char first) {
  std::string word;
  for (size_t i = 0; i < count; ++i) word += static_cast<char>(first + static_cast<char>(i));
  return word;
}

std::string broadcast_word(const Sizes& from, const std::string& word, const Sizes& sizes) {
  EPL_ASSERT(from.size() <= sizes.size(), "broadcasting only adds dimensions");
  const size_t added = sizes.size() - from.size();
  std::string result;
  for (size_t i = 0; i < from.size(); ++i) {
    result += from[i] == sizes[added + i] ? word[added + i] : '1';
  }
  return result;
}

Pattern one_to_one(std::string from, std::string to) {
  return {{std::move(from)}, {std::move(to)}, "", ""};
}

Pattern pointwise_pattern(const Graph& graph, const Node& node) {
  Pattern pattern;
  const auto outputs = outputs_of(node);
  const Sizes& sizes = sizes_of(graph, outputs.at(0));
  const std::string word = letters(sizes.size());
  for (ValueId id : inputs_of(node)) {
    pattern.inputs.push_back(broadcast_word(sizes_of(graph, id), word, sizes));
  }
  for (ValueId id : outputs) {
    pattern.outputs.push_back(broadcast_word(sizes_of(graph, id), word, sizes));
  }
  return pattern;
}

Pattern leading_dims(const Graph& graph, const Node& node, size_t trailing) {
  Pattern pattern;
  const auto word_of = [&](ValueId id) {
    const size_t rank = sizes_of(graph, id).size();
    EPL_ASSERT(rank >= trailing, concat(op_name(node), " reads fewer dimensions than it works on"));
    return letters(rank - trailing) + std::string(trailing, '1');
  };
  for (ValueId id : inputs_of(node)) pattern.inputs.push_back(word_of(id));
  for (ValueId id : outputs_of(node)) pattern.outputs.push_back(word_of(id));
  return pattern;
}

void add_input(Pattern& pattern, const Node& node, size_t argument, const std::string& word) {
  if (has_tensor(node, argument)) pattern.inputs.push_back(word);
}

std::string without(std::string word, size_t dim) {
  word.erase(dim, 1);
  return word;
}

std::string with_whole(std::string word, size_t dim) {
  word[dim] = '1';
  return word;
}

Node local_copy(const LocalNode& at) {
  Node node = at.node;
  size_t next = 0;
  for_each_input(node, [&](ValueId& id) { id = at.inputs.at(next++); });
  node.results.clear();
  return node;
}

Shard shard_of_input(const LocalNode& at, size_t index) {
  return shard_of(sizes_of(at.graph, inputs_of(at.node).at(index)), at.cut.inputs.at(index),
                  at.parts, at.part);
}

Shard shard_of_output(const LocalNode& at, size_t index) {
  return shard_of(sizes_of(at.graph, outputs_of(at.node).at(index)), at.cut.outputs.at(index),
                  at.parts, at.part);
}

Sizes input_sizes_here(const LocalNode& at, size_t index) {
  return local_sizes(sizes_of(at.graph, inputs_of(at.node).at(index)), at.cut.inputs.at(index),
                     at.parts, at.part);
}

ValueId Expression::zero_where(ValueId mask, ValueId x) {
  return to_.call("aten::masked_fill.Scalar",
                  {value_argument(x), value_argument(mask), constant_argument(0)});
}

ValueId Expression::over(const std::string& op, ValueId x, Sizes dims, bool keep_dims) {
  return to_.call(
      op, {value_argument(x), constant_argument(std::move(dims)), constant_argument(keep_dims)});
}

ValueId Expression::all_reduce(ValueId x, const char* op) {
  return to_.call("epl::all_reduce", {value_argument(x), constant_argument(std::string(op)),
                                      constant_argument(std::string(kPartAxis))});
}

ValueId Expression::converted(ValueId x, c10::ScalarType type) {
  if (dtype(x) == type) return x;
  return scalar("aten::_to_copy", x, static_cast<int64_t>(type));
}

Expression::Within Expression::within(ValueId index, const Range& range) {
  const auto ignored = range.ignored ? c10::IValue(*range.ignored) : c10::IValue();
  const ValueId shifted =
      to_.call("epl_rows::index_in_piece",
               {value_argument(index), constant_argument(range.numbers.piece.begin),
                constant_argument(range.numbers.whole), constant_argument(ignored),
                constant_argument(range.from_end)});
  const ValueId inside =
      binary("aten::bitwise_and.Tensor", scalar("aten::ge.Scalar", shifted, int64_t{0}),
             scalar("aten::lt.Scalar", shifted, range.numbers.piece.length));
  const ValueId local = binary("aten::mul.Tensor", shifted, inside);
  return {inside, local};
}

ValueId Expression::within_or_behind(ValueId index, const Range& range) {
  const Within found = within(index, range);
  const ValueId outside = unary("aten::bitwise_not", found.inside);
  return to_.call("aten::masked_fill.Scalar", {value_argument(found.index), value_argument(outside),
                                               constant_argument(range.numbers.piece.length)});
}

ValueId Expression::one_longer(ValueId x, size_t dim) {
  Sizes pads((sizes(x).size() - dim) * 2, 0);  // from the last dimension, two numbers for each
  pads.back() = 1;
  return scalar("aten::constant_pad_nd", x, pads);
}

ValueId Expression::first(ValueId x, size_t dim, int64_t length) {
  return to_.call("aten::slice.Tensor",
                  {value_argument(x), constant_argument(static_cast<int64_t>(dim)),
                   constant_argument(0), constant_argument(length)});
}

ValueId Expression::spread(ValueId x, size_t dim, size_t rank) {
  Sizes shape(rank, 1);
  std::copy(sizes(x).begin(), sizes(x).end(), shape.begin() + static_cast<std::ptrdiff_t>(dim));
  return scalar("aten::view", x, shape);
}

}  // namespace epl

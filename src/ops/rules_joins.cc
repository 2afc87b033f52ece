// Tensors put together and taken apart along a dimension, which stays whole; elements moved along
// one. All are linear.
#include <algorithm>
#include <set>

#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

// Where the argument of this name says which dimension.
size_t dim_of(const Node& node, size_t rank, const std::string& name = "dim") {
  return wrap_dim(int_at(node, *argument_named(node, name)), rank);
}

std::string input_word(const Graph& graph, const Node& node) {
  return letters(input_sizes(graph, node, 0).size());
}

std::optional<Pattern> cat(const Graph& graph, const Node& node) {
  const size_t rank = sizes_of(graph, outputs_of(node)[0]).size();
  const std::string word = with_whole(letters(rank), dim_of(node, rank));
  Pattern pattern;
  pattern.outputs = {word};
  for (ValueId id : inputs_of(node)) {
    const size_t dims = sizes_of(graph, id).size();
    pattern.inputs.push_back(dims == rank ? word
                                          : std::string(dims, '1'));  // an empty one fits any
  }
  return pattern;
}

std::optional<Pattern> stack(const Graph& graph, const Node& node) {
  const size_t rank = sizes_of(graph, outputs_of(node)[0]).size();
  const size_t dim = dim_of(node, rank);
  Pattern pattern;
  pattern.outputs = {with_whole(letters(rank), dim)};
  pattern.inputs.assign(inputs_of(node).size(), without(letters(rank), dim));
  return pattern;
}

std::optional<Pattern> split(const Graph& graph, const Node& node) {
  const std::string word = input_word(graph, node);
  const std::string cut = with_whole(word, dim_of(node, word.size()));
  Pattern pattern = one_to_one(cut, cut);
  pattern.outputs.assign(outputs_of(node).size(), cut);
  return pattern;
}

std::optional<Pattern> unbind(const Graph& graph, const Node& node) {
  const std::string word = input_word(graph, node);
  const size_t dim = dim_of(node, word.size());
  Pattern pattern = one_to_one(with_whole(word, dim), "");
  pattern.outputs.assign(outputs_of(node).size(), without(word, dim));
  return pattern;
}

// slice_backward(grad, input_sizes, dim, start, end, step)
std::optional<Pattern> slice_backward(const Graph& graph, const Node& node) {
  const std::string word = input_word(graph, node);
  const std::string cut = with_whole(word, dim_of(node, word.size()));
  return one_to_one(cut, cut);
}

// select_backward(grad, input_sizes, dim, index)
std::optional<Pattern> select_backward(const Graph& graph, const Node& node) {
  const size_t rank = sizes_of(graph, outputs_of(node)[0]).size();
  const size_t dim = dim_of(node, rank);
  return one_to_one(without(letters(rank), dim), with_whole(letters(rank), dim));
}

void localize_input_sizes(const LocalNode& at, Node& local) { set(local, 1, at.output_sizes(0)); }

// slice_scatter(self, src, dim, start, end, step)
std::optional<Pattern> slice_scatter(const Graph& graph, const Node& node) {
  const std::string word = input_word(graph, node);
  const std::string cut = with_whole(word, dim_of(node, word.size()));
  return Pattern{{cut, cut}, {cut}, "", ""};
}

// select_scatter(self, src, dim, index)
std::optional<Pattern> select_scatter(const Graph& graph, const Node& node) {
  const std::string word = input_word(graph, node);
  const size_t dim = dim_of(node, word.size());
  const std::string cut = with_whole(word, dim);
  return Pattern{{cut, without(word, dim)}, {cut}, "", ""};
}

// diagonal(self, offset, dim1, dim2): the two dimensions become one at the end.
std::string off_diagonal(size_t rank, const Node& node) {
  std::string word = letters(rank);
  const size_t first = dim_of(node, rank, "dim1");
  const size_t second = dim_of(node, rank, "dim2");
  return with_whole(with_whole(word, first), second);
}

std::string diagonal_word(std::string word) {
  word.erase(std::remove(word.begin(), word.end(), '1'), word.end());
  return word + '1';
}

std::optional<Pattern> diagonal(const Graph& graph, const Node& node) {
  const std::string word = off_diagonal(input_sizes(graph, node, 0).size(), node);
  return one_to_one(word, diagonal_word(word));
}

std::optional<Pattern> diagonal_backward(const Graph& graph, const Node& node) {
  const std::string word = off_diagonal(sizes_of(graph, outputs_of(node)[0]).size(), node);
  return one_to_one(diagonal_word(word), word);
}

// unfold(self, dimension, size, step): windows along a dimension, their elements at the end.
std::optional<Pattern> unfold(const Graph& graph, const Node& node) {
  const std::string word = input_word(graph, node);
  const std::string cut = with_whole(word, dim_of(node, word.size(), "dimension"));
  return one_to_one(cut, cut + '1');
}

std::optional<Pattern> unfold_backward(const Graph& graph, const Node& node) {
  const size_t rank = sizes_of(graph, outputs_of(node)[0]).size();
  const std::string cut = with_whole(letters(rank), dim_of(node, rank));
  return one_to_one(cut + '1', cut);
}

std::optional<Pattern> repeat(const Graph& graph, const Node& node) {
  const std::string word = input_word(graph, node);
  const Sizes repeats = ints_at(node, 1);
  std::string from = word;
  std::string to(repeats.size() - word.size(), '1');
  for (size_t i = 0; i < word.size(); ++i) {
    if (repeats[to.size()] != 1) from[i] = '1';
    to += from[i];
  }
  return one_to_one(from, to);
}

// flip, roll: along some dimensions, which stay whole.
std::optional<Pattern> along_dims(const Graph& graph, const Node& node) {
  std::string word = input_word(graph, node);
  const auto dims = wrap_dims(ints_at(node, *argument_named(node, "dims")), word.size());
  if (dims.empty()) return std::nullopt;  // rolls all elements
  for (size_t dim : dims) word[dim] = '1';
  return one_to_one(word, word);
}

std::optional<Pattern> triangle(const Graph& graph, const Node& node) {
  std::string word = input_word(graph, node);
  std::fill(word.end() - 2, word.end(), '1');
  return one_to_one(word, word);
}

// constant_pad_nd(self, pad, value): `pad` counts from the last dimension, two numbers for each.
std::optional<Pattern> pad(const Graph& graph, const Node& node) {
  std::string word = input_word(graph, node);
  const Sizes pads = ints_at(node, 1);
  for (size_t i = 0; i < pads.size(); ++i) {
    if (pads[i] != 0) word[word.size() - 1 - i / 2] = '1';
  }
  Pattern pattern = one_to_one(word, word);
  const bool zeros = node.arguments[2].constant.toScalar().equal(0);
  pattern.partial = zeros ? InputSets{{0}} : InputSets();
  return pattern;
}

// glu(self, dim) and glu_backward(grad, self, dim): halves of a dimension.
std::optional<Pattern> glu(const Graph& graph, const Node& node) {
  const std::string word = input_word(graph, node);
  const std::string cut = with_whole(word, dim_of(node, word.size()));
  Pattern pattern = one_to_one(cut, cut);
  pattern.inputs.assign(inputs_of(node).size(), cut);
  return pattern;
}

}  // namespace

Rules join_rules() {
  constexpr Linear kAll = Linear::kAll;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize
      {"aten::cat", in_widest(), "", "", kAll, cat},
      {"aten::stack", in_widest(), "", "", kAll, stack},
      {"aten::split.Tensor", in_widest().view(), "", "", kAll, split},
      {"aten::split_with_sizes", in_widest().view(), "", "", kAll, split},
      {"aten::unsafe_split.Tensor", in_widest().view(), "", "", kAll, split},
      {"aten::unsafe_split_with_sizes", in_widest().view(), "", "", kAll, split},
      {"aten::unbind.int", in_widest().view(), "", "", kAll, unbind},
      {"aten::slice_backward", in_widest(), "", "", kAll, slice_backward, localize_input_sizes},
      {"aten::select_backward", in_widest(), "", "", kAll, select_backward, localize_input_sizes},
      {"aten::slice_scatter", in_widest(), "", "", kAll, slice_scatter},
      {"aten::select_scatter", in_widest(), "", "", kAll, select_scatter},
      {"aten::diagonal", in_widest().view(), "", "", kAll, diagonal},
      {"aten::diagonal_backward", in_widest(), "", "", kAll, diagonal_backward,
       localize_input_sizes},
      {"aten::unfold", in_widest().view(), "", "", kAll, unfold},
      {"aten::unfold_backward", in_widest(), "", "", kAll, unfold_backward, localize_input_sizes},
      {"aten::repeat", in_widest(), "", "", kAll, repeat},
      {"aten::flip", in_widest(), "", "", kAll, along_dims},
      {"aten::roll", in_widest(), "", "", kAll, along_dims},
      {"aten::tril", in_widest(), "", "", kAll, triangle},
      {"aten::triu", in_widest(), "", "", kAll, triangle},
      {"aten::constant_pad_nd", in_widest(), "", "", Linear::kNo, pad},
      {"aten::glu", in_widest(), "", "", Linear::kNo, glu},
      {"aten::glu_backward", in_widest(), "", "", Linear::kFirst, glu},
  };
  return rows;
}

}  // namespace epl

// Views: the same elements under other dimensions. All are linear.
#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

std::string word_of(const Graph& graph, const Node& node) {
  return letters(input_sizes(graph, node, 0).size());
}

std::optional<Pattern> transpose_matrix(const Graph& graph, const Node& node) {
  const std::string word = word_of(graph, node);
  return one_to_one(word, {word.rbegin(), word.rend()});
}

std::optional<Pattern> transpose(const Graph& graph, const Node& node) {
  const std::string word = word_of(graph, node);
  std::string turned = word;
  if (!word.empty()) {
    std::swap(turned[wrap_dim(int_at(node, 1), word.size())],
              turned[wrap_dim(int_at(node, 2), word.size())]);
  }
  return one_to_one(word, turned);
}

std::optional<Pattern> permute(const Graph& graph, const Node& node) {
  const std::string word = word_of(graph, node);
  std::string permuted;
  for (size_t dim : wrap_dims(ints_at(node, 1), word.size())) permuted += word[dim];
  return one_to_one(word, permuted);
}

std::optional<Pattern> same_dims(const Graph& graph, const Node& node) {
  const std::string word = word_of(graph, node);
  return one_to_one(word, word);
}

// Dimensions in groups of equal product. The outermost dimensions of a group that are more than 1
// correspond: cutting [heads * columns] by whole heads cuts [heads, columns] in heads. Those
// further inside would be cut into pieces that do not lie together.
std::optional<Pattern> view(const Graph& graph, const Node& node) {
  const Sizes& from = input_sizes(graph, node, 0);
  const Sizes& to = sizes_of(graph, outputs_of(node)[0]);
  std::string from_word(from.size(), '1');
  std::string to_word(to.size(), '1');
  char next = 'a';
  size_t i = 0;
  size_t j = 0;
  while (true) {
    while (i < from.size() && from[i] == 1) ++i;
    while (j < to.size() && to[j] == 1) ++j;
    if (i == from.size() || j == to.size()) break;
    from_word[i] = to_word[j] = next++;
    int64_t from_product = from[i++];
    int64_t to_product = to[j++];
    while (from_product != to_product) {
      if (from_product < to_product) {
        if (i == from.size()) return std::nullopt;
        from_product *= from[i++];
      } else {
        if (j == to.size()) return std::nullopt;
        to_product *= to[j++];
      }
    }
  }
  return one_to_one(from_word, to_word);
}

// Strides of the whole would not fit a piece.
void localize_view(const LocalNode& at, Node& local) {
  if (op_name(local) == "aten::_reshape_alias") {
    local.op = find_op("aten::view");
    local.arguments.resize(2);
  }
  set(local, 1, at.output_sizes(0));
}

std::optional<Pattern> expand(const Graph& graph, const Node& node) {
  return pointwise_pattern(graph, node);
}

void localize_expand(const LocalNode& at, Node& local) { set(local, 1, at.output_sizes(0)); }

std::optional<Pattern> unsqueeze(const Graph& graph, const Node& node) {
  const std::string word = word_of(graph, node);
  std::string longer = word;
  longer.insert(wrap_dim(int_at(node, 1), word.size() + 1), 1, '1');
  return one_to_one(word, longer);
}

std::optional<Pattern> squeeze(const Graph& graph, const Node& node) {
  std::string word = word_of(graph, node);
  const Sizes& sizes = input_sizes(graph, node, 0);
  const bool one_dim = node.arguments.size() == 2 && !sizes.empty();
  std::string shorter;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const bool asked = !one_dim || i == wrap_dim(int_at(node, 1), sizes.size());
    if (sizes[i] == 1 && asked) {
      word[i] = '1';
    } else {
      shorter += word[i];
    }
  }
  return one_to_one(word, shorter);
}

// A piece of one element must not lose its dimension.
void localize_squeeze(const LocalNode& at, Node& local) {
  local.op = find_op("aten::view");
  local.arguments = {local.arguments[0], constant_argument(at.output_sizes(0))};
}

std::optional<Pattern> slice(const Graph& graph, const Node& node) {
  const std::string word = word_of(graph, node);
  const size_t dim = wrap_dim(int_at(node, 1), word.size());
  Pattern pattern = one_to_one(word, word);
  const bool all = sizes_of(graph, outputs_of(node)[0])[dim] == input_sizes(graph, node, 0)[dim];
  if (!all) pattern.whole = word.substr(dim, 1);
  return pattern;
}

// Only a slice that takes all of a dimension is cut there.
void localize_slice(const LocalNode& at, Node& local) {
  const size_t dim = wrap_dim(int_at(local, 1), at.output_sizes(0).size());
  if (at.cut.inputs[0] == Layout::cut(static_cast<int>(dim))) {
    set(local, 2, int64_t{0});
    set(local, 3, std::numeric_limits<int64_t>::max());
  }
}

std::optional<Pattern> select(const Graph& graph, const Node& node) {
  std::string word = word_of(graph, node);
  const size_t dim = wrap_dim(int_at(node, 1), word.size());
  std::string rest = word;
  rest.erase(dim, 1);
  word[dim] = '1';
  return one_to_one(word, rest);
}

// The real and the imaginary part are a dimension of their own.
std::optional<Pattern> as_real(const Graph& graph, const Node& node) {
  const std::string word = word_of(graph, node);
  return one_to_one(word, word + '1');
}

std::optional<Pattern> as_complex(const Graph& graph, const Node& node) {
  const std::string word = letters(sizes_of(graph, outputs_of(node)[0]).size());
  return one_to_one(word + '1', word);
}

}  // namespace

Rules view_rules() {
  constexpr Linear kAll = Linear::kAll;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize
      {"aten::t", in_widest().view(), "", "", kAll, transpose_matrix},
      {"aten::transpose.int", in_widest().view(), "", "", kAll, transpose},
      {"aten::permute", in_widest().view(), "", "", kAll, permute},
      {"aten::alias", in_widest().view(), "", "", kAll, same_dims},
      {"aten::detach", in_widest().view(), "", "", kAll, same_dims},
      {"aten::lift_fresh", in_widest().view(), "", "", kAll, same_dims},
      {"aten::view", in_widest().reshapes(), "", "", kAll, view, localize_view},
      {"aten::_unsafe_view", in_widest().reshapes(), "", "", kAll, view, localize_view},
      {"aten::reshape", in_widest().reshapes(), "", "", kAll, view, localize_view},
      {"aten::_reshape_alias", in_widest().reshapes(), "", "", kAll, view, localize_view},
      {"aten::expand", in_widest().view(), "", "", kAll, expand, localize_expand},
      {"aten::unsqueeze", in_widest().view(), "", "", kAll, unsqueeze},
      {"aten::squeeze", in_widest().view(), "", "", kAll, squeeze, localize_squeeze},
      {"aten::squeeze.dim", in_widest().view(), "", "", kAll, squeeze, localize_squeeze},
      {"aten::slice.Tensor", in_widest().view(), "", "", kAll, slice, localize_slice},
      {"aten::select.int", in_widest().view(), "", "", kAll, select},
      {"aten::view_as_real", in_widest().view(), "", "", kAll, as_real},
      {"aten::view_as_complex", in_float32().view(), "", "", kAll, as_complex},
  };
  return rows;
}

}  // namespace epl

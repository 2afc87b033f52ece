// Normalisations, cut over what they do not average over.
#include <algorithm>

#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

// [rows..., normalized...]: only rows are cut.
struct LayerNormWords {
  std::string all;
  std::string statistics;
  std::string normalized;
};

LayerNormWords layer_norm_words(const Sizes& sizes, size_t normalized) {
  LayerNormWords words;
  words.all = letters(sizes.size());
  words.normalized = words.all.substr(sizes.size() - normalized);
  words.statistics = words.all.substr(0, sizes.size() - normalized) + std::string(normalized, '1');
  return words;
}

// native_layer_norm(input, normalized_shape, weight?, bias?, eps) -> (output, mean, rstd)
std::optional<Pattern> layer_norm(const Graph& graph, const Node& node) {
  const auto words = layer_norm_words(input_sizes(graph, node, 0), ints_at(node, 1).size());
  Pattern pattern{
      {words.all}, {words.all, words.statistics, words.statistics}, words.normalized, ""};
  add_input(pattern, node, 2, words.normalized);
  add_input(pattern, node, 3, words.normalized);
  return pattern;
}

// (grad, input, normalized_shape, mean, rstd, weight?, bias?, mask) -> (grad of input, of weight,
// of bias)
std::optional<Pattern> layer_norm_backward(const Graph& graph, const Node& node) {
  const auto words = layer_norm_words(input_sizes(graph, node, 1), ints_at(node, 2).size());
  Pattern pattern{
      {words.all, words.all, words.statistics, words.statistics}, {}, words.normalized, ""};
  add_input(pattern, node, 5, words.normalized);
  add_input(pattern, node, 6, words.normalized);
  const std::string made[] = {words.all, words.normalized, words.normalized};
  for (size_t i = 0; i < 3; ++i) {
    if (node.results[i].values.at(0) != kNoValue) pattern.outputs.push_back(made[i]);
  }
  return pattern;
}

}  // namespace

Rules norm_rules() {
  constexpr Linear kNo = Linear::kNo;
  constexpr Linear kFirst = Linear::kFirst;
  constexpr bool kDense = true;
  static const OpRule rows[] = {
      // operator                linear  pattern     localize  expand   wants_dense
      {"aten::native_layer_norm", "", "", kNo, layer_norm},
      {"aten::native_layer_norm_backward", "", "", kFirst, layer_norm_backward, nullptr, nullptr,
       kDense},
  };
  return rows;
}

}  // namespace epl

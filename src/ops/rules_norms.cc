// Normalisations, cut over what they do not average over.
#include <algorithm>

#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

// One word for each result; those of gradients that nobody asked for fall out.
void add_outputs(Pattern& pattern, const Node& node, const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (node.results[i].values.at(0) != kNoValue) pattern.outputs.push_back(words[i]);
  }
}

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
  add_outputs(pattern, node, {words.all, words.normalized, words.normalized});
  return pattern;
}

// --- group norm -------------------------------------------------------------------------------

std::string group_norm_word(const Sizes& sizes) {
  return "nc" + std::string(sizes.size() - 2, '1');
}

// native_group_norm(input, weight?, bias?, N, C, HxW, group, eps) -> (output, mean, rstd). The
// statistics are [samples, groups]: channels are cut by whole groups.
std::optional<Pattern> group_norm(const Graph& graph, const Node& node) {
  const std::string word = group_norm_word(input_sizes(graph, node, 0));
  Pattern pattern{{word}, {word, "nc", "nc"}, "", ""};
  add_input(pattern, node, 1, "c");
  add_input(pattern, node, 2, "c");
  return pattern;
}

void localize_group_norm(const LocalNode& at, Node& local) {
  const Sizes output = at.output_sizes(0);
  set(local, 3, output[0]);
  set(local, 4, output[1]);
  set(local, 6, at.output_sizes(1)[1]);
}

// (grad, input, mean, rstd, weight?, N, C, HxW, group, mask)
std::optional<Pattern> group_norm_backward(const Graph& graph, const Node& node) {
  const std::string word = group_norm_word(input_sizes(graph, node, 1));
  Pattern pattern{{word, word, "nc", "nc"}, {}, "", ""};
  add_input(pattern, node, 4, "c");
  add_outputs(pattern, node, {word, "c", "c"});
  return pattern;
}

void localize_group_norm_backward(const LocalNode& at, Node& local) {
  const Sizes input = input_sizes_here(at, 1);
  set(local, 5, input[0]);
  set(local, 6, input[1]);
  set(local, 8, input_sizes_here(at, 2)[1]);
}

// --- batch norm -------------------------------------------------------------------------------

// A training step averages over all but channels, and writes their running statistics. Otherwise
// nothing is averaged.
std::string batch_norm_word(const Sizes& sizes, bool training) {
  std::string word = training ? std::string(sizes.size(), '1') : letters(sizes.size(), 'n');
  word[1] = 'c';
  return word;
}

// What is not used is an empty tensor.
std::string channel_word(const Graph& graph, ValueId id) {
  return sizes_of(graph, id) == Sizes{0} ? "1" : "c";
}

// native_batch_norm(input, weight?, bias?, mean?, variance?, training, momentum, eps)
std::optional<Pattern> batch_norm(const Graph& graph, const Node& node) {
  const std::string word =
      batch_norm_word(input_sizes(graph, node, 0), node.arguments[5].constant.toBool());
  Pattern pattern{{word}, {word}, "", ""};
  for (size_t i = 1; i <= 4; ++i) add_input(pattern, node, i, "c");
  for (size_t i = 1; i <= 2; ++i) {
    pattern.outputs.push_back(channel_word(graph, outputs_of(node)[i]));
  }
  return pattern;
}

// (grad, input, weight?, mean?, variance?, saved mean?, saved invstd?, train, eps, mask)
std::optional<Pattern> batch_norm_backward(const Graph& graph, const Node& node) {
  const std::string word =
      batch_norm_word(input_sizes(graph, node, 1), node.arguments[7].constant.toBool());
  Pattern pattern{{word, word}, {}, "", ""};
  for (size_t i = 2; i <= 6; ++i) {
    if (has_tensor(node, i)) {
      pattern.inputs.push_back(channel_word(graph, tensor_at(node, i)));
    }
  }
  add_outputs(pattern, node, {word, "c", "c"});
  return pattern;
}

}  // namespace

Rules norm_rules() {
  constexpr Linear kNo = Linear::kNo;
  constexpr Linear kFirst = Linear::kFirst;
  constexpr Wants kDense = Wants::kDense;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize, expand, wants
      {"aten::native_layer_norm", in_float32().seconds_each(1e-9), "", "", kNo, layer_norm},
      {"aten::native_layer_norm_backward", in_float32(), "", "", kFirst, layer_norm_backward,
       nullptr, nullptr, kDense},
      {"aten::native_group_norm", in_float32(), "", "", kNo, group_norm, localize_group_norm,
       nullptr, kDense},
      {"aten::native_group_norm_backward", in_float32(), "", "", kFirst, group_norm_backward,
       localize_group_norm_backward, nullptr, kDense},
      // Reads pictures of lower precision with weights and statistics of float32, in a quarter of
      // the time that float32 takes.
      {"aten::native_batch_norm", as_given().seconds_each(2e-9), "", "", kNo, batch_norm},
      {"aten::native_batch_norm_backward", as_given().seconds_each(3e-9), "", "", kFirst,
       batch_norm_backward},
  };
  return rows;
}

}  // namespace epl

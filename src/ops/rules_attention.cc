// Attention as one operator: what scaled_dot_product_attention becomes on CPU of LibTorch 2,
// where nothing is dropped and no mask has a gradient.
#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

// query [b, h, q, d], key and value [b, h, k, d], a mask that is broadcast to [b, h, q, k]. The
// softmax goes over k and a product over d. A causal one knows its queries by their numbers. Fewer
// heads of keys than of queries serve groups of those: pieces hold whole groups, since both are cut
// alike.
struct AttentionWords {
  std::string queries = "bhqd";
  std::string keys = "bhkd";
  std::string sums = "bhq";  // the logarithm of what a row of the softmax is divided by
  std::string mask;
  std::string whole = "kd";
};

AttentionWords attention_words(const Graph& graph, const Node& node, size_t query) {
  AttentionWords words;
  const size_t mask = *argument_named(node, "attn_mask");
  if (has_tensor(node, mask)) {
    Sizes scores = input_sizes(graph, node, query);
    scores.back() = input_sizes(graph, node, query + 1)[2];
    words.mask = broadcast_word(input_sizes(graph, node, mask), "bhqk", scores);
  }
  const size_t causal = *argument_named(node, "is_causal");
  if (node.arguments[causal].constant.toBool()) words.whole += "q";
  return words;
}

// (query, key, value, dropout_p, is_causal, *, attn_mask?, scale?) -> (output, logsumexp)
std::optional<Pattern> attention(const Graph& graph, const Node& node) {
  const AttentionWords words = attention_words(graph, node, 0);
  Pattern pattern{
      {words.queries, words.keys, words.keys}, {words.queries, words.sums}, words.whole, ""};
  add_input(pattern, node, *argument_named(node, "attn_mask"), words.mask);
  return pattern;
}

// (grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, *, attn_mask?, scale?) ->
// (grad of query, of key, of value)
std::optional<Pattern> attention_backward(const Graph& graph, const Node& node) {
  const AttentionWords words = attention_words(graph, node, 1);
  Pattern pattern{{words.queries, words.queries, words.keys, words.keys, words.queries, words.sums},
                  {words.queries, words.keys, words.keys},
                  words.whole,
                  ""};
  add_input(pattern, node, *argument_named(node, "attn_mask"), words.mask);
  return pattern;
}

}  // namespace

Rules attention_rules() {
  constexpr Wants kDenseRows = Wants::kDenseRows;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize, expand, wants
      {"aten::_scaled_dot_product_flash_attention_for_cpu", in_lower().attends(0, 4, 2), "", "",
       Linear::kNo, attention, nullptr, nullptr, kDenseRows},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", in_lower().attends(1, 7, 5),
       "", "", Linear::kFirst, attention_backward, nullptr, nullptr, kDenseRows},
  };
  return rows;
}

}  // namespace epl

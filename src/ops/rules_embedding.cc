// Rows of a table by their numbers. With the table cut in its rows each device looks up those that
// it holds, and the devices' results sum up.
#include <limits>

#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

// embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse)
std::optional<Pattern> embedding(const Graph& graph, const Node& node) {
  const std::string places = letters(input_sizes(graph, node, 1).size());
  return Pattern{{"VD", places}, {places + "D"}, "", "V"};
}

std::vector<ValueId> split_embedding(const LocalNode& at, Emitter& to) {
  Node local = local_copy(at);
  Expression e(to);
  const auto within = e.within(tensor_at(local, 1), {shard_of_input(at, 0)});
  const ValueId found = to.call_for(
      "aten::embedding", {local.arguments[0], value_argument(within.index)}, at.output_sizes(0));
  const ValueId outside = e.unary("aten::bitwise_not", within.inside);
  return {e.zero_where(e.scalar("aten::unsqueeze", outside, int64_t{-1}), found)};
}

// embedding_dense_backward(grad, indices, num_weights, padding_idx, scale_grad_by_freq)
std::optional<Pattern> embedding_backward(const Graph& graph, const Node& node) {
  const std::string places = letters(input_sizes(graph, node, 1).size());
  Pattern pattern{{places + "D", places}, {"VD"}, "", "V"};
  // How often a number occurs is counted over all of them.
  if (node.arguments[4].constant.toBool()) pattern.whole = places;
  return pattern;
}

// Gradients of rows that other devices hold go to a row more, which is left out.
std::vector<ValueId> split_embedding_backward(const LocalNode& at, Emitter& to) {
  const Node local = local_copy(at);
  const Shard shard = shard_of_output(at, 0);
  Expression e(to);
  const ValueId padding =
      e.scalar("aten::eq.Scalar", tensor_at(local, 1), int_at(local, 3));  // has no gradient
  const ValueId index = to.call("aten::masked_fill.Scalar",
                                {value_argument(e.within_or_behind(tensor_at(local, 1), {shard})),
                                 value_argument(padding), constant_argument(shard.piece.length)});
  const ValueId all = to.call_for(
      "aten::embedding_dense_backward",
      {local.arguments[0], value_argument(index), constant_argument(shard.piece.length + 1),
       constant_argument(shard.piece.length), local.arguments[4]},
      {shard.piece.length + 1, at.output_sizes(0)[1]});
  return {e.first(all, 0, shard.piece.length)};
}

}  // namespace

Rules embedding_rules() {
  constexpr Linear kFirst = Linear::kFirst;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize, expand
      {"aten::embedding", in_widest().gathers(), "", "", kFirst, embedding, nullptr,
       split_embedding},
      {"aten::embedding_dense_backward", in_float32(), "", "", kFirst, embedding_backward, nullptr,
       split_embedding_backward},
  };
  return rows;
}

}  // namespace epl

// Rows of a table by their numbers, and bags of them. With the table cut in its rows each device
// looks up those that it holds, and the devices' results sum up.
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

// --- bags --------------------------------------------------------------------------------------

constexpr int64_t kLargestOfABag = 2;  // mode: 0 is their sum, 1 their mean

// Tensors of bags that the mode does not use have any size.
std::string word_or_unused(const Graph& graph, ValueId id, const Sizes& used, const char* word) {
  const Sizes& sizes = sizes_of(graph, id);
  return sizes == used ? word : std::string(sizes.size(), '1');
}

// _embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights?,
// include_last_offset, padding_idx) -> (output, offset2bag, bag_size, maximum_indices). Where a bag
// ends is known as the step runs, so that bags stay together and only columns are cut.
std::optional<Pattern> bags(const Graph& graph, const Node& node) {
  const auto outputs = outputs_of(node);
  const Sizes& bag_sizes = sizes_of(graph, outputs[0]);
  Pattern pattern{{"1D", "1", "1"}, {"1D", "1", "1"}, "", ""};
  add_input(pattern, node, 6, "1");
  pattern.outputs.push_back(word_or_unused(graph, outputs[3], bag_sizes, "1D"));
  pattern.same = {"", "D", "D", "D"};
  return pattern;
}

// _embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, num_weights,
// scale_grad_by_freq, mode, per_sample_weights?, padding_idx). Cut over bags, a device goes through
// all numbers and skips those of other bags.
std::optional<Pattern> bags_backward(const Graph& graph, const Node& node) {
  const Sizes& grad = input_sizes(graph, node, 0);
  const bool largest = int_at(node, 7) == kLargestOfABag;
  const bool counts = node.arguments[6].constant.toBool();  // over all numbers
  const std::string numbers = largest ? "1" : "I";
  Pattern pattern{{"bD", numbers, numbers}, {"1D"}, "", ""};
  pattern.inputs.push_back(word_or_unused(graph, tensor_at(node, 3), {grad[0]}, "b"));
  pattern.inputs.push_back(largest ? "bD" : std::string(input_sizes(graph, node, 4).size(), '1'));
  add_input(pattern, node, 8, numbers);
  if (counts && !largest) pattern.whole = "bI";
  if (!counts && !largest) pattern.expanded = "b";
  return pattern;
}

// Numbers of other bags, and those that have no gradient, become the number behind the last one.
std::vector<ValueId> of_these_bags(const LocalNode& at, Node local, Emitter& to) {
  const int64_t rows = int_at(local, 5);
  Expression e(to);
  const ValueId index = tensor_at(local, 1);
  const auto bag = e.within(tensor_at(local, 2), {shard_of_input(at, 0)});
  const ValueId skipped =
      e.binary("aten::bitwise_or.Tensor", e.unary("aten::bitwise_not", bag.inside),
               e.scalar("aten::eq.Scalar", index, int_at(local, 9)));
  local.arguments[1] = value_argument(
      to.call("aten::masked_fill.Scalar",
              {value_argument(index), value_argument(skipped), constant_argument(rows)}));
  local.arguments[2] = value_argument(bag.index);
  set(local, 5, rows + 1);
  set(local, 9, rows);
  const ValueId longer = to.call_for("aten::_embedding_bag_dense_backward", local.arguments,
                                     {rows + 1, at.output_sizes(0)[1]});
  return {e.first(longer, 0, rows)};
}

std::vector<ValueId> split_bags_backward(const LocalNode& at, Emitter& to) {
  return of_these_bags(at, local_copy(at), to);
}

// _embedding_bag_backward(grad, indices, offsets, offset2bag, bag_size, maximum_indices,
// num_weights, scale_grad_by_freq, mode, sparse, per_sample_weights?, padding_idx): LibTorch 2
// leaves it to this operator to find the bag of each number.
std::optional<Pattern> bags_backward_by_offsets(const Graph& graph, const Node& node) {
  const Sizes& grad = input_sizes(graph, node, 0);
  const bool largest = int_at(node, 8) == kLargestOfABag;
  const bool counts = node.arguments[7].constant.toBool();
  const bool sparse = node.arguments[9].constant.toBool();
  const bool plain = graph.value(tensor_at(node, 2)).type.dtype == c10::ScalarType::Long;
  if (sparse || !plain) return std::nullopt;
  Pattern pattern{{"bD", "1", "1", "1"}, {"1D"}, "", ""};
  pattern.inputs.push_back(word_or_unused(graph, tensor_at(node, 4), {grad[0]}, "b"));
  pattern.inputs.push_back(largest ? "bD" : std::string(input_sizes(graph, node, 5).size(), '1'));
  add_input(pattern, node, 10, "1");
  if (!largest) (counts ? pattern.whole : pattern.expanded) = "b";
  return pattern;
}

// The bag of a number is the last one that begins there or before.
ValueId bag_of_each(Emitter& to, ValueId indices, ValueId offsets) {
  Expression e(to);
  const Sizes count = e.sizes(indices);
  const ValueId places =
      to.call("aten::arange", {constant_argument(count[0]),
                               constant_argument(static_cast<int64_t>(c10::ScalarType::Long))});
  const ValueId begun =
      to.call_for("aten::bucketize.Tensor",
                  {value_argument(places), value_argument(offsets),
                   constant_argument(/*out_int32=*/false), constant_argument(/*right=*/true)},
                  count);
  return e.scalar("aten::sub.Scalar", begun, int64_t{1});
}

std::vector<ValueId> split_bags_backward_by_offsets(const LocalNode& at, Emitter& to) {
  Node local = local_copy(at);
  auto& arguments = local.arguments;
  arguments[3] = value_argument(bag_of_each(to, tensor_at(local, 1), tensor_at(local, 2)));
  arguments.erase(arguments.begin() + 9);  // sparse
  arguments.erase(arguments.begin() + 2);  // offsets
  return of_these_bags(at, std::move(local), to);
}

// _embedding_bag_per_sample_weights_backward(grad, weight, indices, offsets, offset2bag, mode,
// padding_idx): for each number the product of a row and the gradient of its bag.
std::optional<Pattern> bag_weights_backward(const Graph& graph, const Node& node) {
  const bool told = input_sizes(graph, node, 4) == input_sizes(graph, node, 2);
  Pattern pattern{{"1D", "1D", "I", "1", told ? "I" : "1"}, {"I"}, told ? "" : "I", ""};
  pattern.partial = InputSets{{0}, {1}};
  return pattern;
}

}  // namespace

Rules embedding_rules() {
  constexpr Linear kFirst = Linear::kFirst;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize, expand, wants
      {"aten::embedding", in_widest().gathers(), "", "", kFirst, embedding, nullptr,
       split_embedding},
      {"aten::embedding_dense_backward", in_float32(), "", "", kFirst, embedding_backward, nullptr,
       split_embedding_backward},
      {"aten::_embedding_bag", in_widest().gathers(), "", "", Linear::kNo, bags},
      {"aten::_embedding_bag_dense_backward", in_float32(), "", "", kFirst, bags_backward, nullptr,
       split_bags_backward, Wants::kDense},
      {"aten::_embedding_bag_backward", in_float32(), "", "", kFirst, bags_backward_by_offsets,
       nullptr, split_bags_backward_by_offsets, Wants::kDense},
      {"aten::_embedding_bag_per_sample_weights_backward", in_float32(), "", "", Linear::kNo,
       bag_weights_backward, nullptr, nullptr, Wants::kDense},
  };
  return rows;
}

}  // namespace epl

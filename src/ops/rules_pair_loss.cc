// Losses of pairs of elements: mse_loss and its kin. Those that give a mean divide by the number of
// all elements, so that with elements cut they run as sums.
#include <ATen/core/Reduction.h>

#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

int64_t reduction_of(const Node& node) { return int_at(node, *argument_named(node, "reduction")); }

// Where a gradient comes first, elements are those of the second tensor.
const Sizes& element_sizes(const Graph& graph, const Node& node) {
  return input_sizes(graph, node, argument_named(node, "grad_output") ? 1 : 0);
}

// Whether a tensor is broadcast to `sizes`, and not the other way round.
bool is_broadcast_to(const Sizes& from, const Sizes& sizes) {
  if (from.size() > sizes.size()) return false;
  const size_t before = sizes.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] != 1 && from[i] != sizes[before + i]) return false;
  }
  return true;
}

std::optional<Pattern> pairs(const Graph& graph, const Node& node) {
  const Sizes& sizes = element_sizes(graph, node);
  const std::string word = letters(sizes.size());
  Pattern pattern;
  for (ValueId id : inputs_of(node)) {
    if (!is_broadcast_to(sizes_of(graph, id), sizes)) return std::nullopt;  // is the larger one
    pattern.inputs.push_back(broadcast_word(sizes_of(graph, id), word, sizes));
  }
  const Sizes& made = sizes_of(graph, outputs_of(node)[0]);
  if (!made.empty() && made != sizes) return std::nullopt;  // the target was the larger one
  pattern.outputs = {made.empty() ? "" : word};
  if (reduction_of(node) == at::Reduction::Mean) pattern.expanded = word;
  return pattern;
}

std::vector<ValueId> split_mean_of_pairs(const LocalNode& at, Emitter& to) {
  Node local = local_copy(at);
  set(local, *argument_named(local, "reduction"), int64_t{at::Reduction::Sum});
  const ValueId sum = to.add(local, {at.output_sizes(0)}, at.graph, at.node)[0];
  int64_t count = 1;
  for (int64_t size : element_sizes(at.graph, at.node)) count *= size;
  return {Expression(to).scalar("aten::div.Scalar", sum, count)};
}

}  // namespace

Rules pair_loss_rules() {
  constexpr Linear kNo = Linear::kNo;
  constexpr Linear kFirst = Linear::kFirst;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize, expand
      {"aten::mse_loss", in_float32(), "", "", kNo, pairs, nullptr, split_mean_of_pairs},
      {"aten::mse_loss_backward", in_float32(), "", "", kFirst, pairs, nullptr,
       split_mean_of_pairs},
      {"aten::smooth_l1_loss", in_float32(), "", "", kNo, pairs, nullptr, split_mean_of_pairs},
      {"aten::smooth_l1_loss_backward", in_float32(), "", "", kFirst, pairs, nullptr,
       split_mean_of_pairs},
      {"aten::huber_loss", in_float32(), "", "", kNo, pairs, nullptr, split_mean_of_pairs},
      {"aten::huber_loss_backward", in_float32(), "", "", kFirst, pairs, nullptr,
       split_mean_of_pairs},
      {"aten::soft_margin_loss", in_float32(), "", "", kNo, pairs, nullptr, split_mean_of_pairs},
      {"aten::soft_margin_loss_backward", in_float32(), "", "", kFirst, pairs, nullptr,
       split_mean_of_pairs},
      {"aten::binary_cross_entropy", in_float32(), "", "", kNo, pairs, nullptr,
       split_mean_of_pairs},
      {"aten::binary_cross_entropy_backward", in_float32(), "", "", kFirst, pairs, nullptr,
       split_mean_of_pairs},
      {"aten::binary_cross_entropy_with_logits", in_float32(), "", "", kNo, pairs, nullptr,
       split_mean_of_pairs},
  };
  return rows;
}

}  // namespace epl

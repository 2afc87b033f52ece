// Tensors from nothing, or of the shape of another one: each device makes its piece.
#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

std::optional<Pattern> of_sizes(const Graph& graph, const Node& node) {
  const std::string word = letters(sizes_of(graph, outputs_of(node)[0]).size());
  Pattern pattern;
  pattern.outputs = {word};
  for (ValueId id : inputs_of(node)) {
    pattern.inputs.emplace_back(sizes_of(graph, id).size(), '1');  // tells its type alone
  }
  return pattern;
}

void localize_sizes(const LocalNode& at, Node& local) {
  const bool of_another = !inputs_of(local).empty();
  set(local, of_another ? 1 : 0, at.output_sizes(0));
}

}  // namespace

Rules creation_rules() {
  constexpr Linear kNo = Linear::kNo;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize
      {"aten::zeros_like", in_widest(), "...", "...", Linear::kAll},
      {"aten::ones_like", in_widest(), "...", "..."},
      {"aten::full_like", in_widest(), "...", "..."},
      {"aten::empty_like", in_widest().uninitialized(), "...", "..."},
      {"aten::zeros", in_widest(), "", "", kNo, of_sizes, localize_sizes},
      {"aten::ones", in_widest(), "", "", kNo, of_sizes, localize_sizes},
      {"aten::full", in_widest(), "", "", kNo, of_sizes, localize_sizes},
      {"aten::empty.memory_format", in_widest().uninitialized(), "", "", kNo, of_sizes,
       localize_sizes},
      {"aten::new_zeros", in_widest(), "", "", kNo, of_sizes, localize_sizes},
      {"aten::new_ones", in_widest(), "", "", kNo, of_sizes, localize_sizes},
      {"aten::new_full", in_widest(), "", "", kNo, of_sizes, localize_sizes},
      {"aten::new_empty", in_widest().uninitialized(), "", "", kNo, of_sizes, localize_sizes},
  };
  return rows;
}

}  // namespace epl

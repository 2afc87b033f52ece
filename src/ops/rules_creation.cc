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
  static const OpRule rows[] = {
      // operator                        linear  pattern   localize
      {"aten::zeros_like", "...", "...", Linear::kAll},
      {"aten::ones_like", "...", "..."},
      {"aten::full_like", "...", "..."},
      {"aten::empty_like", "...", "..."},
      {"aten::zeros", "", "", kNo, of_sizes, localize_sizes},
      {"aten::ones", "", "", kNo, of_sizes, localize_sizes},
      {"aten::full", "", "", kNo, of_sizes, localize_sizes},
      {"aten::empty.memory_format", "", "", kNo, of_sizes, localize_sizes},
      {"aten::new_zeros", "", "", kNo, of_sizes, localize_sizes},
      {"aten::new_ones", "", "", kNo, of_sizes, localize_sizes},
      {"aten::new_full", "", "", kNo, of_sizes, localize_sizes},
      {"aten::new_empty", "", "", kNo, of_sizes, localize_sizes},
  };
  return rows;
}

}  // namespace epl

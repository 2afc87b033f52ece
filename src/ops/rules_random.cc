// Random operators: each device draws for its piece from its own stream. What they draw is not what
// one device would have drawn: an exception of docs/exactness.md.
#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

std::optional<Pattern> of_given_sizes(const Graph& graph, const Node& node) {
  Pattern pattern;
  pattern.outputs = {letters(sizes_of(graph, outputs_of(node)[0]).size())};
  return pattern;
}

void localize_size(const LocalNode& at, Node& local) {
  set(local, *argument_named(local, "size"), at.output_sizes(0));
}

}  // namespace

Rules random_rules() {
  constexpr Linear kNo = Linear::kNo;
  static const OpRule rows[] = {
      // operator              inputs  output  linear  pattern  localize
      {"aten::native_dropout", "...", "..."},
      {"aten::native_dropout_backward", "...", "...", Linear::kFirst},
      {"aten::bernoulli", "...", "..."},
      {"aten::bernoulli.p", "...", "..."},
      {"aten::bernoulli.Tensor", "...", "..."},
      {"aten::rand_like", "...", "..."},
      {"aten::randn_like", "...", "..."},
      {"aten::randint_like", "...", "..."},
      {"aten::uniform", "...", "..."},
      {"aten::normal_functional", "...", "..."},
      {"aten::exponential", "...", "..."},
      {"aten::rand", "", "", kNo, of_given_sizes, localize_size},
      {"aten::randn", "", "", kNo, of_given_sizes, localize_size},
      {"aten::randint", "", "", kNo, of_given_sizes, localize_size},
      {"aten::randint.low", "", "", kNo, of_given_sizes, localize_size},
  };
  return rows;
}

}  // namespace epl

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

// multinomial, _sample_dirichlet: the last dimension is one distribution.
std::optional<Pattern> distributions(const Graph& graph, const Node& node) {
  return leading_dims(graph, node, 1);
}

void localize_size(const LocalNode& at, Node& local) {
  set(local, *argument_named(local, "size"), at.output_sizes(0));
}

}  // namespace

Rules random_rules() {
  constexpr Linear kNo = Linear::kNo;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize
      {"aten::native_dropout", in_widest().seconds_each(7e-9).draws_from_process(), "...", "..."},
      {"aten::native_dropout_backward", in_widest(), "...", "...", Linear::kFirst},
      {"aten::bernoulli", in_widest().seconds_each(7e-9).draws().zero_or_one(), "...", "..."},
      {"aten::bernoulli.p", in_widest().seconds_each(7e-9).draws().zero_or_one(), "...", "..."},
      {"aten::bernoulli.Tensor", in_widest().seconds_each(7e-9).draws().zero_or_one(), "...",
       "..."},
      {"aten::rand_like",
       in_widest().seconds_each(7e-9).draws_by_filling("aten::uniform", "", 0, 0, 1), "...", "..."},
      {"aten::randn_like",
       in_widest().seconds_each(10e-9).draws_by_filling("aten::normal_functional", "", 0, 0, 1),
       "...", "..."},
      {"aten::randint_like", in_widest().draws_by_filling("aten::random", "from", 1, 0, 0), "...",
       "..."},
      {"aten::uniform", in_widest().seconds_each(7e-9).draws(), "...", "..."},
      {"aten::normal_functional", in_widest().seconds_each(10e-9).draws(), "...", "..."},
      {"aten::exponential", in_widest().draws(), "...", "..."},
      {"aten::poisson", in_float32().draws(), "...", "..."},
      {"aten::binomial", in_float32().draws(), "...", "..."},
      {"aten::_standard_gamma", in_float32().draws(), "...", "..."},
      {"aten::_sample_dirichlet", in_float32().draws(), "", "", kNo, distributions},
      {"aten::multinomial", in_float32().draws(), "", "", kNo, distributions},
      // Writes what it draws into `noise`, which its backward reads.
      {"aten::rrelu_with_noise", in_widest().seconds_each(7e-9).draws(), "...", "..."},
      {"aten::rand", in_widest().seconds_each(7e-9).draws_by_overload("generator", 1), "", "", kNo,
       of_given_sizes, localize_size},
      {"aten::randn", in_widest().seconds_each(10e-9).draws_by_overload("generator", 1), "", "",
       kNo, of_given_sizes, localize_size},
      {"aten::randint", in_widest().draws_by_overload("generator", 2), "", "", kNo, of_given_sizes,
       localize_size},
      {"aten::randint.low", in_widest().draws_by_overload("low_generator", 3), "", "", kNo,
       of_given_sizes, localize_size},
  };
  return rows;
}

}  // namespace epl

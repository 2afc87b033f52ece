// Sums, means and extrema over dimensions.
#include <algorithm>

#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

// Dimensions that go away: those of the argument, or all where there are none.
std::vector<size_t> reduced_dims(const Graph& graph, const Node& node) {
  const size_t rank = input_sizes(graph, node, 0).size();
  if (rank == 0) return {};
  const bool by_dims = node.arguments.size() > 1 && node.op.schema().arguments()[1].name() == "dim";
  auto dims = by_dims ? wrap_dims(ints_at(node, 1), rank) : std::vector<size_t>();
  if (dims.empty()) {
    for (size_t i = 0; i < rank; ++i) dims.push_back(i);
  }
  std::sort(dims.begin(), dims.end());
  return dims;
}

struct ReducedWords {
  std::string from;
  std::string to;
  std::string gone;  // letters of the dimensions that are reduced
};

ReducedWords reduced_words(const Graph& graph, const Node& node) {
  const size_t rank = input_sizes(graph, node, 0).size();
  const bool keeps = rank != 0 && sizes_of(graph, outputs_of(node)[0]).size() == rank;
  ReducedWords words{letters(rank), "", ""};
  const auto dims = reduced_dims(graph, node);
  for (size_t i = 0; i < rank; ++i) {
    const bool reduced = std::find(dims.begin(), dims.end(), i) != dims.end();
    if (reduced) words.gone += words.from[i];
    if (!reduced) {
      words.to += words.from[i];
    } else if (keeps) {
      words.to += '1';
    }
  }
  return words;
}

std::optional<Pattern> sum(const Graph& graph, const Node& node) {
  const auto words = reduced_words(graph, node);
  return Pattern{{words.from}, {words.to}, "", ""};
}

std::optional<Pattern> mean(const Graph& graph, const Node& node) {
  const auto words = reduced_words(graph, node);
  return Pattern{{words.from}, {words.to}, "", words.gone};
}

// The count is that of the whole.
std::vector<ValueId> split_mean(const LocalNode& at, Emitter& to) {
  Node local = local_copy(at);
  const Sizes& sizes = input_sizes(at.graph, at.node, 0);
  int64_t count = 1;
  for (size_t dim : reduced_dims(at.graph, at.node)) count *= sizes[dim];
  const bool by_dims = local.arguments.size() > 2;
  const ValueId sum =
      to.call(by_dims ? "aten::sum.dim_IntList" : "aten::sum", std::move(local.arguments));
  return {Expression(to).scalar("aten::div.Scalar", sum, count)};
}

}  // namespace

Rules reduction_rules() {
  static const OpRule rows[] = {
      // operator              linear        pattern  localize  expand
      {"aten::sum", "", "", Linear::kAll, sum},
      {"aten::sum.dim_IntList", "", "", Linear::kAll, sum},
      {"aten::mean", "", "", Linear::kAll, mean, nullptr, split_mean},
      {"aten::mean.dim", "", "", Linear::kAll, mean, nullptr, split_mean},
  };
  return rows;
}

}  // namespace epl

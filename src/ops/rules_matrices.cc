// Matrices that are factorised, inverted or solved by, each by itself: cut over what stands in
// front of the last two dimensions. Distances between vectors, and cross products.
#include <algorithm>

#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

// Factors and solutions, pivots, determinants: each result has the dimensions in front, and of the
// matrix none, one or two. Second arguments that are broadcast to the first are not cut.
std::optional<Pattern> matrices(const Graph& graph, const Node& node) {
  const Sizes& first = input_sizes(graph, node, 0);
  const auto in_front = static_cast<std::ptrdiff_t>(first.size()) - 2;
  bool fits = true;
  const auto word_of = [&](ValueId id) {
    const Sizes& sizes = sizes_of(graph, id);
    const auto front = static_cast<size_t>(in_front);
    fits &= sizes.size() >= front && std::equal(first.begin(), first.begin() + in_front,
                                                sizes.begin(), sizes.begin() + in_front);
    return fits ? letters(front) + std::string(sizes.size() - front, '1') : "";
  };
  Pattern pattern;
  for (ValueId id : inputs_of(node)) pattern.inputs.push_back(word_of(id));
  for (ValueId id : outputs_of(node)) pattern.outputs.push_back(word_of(id));
  return fits ? std::optional(pattern) : std::nullopt;
}

// linalg_* have the matrix first and the right sides last, triangular_solve and cholesky_solve the
// other way round. One matrix for all right sides, or one right side for all matrices, is
// broadcast: its rows may be as many as there are matrices, so that only the number of dimensions
// tells.
std::optional<Pattern> solved(const Graph& graph, const Node& node) {
  const auto inputs = inputs_of(node);
  const bool matrix_first = op_name(node).find("linalg_") != std::string::npos;
  const size_t matrix = sizes_of(graph, matrix_first ? inputs.front() : inputs.back()).size();
  const size_t right = sizes_of(graph, matrix_first ? inputs.back() : inputs.front()).size();
  const size_t solution = sizes_of(graph, outputs_of(node)[0]).size();
  const bool alike = right == solution && matrix >= solution;
  return alike ? matrices(graph, node) : std::nullopt;
}

// _linalg_check_errors(info, ...): each device looks at what it has.
std::optional<Pattern> only_looked_at(const Graph& graph, const Node& node) {
  Pattern pattern;
  pattern.inputs = {letters(input_sizes(graph, node, 0).size())};
  return pattern;
}

// linalg_cross(self, other, dim)
std::optional<Pattern> cross(const Graph& graph, const Node& node) {
  Pattern pattern = pointwise_pattern(graph, node);
  const std::string& word = pattern.outputs[0];
  pattern.whole = word[wrap_dim(int_at(node, 2), word.size())];
  return pattern;
}

// --- distances ---------------------------------------------------------------------------------

// [..., p, m] and [..., r, m], with the distances [..., p, r].
struct DistanceWords {
  std::string first;
  std::string second;
  std::string distances;
};

DistanceWords distance_words(const Sizes& first, const Sizes& second, const Sizes& distances) {
  const std::string batch = letters(distances.size() - 2);
  const Sizes all(distances.begin(), distances.end() - 2);
  const auto front = [&](const Sizes& sizes) {
    return broadcast_word(Sizes(sizes.begin(), sizes.end() - 2), batch, all);
  };
  return {front(first) + "PM", front(second) + "RM", batch + "PR"};
}

// _cdist_forward(x1, x2, p, compute_mode)
std::optional<Pattern> distances(const Graph& graph, const Node& node) {
  const DistanceWords words =
      distance_words(input_sizes(graph, node, 0), input_sizes(graph, node, 1),
                     sizes_of(graph, outputs_of(node)[0]));
  return Pattern{{words.first, words.second}, {words.distances}, "M", ""};
}

// _cdist_backward(grad, x1, x2, p, cdist) -> grad of x1
std::optional<Pattern> distances_backward(const Graph& graph, const Node& node) {
  const DistanceWords words = distance_words(
      input_sizes(graph, node, 1), input_sizes(graph, node, 2), input_sizes(graph, node, 0));
  return Pattern{
      {words.distances, words.first, words.second, words.distances}, {words.first}, "M", ""};
}

}  // namespace

Rules matrix_rules() {
  constexpr Linear kNo = Linear::kNo;
  constexpr Linear kFirst = Linear::kFirst;
  constexpr Wants kDense = Wants::kDense;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize, expand, wants
      {"aten::linalg_cholesky_ex", in_float32(), "", "", kNo, matrices},
      {"aten::cholesky_inverse", in_float32(), "", "", kNo, matrices},
      {"aten::linalg_inv_ex", in_float32(), "", "", kNo, matrices},
      {"aten::linalg_lu_factor_ex", in_float32(), "", "", kNo, matrices},
      {"aten::linalg_lu", in_float32(), "", "", kNo, matrices},
      {"aten::lu_unpack", in_float32(), "", "", kNo, matrices},
      {"aten::linalg_qr", in_float32(), "", "", kNo, matrices},
      {"aten::_linalg_det", in_float32(), "", "", kNo, matrices},
      {"aten::_linalg_slogdet", in_float32(), "", "", kNo, matrices},
      {"aten::_linalg_svd", in_float32(), "", "", kNo, matrices},
      {"aten::_linalg_eigh", in_float32(), "", "", kNo, matrices},
      {"aten::linalg_matrix_exp", in_float32(), "", "", kNo, matrices, nullptr, nullptr, kDense},
      {"aten::_linalg_solve_ex", in_float32(), "", "", kNo, solved},
      {"aten::linalg_lu_solve", in_float32(), "", "", kNo, solved},
      {"aten::linalg_solve_triangular", in_float32(), "", "", kNo, solved},
      {"aten::triangular_solve", in_float32(), "", "", kNo, solved},
      {"aten::cholesky_solve", in_float32(), "", "", kNo, solved},
      {"aten::_linalg_check_errors", in_widest(), "", "", kNo, only_looked_at, nullptr, nullptr,
       kDense},
      {"aten::linalg_cross", in_widest(), "", "", Linear::kOneInput, cross},
      {"aten::_cdist_forward", in_float32(), "", "", kNo, distances},
      {"aten::_cdist_backward", in_float32(), "", "", kFirst, distances_backward, nullptr, nullptr,
       kDense},
  };
  return rows;
}

}  // namespace epl

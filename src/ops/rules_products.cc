// Matrix products.
#include <algorithm>

#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

// [..., m, k] times [..., k, n], where all other dimensions are broadcast to each other. It comes
// from passes/batched_products.h.
std::optional<Pattern> matmul(const Graph& graph, const Node& node) {
  const Sizes& sizes = sizes_of(graph, outputs_of(node)[0]);
  const Sizes& left = input_sizes(graph, node, 0);
  const Sizes& right = input_sizes(graph, node, 1);
  if (left.size() < 2 || right.size() < 2) return std::nullopt;
  const std::string batch = letters(sizes.size() - 2);
  const auto word = [&](const Sizes& of, const std::string& matrix) {
    const Sizes others(of.begin(), of.end() - 2);
    return broadcast_word(others, batch, {sizes.begin(), sizes.end() - 2}) + matrix;
  };
  return Pattern{{word(left, "MK"), word(right, "KN")}, {batch + "MN"}, "", ""};
}

// What is added is broadcast to the product.
std::optional<Pattern> add_product(const Graph& graph, const Node& node, const std::string& left,
                                   const std::string& right, const std::string& product) {
  const Sizes& sizes = sizes_of(graph, outputs_of(node)[0]);
  const std::string added = broadcast_word(input_sizes(graph, node, 0), product, sizes);
  return Pattern{{added, left, right}, {product}, "", "k"};
}

std::optional<Pattern> addmm(const Graph& graph, const Node& node) {
  return add_product(graph, node, "mk", "kn", "mn");
}
std::optional<Pattern> baddbmm(const Graph& graph, const Node& node) {
  return add_product(graph, node, "bmk", "bkn", "bmn");
}
std::optional<Pattern> addmv(const Graph& graph, const Node& node) {
  return add_product(graph, node, "mk", "k", "m");
}

// relu or gelu of the sum: all of it stands on one device.
std::optional<Pattern> addmm_activation(const Graph& graph, const Node& node) {
  auto pattern = addmm(graph, node);
  pattern->whole.swap(pattern->expanded);
  return pattern;
}

// _trilinear(i1, i2, i3, expand1, expand2, expand3, sumdim, unroll_dim): the product of three
// tensors that get the dimensions `expand` and lose, summed up, the dimensions `sumdim`
// (torch::bilinear).
std::optional<Pattern> trilinear(const Graph& graph, const Node& node) {
  const size_t rank = input_sizes(graph, node, 0).size() + ints_at(node, 3).size();
  const auto without_dims = [&](size_t argument) {
    std::string word = letters(rank);
    for (size_t dim : wrap_dims(ints_at(node, argument), rank)) word[dim] = ' ';
    word.erase(std::remove(word.begin(), word.end(), ' '), word.end());
    return word;
  };
  Pattern pattern{{without_dims(3), without_dims(4), without_dims(5)}, {without_dims(6)}, "", ""};
  for (size_t i = 0; i < 3; ++i) {
    const Sizes& sizes = input_sizes(graph, node, i);
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      if (sizes[dim] == 1) pattern.inputs[i][dim] = '1';
    }
  }
  return pattern;
}

// With the summed index cut every device would add the first argument again: only device 0 does.
std::vector<ValueId> add_once(const LocalNode& at, Emitter& to, const std::string& product) {
  const Node local = local_copy(at);
  if (at.part == 0) return to.add(local, {at.output_sizes(0)}, at.graph, at.node);
  Expression e(to);
  const ValueId sum = e.binary(product, tensor_at(local, 1), tensor_at(local, 2));
  const c10::IValue& alpha = local.arguments[4].constant;
  const bool plain = alpha.toScalar().equal(1);
  return {plain ? sum : e.scalar("aten::mul.Scalar", sum, alpha)};
}

std::vector<ValueId> split_addmm(const LocalNode& at, Emitter& to) {
  return add_once(at, to, "aten::mm");
}
std::vector<ValueId> split_baddbmm(const LocalNode& at, Emitter& to) {
  return add_once(at, to, "aten::bmm");
}
std::vector<ValueId> split_addmv(const LocalNode& at, Emitter& to) {
  return add_once(at, to, "aten::mv");
}

}  // namespace

Rules product_rules() {
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize, expand
      {"aten::mm", in_lower().product(0), "mk, kn", "mn", Linear::kOneInput},
      {"aten::bmm", in_lower().product(0, 2), "bmk, bkn", "bmn", Linear::kOneInput},
      {"aten::matmul", in_lower().product(0, 2), "", "", Linear::kOneInput, matmul},
      {"aten::mv", in_lower().product(0, 8), "mk, k", "m", Linear::kOneInput},
      {"aten::dot", in_widest().product(0, 8), "k, k", "", Linear::kOneInput},
      {"aten::addmm", in_lower().product(1), "", "", Linear::kNo, addmm, nullptr, split_addmm},
      {"aten::baddbmm", in_lower().product(1, 2), "", "", Linear::kNo, baddbmm, nullptr,
       split_baddbmm},
      {"aten::_addmm_activation", in_lower().product(1), "", "", Linear::kNo, addmm_activation},
      {"aten::_trilinear", in_widest(), "", "", Linear::kOneInput, trilinear},
      {"aten::addmv", in_lower().product(1, 8), "", "", Linear::kNo, addmv, nullptr, split_addmv},
  };
  return rows;
}

}  // namespace epl

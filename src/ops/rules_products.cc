// Matrix products.
#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

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
  static const OpRule rows[] = {
      // operator        inputs      output  linear             pattern  localize  expand
      {"aten::mm", "mk, kn", "mn", Linear::kOneInput},
      {"aten::bmm", "bmk, bkn", "bmn", Linear::kOneInput},
      // Of four dimensions alone: see passes/batched_products.h.
      {"aten::matmul", "bhmk, bhkn", "bhmn", Linear::kOneInput},
      {"aten::mv", "mk, k", "m", Linear::kOneInput},
      {"aten::dot", "k, k", "", Linear::kOneInput},
      {"aten::addmm", "", "", Linear::kNo, addmm, nullptr, split_addmm},
      {"aten::baddbmm", "", "", Linear::kNo, baddbmm, nullptr, split_baddbmm},
      {"aten::addmv", "", "", Linear::kNo, addmv, nullptr, split_addmv},
  };
  return rows;
}

}  // namespace epl

#include "cost/node_work.h"

#include <algorithm>
#include <set>

#include "ops/facts.h"
#include "ops/rule.h"

namespace epl {
namespace {

const OperatorCost& cost_of(const Node& node) {
  static const OperatorCost unknown;
  const OperatorFacts* facts = find_facts(node.op);
  return facts == nullptr ? unknown : facts->cost;
}

const TensorType* type_at(const Graph& graph, const Node& node, size_t argument) {
  if (argument >= node.arguments.size()) return nullptr;
  const Argument& value = node.arguments[argument];
  if (value.kind != Argument::Kind::kValue || value.values[0] == kNoValue) return nullptr;
  return &graph.value(value.values[0]).type;
}

const TensorType* result_type(const Graph& graph, const Node& node) {
  for (const Result& result : node.results) {
    for (ValueId id : result.values) {
      if (id != kNoValue) return &graph.value(id).type;
    }
  }
  return nullptr;
}

double flops_of_product(const Graph& graph, const Node& node, const OperatorCost& row) {
  const TensorType* left = type_at(graph, node, row.argument);
  const TensorType* result = result_type(graph, node);
  if (left == nullptr || result == nullptr || left->sizes.empty()) return 0;
  return 2 * static_cast<double>(result->numel()) * static_cast<double>(left->sizes.back());
}

double flops_of_convolution(const Graph& graph, const Node& node, const OperatorCost& row) {
  const TensorType* input = type_at(graph, node, row.argument);
  const TensorType* weight = type_at(graph, node, row.argument + 1);
  if (input == nullptr || weight == nullptr || weight->sizes.empty()) return 0;
  const c10::IValue& transposed = node.arguments[row.flag].constant;
  // What one element meets: of the output, or of the input where the convolution is transposed.
  const bool from_input = transposed.isBool() && transposed.toBool();
  const TensorType* met = input;
  if (!from_input) met = row.argument == 0 ? result_type(graph, node) : type_at(graph, node, 0);
  if (met == nullptr) return 0;
  const double products = static_cast<double>(weight->numel()) /
                          static_cast<double>(std::max<int64_t>(1, weight->sizes[0]));
  return 2 * row.products * static_cast<double>(met->numel()) * products;
}

// A causal one leaves out the keys behind a query.
double flops_of_attention(const Graph& graph, const Node& node, const OperatorCost& row) {
  const TensorType* query = type_at(graph, node, row.argument);
  const TensorType* key = type_at(graph, node, row.argument + 1);
  if (query == nullptr || key == nullptr || query->sizes.size() != 4) return 0;
  const auto queries = static_cast<double>(query->sizes[2]);
  const auto keys = static_cast<double>(key->sizes[2]);
  const double seen = std::min(queries, keys);
  const double causal = (queries - seen) * keys + seen * (seen + 1) / 2;
  const bool is_causal = node.arguments[row.flag].constant.toBool();
  const double pairs = is_causal ? causal : queries * keys;
  return 2 * row.products * pairs * static_cast<double>(query->numel()) /
         std::max<double>(1, queries);
}

// Each element of time and batch meets both weights.
double flops_of_recurrent_layer(const Graph& graph, const Node& node, const OperatorCost& row) {
  const TensorType* input = type_at(graph, node, 0);
  const TensorType* of_input = type_at(graph, node, 1);
  const TensorType* of_state = type_at(graph, node, 2);
  if (input == nullptr || of_input == nullptr || of_state == nullptr || input->sizes.empty()) {
    return 0;
  }
  const double rows = static_cast<double>(input->numel()) /
                      static_cast<double>(std::max<int64_t>(1, input->sizes.back()));
  return 2 * row.products * rows * static_cast<double>(of_input->numel() + of_state->numel());
}

double bytes_of(const TensorType& type) {
  // An expanded tensor has fewer bytes than elements.
  const auto dense = static_cast<double>(type.numel() * type.item_bytes());
  if (type.layout != c10::kStrided) return dense;
  return std::min(dense, static_cast<double>(type.extent_bytes()));
}

struct Traffic {
  double bytes = 0;
  double elements = 0;  // of the largest tensor
};

Traffic traffic_of(const Graph& graph, const Node& node) {
  Traffic made;
  Traffic read;
  const auto add = [&](Traffic& traffic, ValueId id) {
    const TensorType& type = graph.value(id).type;
    traffic.bytes += bytes_of(type);
    traffic.elements = std::max(traffic.elements, static_cast<double>(type.numel()));
  };
  std::set<ValueId> storages;  // what is read and written in place counts once
  for_each_input(node, [&](ValueId id) {
    storages.insert(graph.value(id).storage);
    add(read, id);
  });
  for_each_output(node, [&](ValueId id) {
    if (storages.count(graph.value(id).storage) == 0) add(made, id);
  });
  if (cost_of(node).kind == OperatorCost::Kind::kGather) return {2 * made.bytes, made.elements};
  return {made.bytes + read.bytes, std::max(made.elements, read.elements)};
}

double flops_of(const Graph& graph, const Node& node) {
  const OperatorCost& row = cost_of(node);
  switch (row.kind) {
    case OperatorCost::Kind::kProduct:
      return flops_of_product(graph, node, row);
    case OperatorCost::Kind::kConvolution:
      return flops_of_convolution(graph, node, row);
    case OperatorCost::Kind::kAttention:
      return flops_of_attention(graph, node, row);
    case OperatorCost::Kind::kRecurrent:
      return flops_of_recurrent_layer(graph, node, row);
    case OperatorCost::Kind::kTraffic:
    case OperatorCost::Kind::kFree:
    case OperatorCost::Kind::kGather:
    case OperatorCost::Kind::kElements:
      return 0;
  }
  return 0;
}

// A left operand without a dimension of rows is one row.
ProductSizes sizes_of_product(const Graph& graph, const Node& node, const OperatorCost& row) {
  const TensorType* left = type_at(graph, node, row.argument);
  const TensorType* result = result_type(graph, node);
  if (left == nullptr || result == nullptr || left->sizes.empty()) return {};
  if (left->numel() == 0 || result->numel() == 0) return {};
  ProductSizes sizes;
  sizes.k = left->sizes.back();
  sizes.m = left->sizes.size() > 1 ? left->sizes[left->sizes.size() - 2] : 1;
  sizes.batch = left->numel() / (sizes.m * sizes.k);
  sizes.n = result->numel() / (sizes.batch * sizes.m);
  return sizes.n == 0 ? ProductSizes() : sizes;
}

}  // namespace

NodeWork work_of(const Graph& graph, const Node& node) {
  NodeWork work;
  if (is_view(graph, node) || makes_uninitialized(node.op)) return work;
  const OperatorCost& row = cost_of(node);
  const Traffic traffic = traffic_of(graph, node);
  // What mostly is a view and copies here.
  const bool copies = row.kind == OperatorCost::Kind::kFree;
  work.kind = copies ? OperatorCost::Kind::kTraffic : row.kind;
  work.flops = flops_of(graph, node);
  work.bytes = traffic.bytes;
  work.elements = traffic.elements;
  work.slower_by = row.slower_by;
  work.seconds_per_element = row.seconds_per_element;
  if (const TensorType* type = result_type(graph, node)) work.dtype = type->dtype;
  if (row.kind == OperatorCost::Kind::kProduct) {
    work.product = sizes_of_product(graph, node, row);
  }
  return work;
}

}  // namespace epl

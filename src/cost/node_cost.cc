#include "cost/node_cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "ops/facts.h"

namespace epl {
namespace {

// Without the underscore of a variant that writes in place: it does the same work.
std::string name_of(const Node& node) {
  std::string name = node.op.operator_name().name;
  if (name.back() == '_') name.pop_back();
  return name;
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

// Matrix products: the argument whose last dimension is summed over, and how much slower than a
// large product it is; those of a batch are small ones.
struct Product {
  size_t left;
  double slower_by;
};
const std::map<std::string, Product> kProducts = {
    {"aten::mm", {0, 1}},    {"aten::addmm", {1, 1}},  {"aten::_addmm_activation", {1, 1}},
    {"aten::bmm", {0, 2}},   {"aten::matmul", {0, 2}}, {"aten::baddbmm", {1, 2}},
    {"aten::mv", {0, 8}},  // each element of the matrix is read for one product
    {"aten::addmv", {1, 8}}, {"aten::dot", {0, 8}}};

// Convolutions: where the input and `transposed` stand; the weight follows the input.
struct Convolution {
  size_t input;
  size_t transposed;
  double products;  // of the size of the forward one
};
const std::map<std::string, Convolution> kConvolutions = {
    {"aten::convolution", {0, 6, 1}},
    {"aten::_convolution", {0, 6, 1}},
    {"aten::convolution_overrideable", {0, 6, 1}},
    {"aten::convolution_backward", {1, 7, 2}},  // of the input and of the weight
    {"aten::convolution_backward_overrideable", {1, 7, 2}}};

// Attention as one operator: where the query stands, with the key behind it, and how many products
// it makes of all queries with all keys.
struct Attention {
  size_t query;
  size_t is_causal;
  double products;
};
const std::map<std::string, Attention> kAttentions = {
    {"aten::_scaled_dot_product_flash_attention_for_cpu", {0, 4, 2}},
    // The scores once more, then the gradients of weights, value, query and key.
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", {1, 7, 5}}};

// Recurrent layers of oneDNN, whose input stands first, the two weights behind it.
const std::map<std::string, double> kProductsOfRecurrentLayers = {
    {"aten::mkldnn_rnn_layer", 1},
    {"aten::mkldnn_rnn_layer_backward", 2}};  // of the input and of the weights

// Operators whose arithmetic outweighs their traffic: seconds an element of the largest tensor they
// touch, on one core.
const std::map<std::string, double> kSecondsPerElement = {
    // The generator of LibTorch gives one number after another.
    {"aten::bernoulli", 7e-9},
    {"aten::native_dropout", 7e-9},
    {"aten::uniform", 7e-9},
    {"aten::rand", 7e-9},
    {"aten::rand_like", 7e-9},
    {"aten::normal", 10e-9},
    {"aten::normal_functional", 10e-9},
    {"aten::randn", 10e-9},
    {"aten::randn_like", 10e-9},
    // Exponentials and the like, in vectors.
    {"aten::exp", 1e-9},
    {"aten::log", 1e-9},
    {"aten::tanh", 2e-9},
    {"aten::sigmoid", 1e-9},
    {"aten::sin", 1e-9},
    {"aten::cos", 1e-9},
    {"aten::erf", 1e-9},
    {"aten::gelu", 1e-9},
    {"aten::gelu_backward", 2e-9},
    {"aten::silu", 1e-9},
    {"aten::silu_backward", 1e-9},
    {"aten::softplus", 2e-9},
    {"aten::_softmax", 1e-9},
    {"aten::_safe_softmax", 2e-9},
    {"aten::_log_softmax", 1e-9},
    // Several passes over the tensor.
    {"aten::native_layer_norm", 1e-9},
    {"aten::native_batch_norm", 2e-9},
    {"aten::native_batch_norm_backward", 3e-9},
    {"aten::max_pool2d_with_indices", 6e-9},
    // Element by element, by indices or masks.
    {"aten::masked_fill", 2e-9},
    {"aten::index_put", 5e-9},
    {"aten::_index_put_impl", 5e-9},
    {"aten::index_add", 3e-9},
    {"aten::scatter_add", 3e-9},
    {"aten::sort", 60e-9},
    {"aten::topk", 30e-9},
};

// They read as many elements of their first argument as they give.
const std::set<std::string> kGathers = {"aten::embedding",     "aten::index_select",  "aten::index",
                                        "aten::gather",        "aten::select_copy",   "aten::take",
                                        "aten::embedding_bag", "aten::_embedding_bag"};

double flops_of_convolution(const Graph& graph, const Node& node, const Convolution& row) {
  const TensorType* input = type_at(graph, node, row.input);
  const TensorType* weight = type_at(graph, node, row.input + 1);
  if (input == nullptr || weight == nullptr || weight->sizes.empty()) return 0;
  const c10::IValue& transposed = node.arguments[row.transposed].constant;
  // What one element meets: of the output, or of the input where the convolution is transposed.
  const bool from_input = transposed.isBool() && transposed.toBool();
  const TensorType* met = input;
  if (!from_input) met = row.input == 0 ? result_type(graph, node) : type_at(graph, node, 0);
  if (met == nullptr) return 0;
  const double products = static_cast<double>(weight->numel()) /
                          static_cast<double>(std::max<int64_t>(1, weight->sizes[0]));
  return 2 * row.products * static_cast<double>(met->numel()) * products;
}

// A causal one leaves out the keys behind a query.
double flops_of_attention(const Graph& graph, const Node& node, const Attention& row) {
  const TensorType* query = type_at(graph, node, row.query);
  const TensorType* key = type_at(graph, node, row.query + 1);
  if (query == nullptr || key == nullptr || query->sizes.size() != 4) return 0;
  const auto queries = static_cast<double>(query->sizes[2]);
  const auto keys = static_cast<double>(key->sizes[2]);
  const double seen = std::min(queries, keys);
  const double causal = (queries - seen) * keys + seen * (seen + 1) / 2;
  const bool is_causal = node.arguments[row.is_causal].constant.toBool();
  const double pairs = is_causal ? causal : queries * keys;
  return 2 * row.products * pairs * static_cast<double>(query->numel()) /
         std::max<double>(1, queries);
}

// Each element of time and batch meets both weights.
double flops_of_recurrent_layer(const Graph& graph, const Node& node, double products) {
  const TensorType* input = type_at(graph, node, 0);
  const TensorType* of_input = type_at(graph, node, 1);
  const TensorType* of_state = type_at(graph, node, 2);
  if (input == nullptr || of_input == nullptr || of_state == nullptr || input->sizes.empty()) {
    return 0;
  }
  const double rows = static_cast<double>(input->numel()) /
                      static_cast<double>(std::max<int64_t>(1, input->sizes.back()));
  return 2 * products * rows * static_cast<double>(of_input->numel() + of_state->numel());
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
  if (kGathers.count(name_of(node)) != 0) return {2 * made.bytes, made.elements};
  return {made.bytes + read.bytes, std::max(made.elements, read.elements)};
}

double slower_by(const Graph& graph, const Node& node) {
  const TensorType* type = result_type(graph, node);
  const double wide = type != nullptr && type->item_bytes() == 8 ? 2 : 1;  // half fit into a vector
  const auto product = kProducts.find(name_of(node));
  return product == kProducts.end() ? wide : wide * product->second.slower_by;
}

}  // namespace

double NodeCosts::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

bool is_view(const Graph& graph, const Node& node) {
  if (!written_arguments(node).empty() || node.expects) return false;
  std::set<ValueId> read;
  for_each_input(node, [&](ValueId id) { read.insert(graph.value(id).storage); });
  bool any = false;
  bool all = true;
  for_each_output(node, [&](ValueId id) {
    any = true;
    all &= read.count(graph.value(id).storage) != 0;
  });
  return any && all;
}

double estimated_flops(const Graph& graph, const Node& node) {
  const auto product = kProducts.find(name_of(node));
  if (product != kProducts.end()) {
    const TensorType* left = type_at(graph, node, product->second.left);
    const TensorType* result = result_type(graph, node);
    if (left == nullptr || result == nullptr || left->sizes.empty()) return 0;
    return 2 * static_cast<double>(result->numel()) * static_cast<double>(left->sizes.back());
  }
  const auto convolution = kConvolutions.find(name_of(node));
  if (convolution != kConvolutions.end()) {
    return flops_of_convolution(graph, node, convolution->second);
  }
  const auto attention = kAttentions.find(name_of(node));
  if (attention != kAttentions.end()) return flops_of_attention(graph, node, attention->second);
  const auto recurrent = kProductsOfRecurrentLayers.find(name_of(node));
  if (recurrent != kProductsOfRecurrentLayers.end()) {
    return flops_of_recurrent_layer(graph, node, recurrent->second);
  }
  return 0;
}

double estimated_seconds(const Graph& graph, const Node& node, const Machine& machine) {
  if (is_view(graph, node) || makes_uninitialized(node.op)) return 0;
  const Traffic traffic = traffic_of(graph, node);
  const auto row = kSecondsPerElement.find(name_of(node));
  const double each = row == kSecondsPerElement.end() ? 0 : row->second;
  const double arithmetic = estimated_flops(graph, node) * slower_by(graph, node);
  return machine.seconds_per_call +
         std::max({arithmetic / machine.flops_per_second, traffic.bytes / machine.bytes_per_second,
                   each * traffic.elements});
}

namespace {

// The same for operators that do the same work.
std::string signature_of(const Graph& graph, const Node& node) {
  std::string text = op_name(node);
  for_each_input(node, [&](ValueId id) { text += " " + print_type(graph.value(id).type); });
  text += " ->";
  for_each_output(node, [&](ValueId id) { text += " " + print_type(graph.value(id).type); });
  return text;
}

double median(std::vector<double>& times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// The recorded times of nodes that are alike, made one.
std::map<std::string, double> typical_times(const Graph& graph) {
  std::map<std::string, std::vector<double>> times;
  for (const Node& node : graph.nodes) {
    if (node.origin.seconds > 0) times[signature_of(graph, node)].push_back(node.origin.seconds);
  }
  std::map<std::string, double> typical;
  for (auto& [signature, recorded] : times) typical[signature] = median(recorded);
  return typical;
}

}  // namespace

NodeCosts node_costs(const Graph& graph, const Machine& machine) {
  const std::map<std::string, double> typical = typical_times(graph);
  NodeCosts costs;
  for (const Node& node : graph.nodes) {
    if (is_view(graph, node)) {
      costs.seconds.push_back(0);
      continue;
    }
    const auto time = typical.find(signature_of(graph, node));
    costs.seconds.push_back(time == typical.end() ? estimated_seconds(graph, node, machine)
                                                  : time->second);
  }
  costs.measured = !typical.empty();
  return costs;
}

bool take_shorter_times(Graph& graph, const Graph& again) {
  const auto same = [](const Node& a, const Node& b) {
    return a.op.operator_name() == b.op.operator_name() && a.origin.call == b.origin.call &&
           a.phase == b.phase;
  };
  if (!std::equal(graph.nodes.begin(), graph.nodes.end(), again.nodes.begin(), again.nodes.end(),
                  same)) {
    return false;
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    double& seconds = graph.nodes[i].origin.seconds;
    seconds = std::min(seconds, again.nodes[i].origin.seconds);
  }
  return true;
}

}  // namespace epl

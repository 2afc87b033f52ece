#include "ops/facts.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/mutex.h"
#include "ops/emit.h"
#include "ops/rule.h"

namespace epl {
namespace {

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

const std::string& name_of(const c10::OperatorHandle& op) { return op.operator_name().name; }

bool contains(const std::set<std::string>& names, const c10::OperatorHandle& op) {
  return names.count(name_of(op)) != 0;
}

// Of the operator itself: a variant that writes in place is another one.
bool has_trait(const c10::OperatorHandle& op, OperatorTrait trait) {
  if (name_of(op).back() == '_') return false;
  const OperatorFacts* facts = find_facts(op);
  return facts != nullptr && facts->has(trait);
}

constexpr RunningStatistics kRunningStatistics[] = {
    {"aten::native_batch_norm", 3, 5},
    {"aten::cudnn_batch_norm", 3, 5},
    {"aten::miopen_batch_norm", 3, 5},
};

// Functional names that do not follow the rule "drop the underscore, keep the overload".
const std::map<std::string, std::vector<std::string>> kFunctionalNames = {
    {"aten::bernoulli_.float", {"aten::bernoulli.p"}},
    {"aten::normal_", {"aten::normal_functional"}},
};

// They change what memory a tensor has. LibTorch lists pure variants of them too, which a graph
// whose values have fixed places cannot use.
const std::set<std::string> kMovesMemory = {
    "aten::resize_",           "aten::resize_as_",     "aten::set_",
    "aten::resize_as_sparse_", "aten::sparse_resize_", "aten::sparse_resize_and_clear_"};

const std::set<std::string> kResizing = {"aten::resize_", "aten::resize_as_"};

const std::set<std::string> kOverwriting = {
    "aten::copy_",   "aten::fill_",       "aten::zero_",     "aten::uniform_",
    "aten::normal_", "aten::bernoulli_",  "aten::random_",   "aten::exponential_",
    "aten::cauchy_", "aten::log_normal_", "aten::geometric_"};

const std::set<std::string> kGivesTruth = {"aten::lt_",          "aten::le_",
                                           "aten::gt_",          "aten::ge_",
                                           "aten::eq_",          "aten::ne_",
                                           "aten::logical_not_", "aten::logical_and_",
                                           "aten::logical_or_",  "aten::logical_xor_",
                                           "aten::less_",        "aten::less_equal_",
                                           "aten::greater_",     "aten::greater_equal_",
                                           "aten::not_equal_"};

const std::set<std::string> kMetadata = {"aten::is_same_size",
                                         "aten::is_coalesced",
                                         "aten::sparse_dim",
                                         "aten::dense_dim",
                                         "aten::_dimI",
                                         "aten::_dimV",
                                         "aten::is_floating_point",
                                         "aten::is_set_to",
                                         "aten::is_pinned",
                                         "aten::_is_zerotensor",
                                         "aten::size",
                                         "aten::stride",
                                         "aten::dim",
                                         "aten::result_type",
                                         "aten::can_cast",
                                         "aten::_version",
                                         "aten::is_complex",
                                         "aten::is_signed"};

// The argument whose contents decide the shape of the result.
const std::map<std::string, size_t> kDecidesShape = {
    {"aten::nonzero", 0},
    {"aten::masked_select", 1},
    {"aten::_unique", 0},
    {"aten::_unique2", 0},
    {"aten::unique_dim", 0},
    {"aten::unique_consecutive", 0},
    {"aten::unique_dim_consecutive", 0},
    {"aten::repeat_interleave", 0},
    {"aten::bincount", 0},
    {"aten::_pack_padded_sequence", 1},
    {"aten::_values", 0},  // of a sparse tensor: as many as it has elements
    {"aten::values", 0},
    {"aten::_indices", 0},
    {"aten::indices", 0},
};

// Of all composite operators of LibTorch 1.13 that have tensors as arguments. Reads by item() are
// operators themselves.
const std::map<std::string, std::vector<size_t>> kReadWhileComposing = {
    {"aten::ctc_loss.Tensor", {2, 3}},
    {"aten::tensor_split.tensor_indices_or_sections", {1}},
    {"aten::lstm.data", {1}},
    {"aten::gru.data", {1}},
    {"aten::rnn_tanh.data", {1}},
    {"aten::rnn_relu.data", {1}},
    {"aten::_pad_packed_sequence", {1}},
    {"aten::_pack_padded_sequence_backward", {2}},
    {"aten::_reshape_from_tensor", {1}},
    {"aten::sparse_coo_tensor.indices", {0}},
};

// max_pool1d only where no gradient is asked for.
const std::set<std::string> kComputesUnseen = {
    "aten::max_pool1d",
    "aten::_rowwise_prune",
    "aten::choose_qparams_optimized",
    "aten::_sobol_engine_draw",
};

// All operators by their name without the overload; made once, operators registered after are
// missed and simply have no variants.
const std::map<std::string, std::vector<c10::OperatorHandle>>& overloads() {
  static const auto* const table = [] {
    auto* result = new std::map<std::string, std::vector<c10::OperatorHandle>>();
    auto& dispatcher = c10::Dispatcher::singleton();
    auto names = dispatcher.getAllOpNames();
    std::sort(names.begin(), names.end(), [](const auto& a, const auto& b) {
      return std::tie(a.name, a.overload_name) < std::tie(b.name, b.overload_name);
    });
    for (const auto& name : names) {
      if (auto op = dispatcher.findSchema(name)) (*result)[name.name].push_back(*op);
    }
    return result;
  }();
  return *table;
}

bool same_arguments(const std::vector<c10::Argument>& a, const std::vector<c10::Argument>& b,
                    size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (*a[i].type() != *b[i].type()) return false;
  }
  return true;
}

bool writes_nothing(const c10::FunctionSchema& schema) {
  return std::none_of(schema.arguments().begin(), schema.arguments().end(), is_written);
}

bool replaces(const c10::OperatorHandle& candidate, const c10::FunctionSchema& schema,
              size_t inputs) {
  const auto& other = candidate.schema();
  return writes_nothing(other) && other.arguments().size() == inputs &&
         other.returns().size() == schema.returns().size() &&
         same_arguments(other.arguments(), schema.arguments(), inputs);
}

size_t count_inputs(const c10::FunctionSchema& schema) {
  return static_cast<size_t>(std::count_if(schema.arguments().begin(), schema.arguments().end(),
                                           [](const auto& a) { return !a.is_out(); }));
}

std::optional<c10::OperatorHandle> find_functional(const c10::OperatorHandle& op) {
  if (contains(kMovesMemory, op)) return std::nullopt;
  const auto& schema = op.schema();
  const size_t inputs = count_inputs(schema);
  const std::string full = c10::toString(op.operator_name());
  if (const auto named = kFunctionalNames.find(full); named != kFunctionalNames.end()) {
    for (const auto& candidate : named->second) {
      const auto found = find_op(candidate);
      if (replaces(found, schema, inputs)) return found;
    }
  }
  std::string name = name_of(op);
  if (inputs == schema.arguments().size()) {
    if (name.back() != '_') return std::nullopt;
    name.pop_back();
  }
  const auto candidates = overloads().find(name);
  if (candidates == overloads().end()) return std::nullopt;
  std::optional<c10::OperatorHandle> any;
  for (const auto& candidate : candidates->second) {
    if (!replaces(candidate, schema, inputs)) continue;
    if (candidate.operator_name().overload_name == op.operator_name().overload_name) {
      return candidate;
    }
    if (!any) any = candidate;
  }
  return any;
}

// Losses compute all elements into out= and then shrink it to their mean or sum. Those of nll_loss
// write the result alone.
bool uses_out_as_scratch(const c10::OperatorHandle& op) {
  const auto& arguments = op.schema().arguments();
  return name_of(op).rfind("aten::nll_loss", 0) != 0 &&
         std::any_of(arguments.begin(), arguments.end(),
                     [](const auto& a) { return a.name() == "reduction"; });
}

std::optional<c10::OperatorHandle> find_out(const c10::OperatorHandle& op,
                                            c10::DispatchKey backend) {
  const auto& schema = op.schema();
  if (uses_out_as_scratch(op)) return std::nullopt;
  const auto candidates = overloads().find(name_of(op));
  if (candidates == overloads().end() || !writes_nothing(schema)) return std::nullopt;
  const size_t inputs = schema.arguments().size();
  for (const auto& candidate : candidates->second) {
    const auto& other = candidate.schema();
    if (other.arguments().size() != inputs + schema.returns().size()) continue;
    if (count_inputs(other) != inputs || !candidate.hasKernelForDispatchKey(backend)) continue;
    if (same_arguments(other.arguments(), schema.arguments(), inputs)) return candidate;
  }
  return std::nullopt;
}

std::optional<c10::OperatorHandle> find_in_place(const c10::OperatorHandle& op) {
  const auto candidates = overloads().find(name_of(op) + "_");
  if (candidates == overloads().end()) return std::nullopt;
  for (const auto& candidate : candidates->second) {
    const auto functional = find_functional(candidate);
    if (functional && functional->operator_name() == op.operator_name()) return candidate;
  }
  return std::nullopt;
}

// Answers are asked for again with every capture; finding them walks all operators of a name.
template <typename Find>
std::optional<c10::OperatorHandle> remembered(const std::string& key, Find find) {
  static Mutex mutex;
  static auto* const answers EPL_POINTS_AT_GUARDED_BY(mutex) =
      new std::map<std::string, std::optional<c10::OperatorHandle>>();
  const MutexLock lock(mutex);
  const auto known = answers->find(key);
  if (known != answers->end()) return known->second;
  return answers->emplace(key, find()).first->second;
}

}  // namespace

std::optional<RunningStatistics> running_statistics(const c10::OperatorHandle& op) {
  for (const RunningStatistics& row : kRunningStatistics) {
    if (op.operator_name().name == row.op) return row;
  }
  return std::nullopt;
}

std::vector<size_t> written_arguments(const Node& node) {
  std::vector<size_t> written;
  const auto& arguments = node.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (is_written(arguments[i])) written.push_back(i);
  }
  const auto statistics = running_statistics(node.op);
  if (!statistics || !node.arguments[statistics->training].constant.toBool()) return written;
  for (size_t i : {statistics->mean, statistics->mean + 1}) {
    if (!node.arguments[i].values.empty() && node.arguments[i].values[0] != kNoValue) {
      written.push_back(i);
    }
  }
  return written;
}

bool asked_for(const Node& node, size_t result) {
  const auto& arguments = node.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() != "output_mask") continue;
    return node.arguments[i].constant.toListRef()[result].toBool();
  }
  return true;
}

bool is_workspace(const Node& node, size_t result) {
  return name_of(node.op) == "aten::mkldnn_rnn_layer" && result == 3;
}

std::optional<c10::OperatorHandle> functional_variant(const c10::OperatorHandle& op) {
  return remembered("functional " + c10::toString(op.operator_name()),
                    [&] { return find_functional(op); });
}

std::optional<c10::OperatorHandle> out_variant(const c10::OperatorHandle& op,
                                               c10::DispatchKey backend) {
  return remembered(c10::toString(backend) + (" " + c10::toString(op.operator_name())),
                    [&] { return find_out(op, backend); });
}

std::optional<c10::OperatorHandle> in_place_variant(const c10::OperatorHandle& op) {
  return remembered("in place " + c10::toString(op.operator_name()),
                    [&] { return find_in_place(op); });
}

bool is_random(const c10::OperatorHandle& op) {
  const OperatorFacts* facts = find_facts(op);
  if (facts != nullptr && facts->drawn.kind != Draws::Kind::kNothing) return true;
  const auto& arguments = op.schema().arguments();
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const auto& a) { return a.name() == "generator"; });
}

bool gives_zero_or_one(const c10::OperatorHandle& op) {
  return has_trait(op, OperatorTrait::kZeroOrOne);
}

bool takes_batch_statistics(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    constexpr size_t kTraining = 5;
    const bool norm = node.op.schema().name().find("batch_norm") != std::string::npos;
    return norm && node.arguments.size() > kTraining &&
           node.arguments[kTraining].constant.isBool() &&
           node.arguments[kTraining].constant.toBool();
  });
}

bool draws_random_numbers(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const Node& node) { return is_random(node.op); });
}

bool only_checks(const c10::OperatorHandle& op) {
  return op.schema().returns().empty() && !op.schema().is_varret() && writes_nothing(op.schema());
}

const std::vector<size_t>& contents_read_while_composing(const std::string& op) {
  static const std::vector<size_t> none;
  const auto row = kReadWhileComposing.find(op);
  return row == kReadWhileComposing.end() ? none : row->second;
}

bool computes_unseen(const std::string& op) { return kComputesUnseen.count(op) != 0; }

bool makes_uninitialized(const c10::OperatorHandle& op) {
  return has_trait(op, OperatorTrait::kUninitialized);
}

bool resizes(const c10::OperatorHandle& op) { return contains(kResizing, op); }

bool overwrites(const c10::OperatorHandle& op) { return contains(kOverwriting, op); }

int64_t places_filled(const Graph& graph, const Node& node) {
  const auto elements = [&](size_t argument) {
    return graph.value(node.arguments[argument].values.at(0)).type.numel();
  };
  const std::string name = name_of(node.op);
  if (name == "aten::scatter_") return node.op.schema().arguments().size() == 4 ? elements(2) : 0;
  if (name == "aten::index_copy_") return elements(3);
  if (name != "aten::index_put_" || node.arguments[3].constant.toBool()) return 0;
  // One index alone, of rows: what several pick is not worth the trouble.
  const std::vector<ValueId>& indices = node.arguments[1].values;
  const auto is_mask = [&](ValueId id) {
    const auto dtype = graph.value(id).type.dtype;
    return dtype == c10::kBool || dtype == c10::kByte;
  };
  if (indices.size() != 1 || is_mask(indices[0])) return 0;
  const int64_t rows = graph.value(node.arguments[0].values.at(0)).type.sizes.at(0);
  return rows == 0 ? 0 : elements(0) / rows * graph.value(indices[0]).type.numel();
}

bool gives_truth(const c10::OperatorHandle& op) { return contains(kGivesTruth, op); }

bool changes_place_only(const c10::OperatorHandle& op) {
  if (contains(kMovesMemory, op)) return true;
  if (writes_nothing(op.schema())) return false;
  const auto functional = functional_variant(op);
  if (!functional || functional->schema().returns().empty()) return false;
  const auto* alias = functional->schema().returns()[0].alias_info();
  return alias != nullptr && !alias->isWrite();
}

bool reads_metadata_only(const c10::OperatorHandle& op) { return contains(kMetadata, op); }

std::vector<ValueId> values_that_decide_shape(const Graph& graph, const Node& node) {
  std::vector<ValueId> deciding;
  if (name_of(node.op) == "aten::index") {
    for (ValueId id : node.arguments[1].values) {
      if (id == kNoValue) continue;
      const auto dtype = graph.value(id).type.dtype;
      const bool mask = dtype == c10::ScalarType::Bool || dtype == c10::ScalarType::Byte;
      if (mask) deciding.push_back(id);
    }
    return deciding;
  }
  const auto row = kDecidesShape.find(name_of(node.op));
  if (row == kDecidesShape.end()) return deciding;
  for (ValueId id : node.arguments[row->second].values) {
    if (id != kNoValue) deciding.push_back(id);
  }
  return deciding;
}

bool contents_decide_shape(const c10::OperatorHandle& op) {
  return kDecidesShape.count(name_of(op)) != 0;
}

bool is_pointwise(const c10::OperatorHandle& op) {
  return has_trait(op, OperatorTrait::kPointwise);
}

bool changes_some(const c10::OperatorHandle& op) {
  return has_trait(op, OperatorTrait::kChangesSome);
}

bool reshapes(const c10::OperatorHandle& op) { return has_trait(op, OperatorTrait::kReshapes); }

bool is_collective(const c10::OperatorHandle& op) {
  return has_trait(op, OperatorTrait::kCollective);
}

bool is_view(const Graph& graph, const Node& node) {
  if (node.expects) return false;
  if (!written_arguments(node).empty() && !changes_place_only(node.op)) return false;
  bool any = false;
  bool all = true;
  for_each_output(node, [&](ValueId id) {
    bool shares = false;
    for_each_input(node, [&](ValueId input) {
      shares |= graph.value(input).storage == graph.value(id).storage;
    });
    any = true;
    all &= shares;
  });
  return any && all;
}

namespace {

// Sums that threads add to in whatever order they come have other bits each time.
bool adds_in_any_order(const Node& node) {
  const std::string& name = node.op.schema().name();
  if (name != "aten::index_put" && name != "aten::_index_put_impl_") return false;
  constexpr size_t kAccumulate = 3;
  return !node.arguments[kAccumulate].constant.isBool() ||
         node.arguments[kAccumulate].constant.toBool();
}

}  // namespace

bool is_repeatable(const Graph& graph, const Node& node) {
  // Of an operator in no row it is not known whether it draws, writes or counts.
  if (find_facts(node.op) == nullptr || adds_in_any_order(node)) return false;
  if (is_random(node.op) || is_collective(node.op) || only_checks(node.op) || node.expects ||
      makes_uninitialized(node.op) || !values_that_decide_shape(graph, node).empty() ||
      !written_arguments(repeated_form(node)).empty()) {
    return false;
  }
  bool dense = true;
  for_each_input(node, [&](ValueId id) { dense &= graph.value(id).type.layout == c10::kStrided; });
  for_each_output(node, [&](ValueId id) {
    dense &= graph.value(id).type.layout == c10::kStrided && graph.value(id).storage == id;
  });
  return dense;
}

Node repeated_form(const Node& node) {
  Node form = node;
  if (name_of(node.op) != kRunningStatistics[0].op) return form;
  const RunningStatistics& row = kRunningStatistics[0];
  if (!node.arguments[row.training].constant.toBool()) return form;
  for (size_t i : {row.mean, row.mean + 1}) form.arguments[i].values = {kNoValue};
  return form;
}

}  // namespace epl

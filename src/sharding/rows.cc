#include "sharding/rows.h"

#include <ATen/core/Reduction.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "ops/facts.h"
#include "ops/rule_parts.h"
#include "sharding/row_node.h"

namespace epl {
namespace {

// The operator with what it makes and where it stands, as a user can find it.
std::string describe(const Graph& graph, const Node& node) {
  std::string text = op_name(node);
  const auto made = outputs_of(node);
  if (!made.empty()) text = concat(text, " (of ", print_type(graph.value(made[0]).type), ")");
  const bool scoped =
      node.taskgraph >= 0 && node.taskgraph < static_cast<int>(graph.taskgraphs.size());
  if (scoped) {
    text = concat(text, " in ", graph.taskgraphs[static_cast<size_t>(node.taskgraph)].asked_by());
  }
  return text;
}

// The rows of the batch: dim 0 of its first tensor that has one.
int64_t rows_of_batch(const Graph& graph) {
  for (const auto& leaf : graph.leaves) {
    const auto& sizes = graph.value(leaf.value).type.sizes;
    if (leaf.kind == Leaf::Kind::kInput && !sizes.empty()) return sizes[0];
  }
  return 1;
}

// Nodes that the loss, a metric or the state of the model depends on.
std::vector<bool> nodes_that_count(const Graph& graph) {
  std::set<ValueId> wanted = {graph.loss};
  for (const auto& metric : graph.metrics) wanted.insert(metric.value);
  std::vector<bool> counts(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    bool needed = !written_arguments(node).empty();
    for_each_output(node, [&](ValueId id) { needed |= wanted.count(id) != 0; });
    if (!needed) continue;
    counts[i] = true;
    for_each_input(node, [&](ValueId id) { wanted.insert(id); });
  }
  return counts;
}

struct RowsOfStep {
  std::vector<RowKind> values;       // by ValueId; what no result and no state needs is kSame
  std::vector<std::string> reasons;  // why something is mixed
};

class RowFollower {
 public:
  RowFollower(const Graph& graph, int parts)
      : graph_(graph),
        rows_of_batch_(rows_of_batch(graph)),
        parts_(parts),
        counts_(nodes_that_count(graph)) {
    rows_.values.resize(static_cast<size_t>(graph_.value_count()));
  }

  RowsOfStep run() {
    for (const Leaf& leaf : graph_.leaves) visit_leaf(leaf);
    note_counted_targets();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (counts_[i]) visit(graph_.nodes[i]);
    }
    return std::move(rows_);
  }

 private:
  RowKind& kind(ValueId id) { return rows_.values[static_cast<size_t>(id)]; }

  RowKind mixed(std::string why) {
    rows_.reasons.push_back(std::move(why));
    return RowKind::mixed(static_cast<int>(rows_.reasons.size()) - 1);
  }

  // --- leaves ----------------------------------------------------------------------------------

  void visit_leaf(const Leaf& leaf) {
    if (leaf.kind == Leaf::Kind::kInput) {
      const bool has_rows = !graph_.value(leaf.value).type.sizes.empty();
      kind(leaf.value) = has_rows ? RowKind::rows(0) : RowKind::same();
    } else if (leaf.kind == Leaf::Kind::kConstant && leaf.tensor.defined()) {
      kind(leaf.value).zero = is_zero(leaf.tensor);
    }
  }

  static bool is_zero(const at::Tensor& tensor) {
    const bool number = tensor.numel() == 1 && tensor.layout() == c10::kStrided &&
                        !at::isComplexType(tensor.scalar_type());
    return number && tensor.item().toDouble() == 0;
  }

  // --- nodes -----------------------------------------------------------------------------------

  // A node that writes state in place, as if it made something new.
  static Node pure(const Node& node) {
    Node result = node;
    if (written_arguments(node).empty()) return result;
    const auto functional = functional_variant(node.op);
    if (!functional) return result;
    result.op = *functional;
    result.arguments.resize(functional->schema().arguments().size());  // without those of out=
    return result;
  }

  // What was written since is read from there.
  RowKind read(ValueId id) {
    const auto written = written_.find(graph_.value(id).storage);
    if (written == written_.end() || written->second == id) return kind(id);
    const RowKind now = kind(written->second);
    if (now.is_same() && now.power == 0) return now;
    if (now.is_mixed()) return now;
    const bool all = graph_.value(id).type.sizes == graph_.value(written->second).type.sizes;
    return all ? now : mixed("something reads a part of what the step wrote in place");
  }

  void visit(const Node& node) {
    std::vector<RowKind> inputs;
    for_each_input(node, [&](ValueId id) { inputs.push_back(read(id)); });
    const Node functional = pure(node);
    const RowNode at{graph_, functional, rows_of_batch_, std::move(inputs), parts_};
    keep(node, at, outcome_of(at));
    note_written(node);
  }

  RowOutcome outcome_of(const RowNode& at) {
    const auto mixing = std::find_if(at.inputs.begin(), at.inputs.end(),
                                     [](const RowKind& kind) { return kind.is_mixed(); });
    if (mixing != at.inputs.end()) return for_all_outputs(at, *mixing);
    if (const auto count = count_of_targets(at)) return *count;
    return outcome_of_operator(at);
  }

  // Rules were made for steps that are cut; one that a strange use of its operator breaks must not
  // end a step that is merely asked about.
  static RowOutcome outcome_of_operator(const RowNode& at) {
    try {
      if (auto found = rows_of_shape(at)) return *found;
      if (auto found = rows_of_layer(at)) return *found;
      return rows_by_rule(at);
    } catch (const std::exception&) {
      return std::string("is used in a way that its rule does not know");
    }
  }

  void note_counted_targets() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (!counts_[i] || !counts_targets(node)) continue;
      counted_targets_.emplace(tensor_at(node, 1), int_at(node, 4));
    }
  }

  // A loss that divides by the number of targets that count is taken for a mean over all of them:
  // a run that meets one that does not count says so (runtime/counted_targets.h). So what is asked
  // of the same targets has its answer. With label smoothing LibTorch 2 divides by
  // sum(~(target == ignore_index)), which is the number of all of them.
  std::optional<RowOutcome> count_of_targets(const RowNode& at) {
    const std::string name = op_name(at.node);
    const auto made = outputs_of(at.node);
    if (at.inputs.empty() || made.empty()) return std::nullopt;
    const ValueId read = inputs_of(at.node)[0];
    const bool compares = name == "aten::eq.Scalar" && at.node.arguments[1].constant.isInt();
    if (compares && counted_targets_.count({read, int_at(at.node, 1)}) != 0) {
      all_false_.insert(made[0]);
    } else if (name == "aten::bitwise_not" && all_false_.count(read) != 0) {
      all_true_.insert(made[0]);
    } else if (name == "aten::sum" && all_true_.count(read) != 0 && at.inputs[0].is_rows()) {
      return std::vector<RowKind>{RowKind::same(1)};
    }
    return std::nullopt;
  }

  void keep(const Node& node, const RowNode& at, const RowOutcome& outcome) {
    const auto outputs = outputs_of(at.node);
    if (const auto* why = std::get_if<std::string>(&outcome)) {
      const RowKind kind_of_all = mixed(concat(describe(graph_, node), " ", *why));
      for (ValueId id : outputs) kind(id) = kind_of_all;
      return;
    }
    const auto& kinds = std::get<std::vector<RowKind>>(outcome);
    EPL_ASSERT(kinds.size() == outputs.size(), "a kind for each output");
    for (size_t i = 0; i < outputs.size(); ++i) kind(outputs[i]) = kinds[i];
  }

  // The running statistics of batch norm are none of its outputs.
  void note_written(const Node& node) {
    const bool running_statistics = op_name(node) == "aten::native_batch_norm";
    const auto outputs = outputs_of(node);
    if (written_arguments(node).empty() || running_statistics || outputs.empty()) return;
    written_[graph_.value(outputs[0]).storage] = outputs[0];
  }

  const Graph& graph_;
  const int64_t rows_of_batch_;
  const int parts_;
  const std::vector<bool> counts_;
  RowsOfStep rows_;
  std::map<ValueId, ValueId> written_;                     // by storage: what was written last
  std::set<std::pair<ValueId, int64_t>> counted_targets_;  // with their ignore_index
  std::set<ValueId> all_false_;                            // what is known of truth values
  std::set<ValueId> all_true_;
};

RowResult neither(std::string why) { return {OverRows::kNeither, std::move(why)}; }

RowResult result_of_rows(const RowKind& kind) {
  if (kind.power != 0) return neither("it is made of the number of rows");
  return neither(kind.outer <= 1 ? "it has an element for each row"
                                 : "its rows are mixed with another dimension");
}

RowResult result_of_sum(const RowKind& kind, c10::ScalarType type) {
  const bool integral = c10::isIntegralType(type, /*includeBool=*/true);
  if (kind.power == 0) return {OverRows::kSum, ""};
  if (kind.power == -1 && !integral) return {OverRows::kMean, ""};
  return neither("it is a sum over the rows that is multiplied or divided by their number");
}

}  // namespace

bool counts_targets(const Node& node) {
  const std::string name = op_name(node);
  const bool nll = name == "aten::nll_loss_forward" || name == "aten::nll_loss2d_forward";
  return nll && !has_tensor(node, 2) && int_at(node, 3) == at::Reduction::Mean;
}

RowResult loss_over_rows(const Graph& pure, int parts) {
  const RowsOfStep rows = RowFollower(pure, parts).run();
  const RowKind& kind = rows.values[static_cast<size_t>(pure.loss)];
  switch (kind.kind) {
    case RowKind::Kind::kSame:
      if (kind.power == 0) return {OverRows::kMean, ""};
      return neither("it is made of the number of rows");
    case RowKind::Kind::kRows:
      return result_of_rows(kind);
    case RowKind::Kind::kNumbers:
      return neither("it counts the rows");
    case RowKind::Kind::kSum:
      return result_of_sum(kind, pure.value(pure.loss).type.dtype);
    case RowKind::Kind::kMixed:
      return neither(rows.reasons[static_cast<size_t>(kind.reason)]);
  }
  return neither("");
}

std::vector<const Metric*> metrics_of_rows(const Graph& pure) {
  const RowsOfStep rows = RowFollower(pure, /*parts=*/0).run();
  std::vector<const Metric*> found;
  for (const Metric& metric : pure.metrics) {
    const RowKind& kind = rows.values[static_cast<size_t>(metric.value)];
    if (kind.is_rows() && kind.outer != 0) found.push_back(&metric);
  }
  return found;
}

}  // namespace epl

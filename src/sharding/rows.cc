#include "sharding/rows.h"

#include <ATen/Functions.h>
#include <ATen/core/Reduction.h>

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

// Nodes that a result, a guard or the state of the model depends on.
std::vector<bool> nodes_that_count(const RowQuestion& question) {
  const Graph& graph = question.whole;
  std::set<ValueId> wanted = {graph.loss};
  for (const auto& metric : graph.metrics) wanted.insert(metric.value);
  if (question.gradients) {
    for (const auto& gradient : graph.gradients) wanted.insert(gradient.value);
  }
  std::vector<bool> counts(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    bool needed = node.expects.has_value() || !written_arguments(node).empty();
    for_each_output(node, [&](ValueId id) { needed |= wanted.count(id) != 0; });
    if (!needed) continue;
    counts[i] = true;
    for_each_input(node, [&](ValueId id) { wanted.insert(id); });
  }
  return counts;
}

class Follower {
 public:
  explicit Follower(const RowQuestion& question)
      : question_(question), graph_(question.whole), counts_(nodes_that_count(question)) {
    rows_.values.resize(static_cast<size_t>(graph_.value_count()));
  }

  RowsOfStep run() {
    for (size_t i = 0; i < graph_.leaves.size(); ++i) visit_leaf(i);
    note_checked_targets();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (counts_[i]) visit(i);
    }
    return std::move(rows_);
  }

 private:
  RowKind& kind(ValueId id) { return rows_.values[static_cast<size_t>(id)]; }

  RowKind mixed(std::string why) {
    rows_.reasons.push_back(std::move(why));
    return RowKind::mixed(static_cast<int>(rows_.reasons.size()) - 1);
  }

  bool sliced(size_t node) const { return question_.sliced.empty() || question_.sliced[node]; }

  // --- leaves ----------------------------------------------------------------------------------

  void visit_leaf(size_t index) {
    const Leaf& leaf = graph_.leaves[index];
    leaves_.insert(leaf.value);
    if (leaf.kind == Leaf::Kind::kInput) {
      const bool has_rows = !graph_.value(leaf.value).type.sizes.empty();
      kind(leaf.value) = has_rows ? RowKind::rows(0) : RowKind::same();
    } else if (leaf.kind == Leaf::Kind::kConstant && leaf.tensor.defined()) {
      kind(leaf.value) = constant(leaf, question_.slice ? question_.slice->leaves[index] : leaf);
    }
  }

  // What C++ put into a tensor may be the number of rows, or something of each of them.
  RowKind constant(const Leaf& whole, const Leaf& slice) {
    const at::Tensor& large = whole.tensor;
    const at::Tensor& small = slice.tensor;
    const bool number = large.numel() == 1 && large.layout() == c10::kStrided;
    RowKind same = RowKind::same();
    same.zero = number && !at::isComplexType(large.scalar_type()) && large.item().toDouble() == 0;
    if (large.is_same(small) || !small.defined()) return same;
    const bool alike = large.layout() == c10::kStrided && small.layout() == c10::kStrided &&
                       large.sizes() == small.sizes() && large.scalar_type() == small.scalar_type();
    if (alike && at::equal(large, small)) return same;
    if (alike && number && !at::isComplexType(large.scalar_type())) {
      const auto power =
          power_between(large.item().toDouble(), small.item().toDouble(), question_.slices);
      if (power) return RowKind::same(*power);
    }
    return mixed(concat("a tensor that the step makes in C++, `", whole.name, "` ",
                        print_type(graph_.value(whole.value).type),
                        ", has other contents for another number of rows"));
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

  void visit(size_t index) {
    const Node& node = graph_.nodes[index];
    std::vector<RowKind> inputs;
    const RowKind* mixing = nullptr;
    for_each_input(node, [&](ValueId id) { inputs.push_back(read(id)); });
    const auto ids = inputs_of(node);
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool of_leaf = !sliced(index) && leaves_.count(ids[i]) != 0;
      if (inputs[i].is_mixed() && !of_leaf && mixing == nullptr) mixing = &inputs[i];
      if (inputs[i].is_mixed() && of_leaf) inputs[i] = RowKind::same();
    }
    const Node functional = pure(node);
    const RowNode at{graph_,           functional,
                     question_.slice,  question_.slice ? &question_.slice->nodes[index] : nullptr,
                     question_.slices, inputs,
                     question_.parts};
    const auto answered = of_checked_targets(at);
    const RowOutcome outcome = mixing != nullptr ? RowOutcome(for_all_outputs(at, *mixing))
                               : answered        ? *answered
                                                 : outcome_of(at);
    if (sliced(index)) {
      keep(index, at, outcome);
      note_effects(index, at);
    } else {
      keep_whole(at, outcome, mixing != nullptr);
    }
  }

  // Rules were made for steps that are cut; one that a strange use of its operator breaks must not
  // end a step that is merely asked about.
  static RowOutcome outcome_of(const RowNode& at) {
    try {
      if (auto found = rows_of_shape(at)) return *found;
      if (auto found = rows_of_layer(at)) return *found;
      return rows_by_rule(at);
    } catch (const std::exception&) {
      return std::string("is used in a way that its rule does not know");
    }
  }

  void note_checked_targets() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (!counts_[i] || !sliced(i)) continue;
      if (counts_targets(node)) checked_targets_.emplace(tensor_at(node, 1), int_at(node, 4));
      // The look itself, which stands between the targets and the loss.
      if (op_name(node) == "epl_rows::all_count") {
        checked_targets_.emplace(tensor_at(node, 0), int_at(node, 1));
      }
    }
  }

  // Slices run only where all targets of a mean count: whoever cuts the rows has that looked at in
  // every step. So what is asked of the same targets has its answer. With label smoothing LibTorch
  // 2 divides by sum(~(target == ignore_index)), which is the number of all of them.
  std::optional<RowOutcome> of_checked_targets(const RowNode& at) {
    const std::string name = op_name(at.node);
    const auto made = outputs_of(at.node);
    if (at.inputs.empty() || made.empty()) return std::nullopt;
    const ValueId read = inputs_of(at.node)[0];
    const bool compares = name == "aten::eq.Scalar" && at.node.arguments[1].constant.isInt();
    if (compares && checked_targets_.count({read, int_at(at.node, 1)}) != 0) {
      all_false_.insert(made[0]);
    } else if (name == "aten::bitwise_not" && all_false_.count(read) != 0) {
      all_true_.insert(made[0]);
    } else if (name == "aten::sum" && all_true_.count(read) != 0 && at.inputs[0].is_rows()) {
      return std::vector<RowKind>{RowKind::same(1)};
    }
    return std::nullopt;
  }

  // What shapes say has to fit.
  static bool fits_shape(const RowNode& at, ValueId id, const RowKind& kind) {
    if (at.slice == nullptr || kind.is_mixed()) return true;
    const int dim = grown_dim(at, id);
    if (kind.is_rows()) return dim == kind.dim;
    return kind.kind == RowKind::Kind::kNumbers ? dim == 0 : dim == kNone;
  }

  void keep(size_t index, const RowNode& at, const RowOutcome& outcome) {
    const auto outputs = outputs_of(at.node);
    if (const auto* why = std::get_if<std::string>(&outcome)) {
      const RowKind kind_of_all = mixed(concat(describe(graph_, graph_.nodes[index]), " ", *why));
      for (ValueId id : outputs) kind(id) = kind_of_all;
      return;
    }
    const auto& kinds = std::get<std::vector<RowKind>>(outcome);
    EPL_ASSERT(kinds.size() == outputs.size(), "a kind for each output");
    for (size_t i = 0; i < outputs.size(); ++i) {
      const bool fits = fits_shape(at, outputs[i], kinds[i]);
      kind(outputs[i]) = fits ? kinds[i]
                              : mixed(concat(describe(graph_, graph_.nodes[index]),
                                             " has another shape for another number of rows"));
    }
  }

  // All rows are there: whatever it does is right. Where rows came through, their order is known.
  void keep_whole(const RowNode& at, const RowOutcome& outcome, bool mixes) {
    const auto outputs = outputs_of(at.node);
    const auto* kinds = std::get_if<std::vector<RowKind>>(&outcome);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const int dim = grown_dim(at, outputs[i]);
      RowKind made = dim < 0 ? RowKind::same() : RowKind::rows(dim);
      if (kinds != nullptr && (mixes || ((*kinds)[i].is_rows() && (*kinds)[i].dim == dim))) {
        made = (*kinds)[i];
        made.power = 0;
      }
      kind(outputs[i]) = made;
    }
  }

  // --- what a step leaves behind ---------------------------------------------------------------

  std::string reason_of(const RowKind& of, const std::string& otherwise) const {
    return of.is_mixed() ? rows_.reasons[static_cast<size_t>(of.reason)] : otherwise;
  }

  void note_effects(size_t index, const RowNode& at) {
    const Node& node = graph_.nodes[index];
    const auto note = [&](const std::string& what) {
      if (rows_.wrong_effect.empty()) rows_.wrong_effect = what;
    };
    if (node.expects) {
      for (const RowKind& kind : at.inputs) {
        if (kind.is_same() && kind.power == 0) continue;
        note(
            concat("the step reads back into C++ (item(), or a shape that depends on contents) "
                   "what is of the rows of one device alone: ",
                   reason_of(kind, describe(graph_, node))));
      }
    }
    const bool running_statistics = op_name(node) == "aten::native_batch_norm";
    if (written_arguments(node).empty() || running_statistics) return;
    const auto outputs = outputs_of(node);
    if (outputs.empty()) return;
    const ValueId storage = graph_.value(outputs[0]).storage;
    written_[storage] = outputs[0];
    for (const auto& leaf : graph_.leaves) {
      const bool outlives = leaf.kind != Leaf::Kind::kInput && leaf.kind != Leaf::Kind::kSeed;
      if (!outlives || graph_.value(leaf.value).storage != storage) continue;
      const RowKind made = kind(outputs[0]);
      const bool same = made.is_same() && made.power == 0;
      const bool mean = made.is_sum() && made.power == -1 &&
                        c10::isFloatingType(graph_.value(outputs[0]).type.dtype);
      if (same || mean) continue;
      note(concat("the step writes into `", leaf.name,
                  "` what is neither a mean over the rows nor ",
                  "the same for all of them: ", reason_of(made, describe(graph_, node))));
    }
  }

  const RowQuestion& question_;
  const Graph& graph_;
  const std::vector<bool> counts_;
  RowsOfStep rows_;
  std::set<ValueId> leaves_;
  std::map<ValueId, ValueId> written_;                     // by storage: what was written last
  std::set<std::pair<ValueId, int64_t>> checked_targets_;  // with their ignore_index
  std::set<ValueId> all_false_;                            // what is known of truth values
  std::set<ValueId> all_true_;
};

// The rows of the batch: dim 0 of its first tensor that has one.
int64_t rows_of_batch(const Graph& graph) {
  for (const auto& leaf : graph.leaves) {
    const auto& sizes = graph.value(leaf.value).type.sizes;
    if (leaf.kind == Leaf::Kind::kInput && !sizes.empty()) return sizes[0];
  }
  return 1;
}

}  // namespace

RowsOfStep follow_rows(const RowQuestion& question) {
  if (question.slice != nullptr) {
    EPL_ASSERT(question.whole.nodes.size() == question.slice->nodes.size() &&
                   question.whole.value_count() == question.slice->value_count() &&
                   question.whole.leaves.size() == question.slice->leaves.size(),
               "a step has the same operators for any number of rows");
  }
  return Follower(question).run();
}

bool counts_targets(const Node& node) {
  const std::string name = op_name(node);
  const bool nll = name == "aten::nll_loss_forward" || name == "aten::nll_loss2d_forward";
  return nll && !has_tensor(node, 2) && int_at(node, 3) == at::Reduction::Mean;
}

RowResult result_over_rows(const RowsOfStep& rows, const Graph& graph, ValueId value) {
  const RowKind& kind = rows.values[static_cast<size_t>(value)];
  const bool integral = c10::isIntegralType(graph.value(value).type.dtype, /*includeBool=*/true);
  const auto neither = [](std::string why) { return RowResult{OverRows::kNeither, -1, why}; };
  switch (kind.kind) {
    case RowKind::Kind::kSame:
      if (kind.power == 0) return {OverRows::kMean, -1, ""};
      return neither("it is made of the number of rows");
    case RowKind::Kind::kRows:
      if (kind.power == 0 && kind.outer <= 1) return {OverRows::kRows, kind.dim, ""};
      return neither(kind.power != 0 ? "it is made of the number of rows"
                                     : "its rows are mixed with another dimension");
    case RowKind::Kind::kNumbers:
      return neither("it counts the rows");
    case RowKind::Kind::kSum:
      if (kind.power == 0) return {OverRows::kSum, -1, ""};
      if (kind.power == -1 && !integral) return {OverRows::kMean, -1, ""};
      return neither("it is a sum over the rows that is multiplied or divided by their number");
    case RowKind::Kind::kMixed:
      return neither(rows.reasons[static_cast<size_t>(kind.reason)]);
  }
  return neither("");
}

RowResult loss_over_rows(const Graph& pure, int parts) {
  RowQuestion question{pure, nullptr, static_cast<int>(rows_of_batch(pure))};
  question.parts = parts;
  const RowsOfStep rows = follow_rows(question);
  RowResult result = result_over_rows(rows, pure, pure.loss);
  if (result.kind == OverRows::kRows) {
    result = {OverRows::kNeither, -1, "it has an element for each row"};
  }
  return result;
}

std::vector<const Metric*> metrics_of_rows(const Graph& pure) {
  const RowsOfStep rows = follow_rows({pure, nullptr, static_cast<int>(rows_of_batch(pure))});
  std::vector<const Metric*> found;
  for (const Metric& metric : pure.metrics) {
    const RowKind& kind = rows.values[static_cast<size_t>(metric.value)];
    if (kind.is_rows() && kind.outer != 0) found.push_back(&metric);
  }
  return found;
}

}  // namespace epl

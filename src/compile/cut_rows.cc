#include "compile/cut_rows.h"

#include "base/check.h"
#include "ir/makers.h"
#include "ops/rule_parts.h"

namespace epl {
namespace {

constexpr const char* kHint = "epl::replicate(1), which gives every device whole micro batches";

SliceMerge merge_of(OverRows kind) {
  if (kind == OverRows::kRows) return SliceMerge::kConcat;
  return kind == OverRows::kSum ? SliceMerge::kSum : SliceMerge::kMean;
}

void prove_metric(const Metric& metric, const RowResult& result, const std::string& asked_by) {
  EPL_CHECK(result.kind != OverRows::kNeither,
            concat("the metric `", metric.name,
                   "` cannot be put together from slices of the micro batch: ", result.why),
            asked_by,
            concat("epl::add_to_collection of something else: a mean or a sum over the rows, or "
                   "a value for each of them; or ",
                   kHint));
}

// They are put together as the loss is.
void prove_gradients(const RowsOfStep& rows, const Graph& graph, const RowResult& loss,
                     const std::string& asked_by) {
  for (const Gradient& gradient : graph.gradients) {
    if (rows.values[static_cast<size_t>(gradient.value)].zero) continue;
    const RowResult result = result_over_rows(rows, graph, gradient.value);
    EPL_CHECK(result.kind == loss.kind,
              concat("the backward pass runs code of the user's own (a hook or a "
                     "torch::autograd::Function), and the gradient of `",
                     graph.leaves[static_cast<size_t>(gradient.parameter)].name,
                     "` is not known to be that of rows that are apart from each other",
                     result.why.empty() ? "" : ": " + result.why),
              asked_by, kHint);
  }
}

// Else every device has that of all rows.
bool made_on_slices(const RowQuestion& question, ValueId value) {
  const auto maker = Makers(question.whole).index_of(value);
  return !maker || question.sliced.empty() || question.sliced[*maker];
}

// By node: whether its stage has so many devices; 0: more than one. Other stages see all rows, as
// far as this proof goes: what comes from them are whole rows, cut anew.
std::vector<bool> nodes_of_stages(const Graph& graph, const Placement& placement, int devices) {
  std::vector<bool> nodes;
  for (const auto& node : graph.nodes) {
    const int group = placement.is_pipeline() ? node.chunk % placement.groups() : 0;
    const auto stage = static_cast<size_t>(placement.stages_of(group)[0]);
    const int own = placement.stage_devices[stage];
    nodes.push_back(devices == 0 ? own > 1 : own == devices);
  }
  return nodes;
}

bool is_colocated_split(const Placement& placement) {
  return placement.splits() && !placement.is_pipeline();
}

// What stands under replicate, on the devices that the rest is cut over.
std::vector<bool> nodes_under_replicate(const Graph& graph) {
  const auto& taskgraphs = graph.taskgraphs;
  std::vector<bool> nodes;
  for (const auto& node : graph.nodes) {
    const size_t taskgraph =
        taskgraphs.size() > 1 ? static_cast<size_t>(node.chunk) % taskgraphs.size() : 0;
    nodes.push_back(taskgraphs.empty() || taskgraphs[taskgraph].kind != Strategy::Kind::kSplit);
  }
  return nodes;
}

// What a step writes in place may lie otherwise in memory where there are fewer rows, and become
// other operators: then nothing can be said of its rows.
void check_comparable(const Graph& whole, const Graph& slice, const std::string& asked_by) {
  EPL_CHECK(whole.nodes.size() == slice.nodes.size() &&
                whole.value_count() == slice.value_count() &&
                whole.leaves.size() == slice.leaves.size(),
            "what the step writes in place becomes other operators where a device has fewer rows: "
            "it is not known whether rows look at each other",
            asked_by, concat("no writes in place into parts of a tensor, or ", kHint));
}

}  // namespace

void prove_rows(const RowQuestion& question, const std::string& asked_by, TwoSizes& sizes) {
  const Graph& graph = question.whole;
  const RowsOfStep rows = follow_rows(question);
  const RowResult loss = result_over_rows(rows, graph, graph.loss);
  EPL_CHECK(loss.kind == OverRows::kMean || loss.kind == OverRows::kSum,
            concat("the loss is neither a mean nor a sum over the rows of the micro batch, which "
                   "are cut over ",
                   question.slices, " devices: ",
                   loss.kind == OverRows::kRows ? "it has an element for each row" : loss.why),
            asked_by, kHint);
  EPL_CHECK(rows.wrong_effect.empty(),
            concat("the rows of the micro batch cannot be cut over ", question.slices,
                   " devices: ", rows.wrong_effect),
            asked_by, kHint);
  if (question.gradients) prove_gradients(rows, graph, loss, asked_by);
  if (loss.kind == OverRows::kSum) sizes.loss = SliceMerge::kSum;
  sizes.metrics.resize(graph.metrics.size(), SliceMerge::kMean);
  sizes.metric_batch_dims.resize(graph.metrics.size(), -1);
  for (size_t i = 0; i < graph.metrics.size(); ++i) {
    const ValueId value = graph.metrics[i].value;
    const RowResult result = result_over_rows(rows, graph, value);
    prove_metric(graph.metrics[i], result, asked_by);
    if (result.kind == OverRows::kMean || !made_on_slices(question, value)) continue;
    sizes.metrics[i] = merge_of(result.kind);
    sizes.metric_batch_dims[i] = result.dim;
  }
}

void prove_rows(const StepRecording& recording, const Placement& placement, TwoSizes& sizes) {
  const Graph& whole = recording.whole();
  for (const auto& [devices, slice] : recording.graphs) {
    if (devices == 1) continue;
    check_comparable(whole, slice, placement.asked_by);
    const std::vector<bool> sliced = is_colocated_split(placement)
                                         ? nodes_under_replicate(whole)
                                         : nodes_of_stages(whole, placement, devices);
    prove_rows({whole, &slice, devices, sliced, recording.users_backward}, placement.asked_by,
               sizes);
  }
}

void compare_recordings(const StepRecording& recording, const Placement& placement) {
  for (const auto& [devices, slice] : recording.graphs) {
    if (devices > 1) compare_sizes(slice, recording.whole(), devices, placement.asked_by);
  }
}

std::vector<bool> nodes_on_slices(const Graph& graph, const Placement& placement) {
  return is_colocated_split(placement) ? nodes_under_replicate(graph)
                                       : nodes_of_stages(graph, placement, 0);
}

void look_at_targets(Graph& graph, const std::vector<bool>& sliced, bool in_parts) {
  std::vector<Node> nodes = std::move(graph.nodes);
  graph.nodes.clear();
  Emitter emitter(graph);
  for (size_t i = 0; i < nodes.size(); ++i) {
    Node& node = nodes[i];
    if ((sliced[i] || in_parts) && counts_targets(node)) {
      emitter.stand_for(node);
      const ValueId target = tensor_at(node, 1);
      const ValueId checked =
          emitter.call_for(sliced[i] ? "epl_rows::all_count" : "epl_rows::note_ignored",
                           {value_argument(target), node.arguments[4]}, sizes_of(graph, target));
      node.arguments[1] = value_argument(checked);
    }
    graph.nodes.push_back(std::move(node));
  }
}

}  // namespace epl

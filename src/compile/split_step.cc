#include "compile/split_step.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "capture/made_under_split.h"
#include "compile/cut_rows.h"
#include "ir/makers.h"
#include "passes/assign_chunks.h"
#include "passes/batched_products.h"
#include "passes/dead_code.h"
#include "passes/purify.h"
#include "plan/crossings.h"
#include "sharding/sharding.h"

namespace epl {
namespace {

// Of sums that devices make in another order than the recorded run.
constexpr double kRounding = 1e-4;

// Parameters are cut over the devices of the step, however many their scope asked for: it has to be
// those.
void check_made_cut(const Graph& graph, const std::vector<bool>& made_cut, int parts) {
  for (size_t i = 0; i < made_cut.size(); ++i) {
    if (!made_cut[i]) continue;
    const auto scope = made_under_split(graph.leaves[i].tensor);
    EPL_CHECK(scope->device_count == parts,
              concat("`", graph.leaves[i].name, "` was made to be cut over ", scope->device_count,
                     " devices, but a model replica has ", parts),
              scope->asked_by(), concat("epl::split(", parts, ") around it"));
    const TensorType& type = graph.value(graph.leaves[i].value).type;
    EPL_CHECK(!type.sizes.empty() && type.sizes[0] >= parts,
              concat("cannot cut dim 0 of `", graph.leaves[i].name, "` ", print_type(type),
                     " over ", parts, " devices"),
              scope->asked_by(),
              concat("at least ", parts, " rows, or make it outside of the scope"));
  }
}

bool is_split(const Strategy& strategy) { return strategy.kind == Strategy::Kind::kSplit; }

PassList passes_before_cutting(const Graph& graph) {
  PassList passes;
  passes.push_back(std::make_unique<Purify>());
  // So that attention can be cut over its heads; DeadCode removes what it leaves.
  passes.push_back(std::make_unique<BatchedProducts>());
  // Gives nodes in no scope their place.
  if (graph.taskgraphs.size() > 1) passes.push_back(std::make_unique<AssignChunks>());
  passes.push_back(std::make_unique<DeadCode>());
  return passes;
}

std::vector<bool> sliced_nodes(const Graph& graph) {
  const auto& taskgraphs = graph.taskgraphs;
  std::vector<bool> sliced;
  for (const auto& node : graph.nodes) {
    const size_t taskgraph =
        taskgraphs.size() > 1 ? static_cast<size_t>(node.chunk) % taskgraphs.size() : 0;
    sliced.push_back(taskgraphs.empty() || !is_split(taskgraphs[taskgraph]));
  }
  return sliced;
}

std::vector<std::optional<Layout>> homes_of_leaves(const Graph& graph,
                                                   const CompileOptions& options) {
  std::vector<std::optional<Layout>> homes;
  for (const auto& leaf : graph.leaves) {
    const auto known = leaf.kind == Leaf::Kind::kParameter
                           ? options.homes.find(leaf.tensor.unsafeGetTensorImpl())
                           : options.homes.end();
    homes.push_back(known == options.homes.end() ? std::nullopt : std::optional(known->second));
  }
  return homes;
}

// The devices that the operators of a group are cut over, as the first replica has them.
Machine machine_of_group(const CompileOptions& options, int group) {
  std::vector<int> devices;
  for (int stage : options.placement.stages_of(group)) {
    devices.push_back(options.placement.device({0, stage, 0}));
  }
  return machine_of(options.cluster, devices);
}

// Which dimension has `parts` times the rows in the larger recording.
std::vector<int> batch_dims(const Graph& whole, const Graph& slice) {
  std::vector<int> dims(static_cast<size_t>(whole.value_count()), -1);
  for (ValueId id = 0; id < whole.value_count(); ++id) {
    const auto& large = whole.value(id).type.sizes;
    const auto& small = slice.value(id).type.sizes;
    for (size_t dim = 0; dim < large.size() && dim < small.size(); ++dim) {
      if (large[dim] != small[dim]) dims[static_cast<size_t>(id)] = static_cast<int>(dim);
    }
  }
  return dims;
}

void check_strided(const ShardingRequest& request) {
  const Graph& graph = request.graph;
  const Makers makers(graph);
  for (const auto& gradient : graph.gradients) {
    const auto maker = makers.index_of(gradient.value);
    if (!maker || !request.is_inside(*maker)) continue;
    EPL_CHECK(
        graph.value(gradient.value).type.layout == c10::kStrided,
        concat("the gradient of `", graph.leaves[static_cast<size_t>(gradient.parameter)].name,
               "` is sparse, which cannot be cut over devices"),
        request.asked_by,
        "EmbeddingOptions::sparse(false), or the table outside of the split scope");
  }
}

// A gradient that every part has is taken from the first one.
void drop_repeated_gradients(const ShardingRequest& request, const Sharding& sharding,
                             Graph& local) {
  std::set<ValueId> outside;
  for (size_t i = 0; i < request.graph.nodes.size(); ++i) {
    if (request.is_inside(i)) continue;
    for_each_output(request.graph.nodes[i], [&](ValueId id) { outside.insert(id); });
  }
  std::vector<Gradient> kept;
  for (size_t i = 0; i < local.gradients.size(); ++i) {
    const bool elsewhere = outside.count(request.graph.gradients[i].value) != 0;
    if (elsewhere || !sharding.gradients[i].is_whole()) kept.push_back(local.gradients[i]);
  }
  local.gradients = std::move(kept);
}

}  // namespace

std::vector<bool> parameters_made_cut(const Graph& graph) {
  std::vector<bool> cut;
  for (const auto& leaf : graph.leaves) {
    const bool parameter = leaf.kind == Leaf::Kind::kParameter;
    const auto scope = parameter ? made_under_split(leaf.tensor) : std::nullopt;
    cut.push_back(scope && scope->device_count > 1);
  }
  return cut;
}

bool has_slices(const Graph& graph) {
  const auto& taskgraphs = graph.taskgraphs;
  return taskgraphs.empty() || !std::all_of(taskgraphs.begin(), taskgraphs.end(), is_split);
}

void cut_stages(CompiledStep& compiled, const Config& config, const CompileOptions& options) {
  const Placement& placement = options.placement;
  compiled.parts.resize(static_cast<size_t>(placement.stages()));
  const Graph& whole = compiled.recorded_for(1);
  for (int group = 0; group < placement.groups(); ++group) {
    const std::vector<int> stages = placement.stages_of(group);
    if (stages.size() == 1) continue;
    ShardingRequest request{whole, static_cast<int>(stages.size())};
    request.asked_by = placement.stage_asked_by[static_cast<size_t>(stages[0])];
    request.homes = homes_of_leaves(whole, options);
    request.machine = machine_of_group(options, group);
    for (const auto& node : whole.nodes) {
      request.inside.push_back(node.chunk % placement.groups() == group);
    }
    check_strided(request);
    const Sharding sharding = choose_layouts(request);
    for (size_t part = 0; part < stages.size(); ++part) {
      Graph local = local_graph(request, sharding, static_cast<int>(part));
      PassList passes = local_passes(config);
      passes.push_back(std::make_unique<AssignChunks>());
      run_passes(local, passes);
      if (part > 0) drop_repeated_gradients(request, sharding, local);
      compiled.parts[static_cast<size_t>(stages[part])] = std::move(local);
    }
    for (const auto& remark : sharding.remarks) {
      compiled.remarks.push_back(concat("stage ", group, ": ", remark));
    }
  }
}

CompiledStep compile_split(SplitRecording recording, const Config& config,
                           const CompileOptions& options) {
  CompiledStep compiled;
  compiled.graph = std::move(recording.whole);
  run_passes(compiled.graph, passes_before_cutting(compiled.graph));
  const bool parts_differ = has_parts(config, options);
  look_at_targets(compiled.graph, sliced_nodes(compiled.graph), parts_differ);
  ShardingRequest request{compiled.graph, options.placement.parts(0)};
  request.asked_by = options.placement.asked_by;
  request.homes = homes_of_leaves(compiled.graph, options);
  request.machine = machine_of_group(options, 0);
  request.inputs_are_cut = recording.inputs_are_cut;
  if (recording.slice) {
    run_passes(*recording.slice, passes_before_cutting(*recording.slice));
    request.slice = &*recording.slice;
    look_at_targets(*recording.slice, sliced_nodes(*recording.slice), parts_differ);
    request.sliced = sliced_nodes(compiled.graph);
    check_comparable(compiled.graph, *recording.slice, options.placement.asked_by);
    prove_rows(
        {compiled.graph, request.slice, request.parts, request.sliced, recording.users_backward},
        request.asked_by, compiled.sizes);
    request.batch_dims = batch_dims(compiled.graph, *recording.slice);
    request.rows_in_order = rows_in_order(*recording.slice, request.batch_dims);
    request.made_cut = parameters_made_cut(compiled.graph);
    check_made_cut(compiled.graph, request.made_cut, request.parts);
  }
  check_strided(request);
  const Sharding sharding = choose_layouts(request);
  std::vector<const Graph*> parts;
  for (int part = 0; part < request.parts; ++part) {
    Graph local = local_graph(request, sharding, part);
    run_passes(local, local_passes(config));
    if (part > 0) drop_repeated_gradients(request, sharding, local);
    compiled.parts.push_back(std::move(local));
  }
  for (const auto& part : compiled.parts) parts.push_back(&part);
  compiled.loss_of_slices = sharding.loss_of_slices;
  compiled.metrics_of_slices = sharding.metrics_of_slices;
  LowerOptions lowering = lower_options(config, options);
  compiled.plan = lower_parts(parts, lowering);
  for (auto& program : compiled.plan.programs) program.guard_tolerance = kRounding;
  compiled.plan.remarks = sharding.remarks;
  return compiled;
}

}  // namespace epl

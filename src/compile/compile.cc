#include "compile/compile.h"

#include <c10/core/TensorOptions.h>

#include <algorithm>

#include "base/check.h"
#include "compile/cut_operators.h"
#include "compile/cut_rows.h"
#include "compile/device_bytes.h"
#include "compile/loss_of_parts.h"
#include "compile/outputs.h"
#include "compile/placement.h"
#include "compile/recompute_step.h"
#include "config/settings.h"
#include "cost/node_cost.h"
#include "passes/assign_chunks.h"
#include "passes/assign_taskgraphs.h"
#include "passes/batched_products.h"
#include "passes/dead_code.h"
#include "passes/dense_gradients.h"
#include "passes/join_casts.h"
#include "passes/own_generators.h"
#include "passes/own_gradients.h"
#include "passes/pack_masks.h"
#include "passes/purify.h"
#include "passes/tied_gradients.h"
#include "plan/crossings.h"
#include "plan/lower.h"
#include "plan/schedules.h"
#include "plan/share_programs.h"
#include "plan/shared_writes.h"
#include "program/verify.h"

namespace epl {
namespace {

// By estimate: measured times would give each worker another schedule.
std::vector<TaskCosts> estimated_costs(const Graph& graph, const Machine& machine) {
  const std::vector<ChunkTask> tasks = tasks_of_nodes(graph, /*splits_backward=*/true);
  std::vector<TaskCosts> costs(static_cast<size_t>(chunk_count(graph)), {0, 0, 0});
  for (size_t i = 0; i < tasks.size(); ++i) {
    TaskCosts& chunk = costs[static_cast<size_t>(tasks[i].chunk)];
    double* const by_kind[] = {&chunk.forward, &chunk.backward, &chunk.weights};
    *by_kind[static_cast<size_t>(tasks[i].kind)] +=
        estimated_seconds(graph, graph.nodes[i], machine);
  }
  return costs;
}

Schedule schedule_of(const Graph& graph, const ClusterShape& cluster, const Config& config,
                     const Placement& placement) {
  ScheduleRequest request;
  request.strategy = config.get<std::string>("pipeline.strategy");
  request.stages = placement.stages();
  request.chunks_per_stage = chunk_count(graph) / request.stages;
  request.micro_batches = static_cast<int>(config.get<int64_t>("pipeline.num_micro_batch"));
  if (request.strategy == "ZeroBubble") {
    request.costs = estimated_costs(graph, machine_of(cluster));
  }
  return make_schedule(request);
}

// How the step ends. With one replica the reduced gradients are the local ones.
StepEndOptions end_options(const ClusterShape& cluster, const Config& config,
                           const CompileOptions& options, const Placement& placement) {
  using Clip = CompileOptions::Clip;
  StepEndOptions end;
  const bool clips = options.clip != Clip::kNothing;
  end.clips_each_replica =
      clips && placement.replicas > 1 && !config.get<bool>("communication.clip_after_allreduce");
  end.clips_reduced = clips && (!end.clips_each_replica || options.clip == Clip::kNorm);
  if (config.get<std::string>("debug.nan_loss") == "ignore" && !options.keeps_all) {
    end.loss = StepEndOptions::OnBadLoss::kIgnored;
  }
  if (placement.has_roles() && cluster.worker_num > 1) {
    const bool all = config.get<bool>("pipeline.gather_parameters");
    end.gather = all ? StepEndOptions::Gather::kAll : StepEndOptions::Gather::kRead;
  }
  end.scales_loss = mixes_precisions(config);
  end.apply_groups = static_cast<int>(config.get<int64_t>("optimizer.num_apply_group"));
  return end;
}

// Workers that have a role in common update different parameters of it.
ZeroOptions zero_options(const ClusterShape& cluster, const Config& config,
                         const CompileOptions& options, const Placement& placement) {
  ZeroOptions zero;
  if (config.get<std::string>("zero.level").empty()) return zero;
  for (int role = 0; role < placement.roles(); ++role) {
    auto& shares = zero.shares.emplace_back();
    for (int worker : placement.workers_of(role, cluster)) {
      shares.push_back(static_cast<int>(placement.devices_of(role, worker, cluster).size()));
    }
  }
  for (const StateEntry& entry : options.state.entries()) {
    if (entry.kind != StateKind::kParameter || !entry.home) continue;
    if (!entry.home->owners.are_all()) zero.settled.emplace(entry.name, entry.home->owners);
  }
  zero.cuts_gradients = cuts_gradients(config);
  zero.spreads = cuts_parameters(config);
  if (zero.spreads) zero.spread = options.may_be_spread;
  return zero;
}

OffloadOptions offload_options(const CompileOptions& options) {
  OffloadOptions offload;
  offload.staying = options.offloaded.staying;
  if (options.offloaded.windows) {
    offload.medium = OffloadOptions::Medium::kHost;
    offload.ahead = 1;  // memory is not waited for as a disk is, and windows are what a device pays
  }
  for (const auto& [name, states] : options.offloaded.parameters) {
    offload.parameters.insert(name);
    if (states > 0) offload.states.emplace(name, states);
  }
  return offload;
}

LowerOptions lower_options(const ClusterShape& cluster, const Config& config,
                           const CompileOptions& options, const Placement& placement) {
  LowerOptions lowering;
  lowering.micro_batches = static_cast<int>(config.get<int64_t>("pipeline.num_micro_batch"));
  lowering.replicas = placement.replicas;
  lowering.most_reductions = static_cast<int>(config.get<int64_t>("communication.max_splits"));
  lowering.end = end_options(cluster, config, options, placement);
  lowering.updates_early = config.get<bool>("optimizer.update_early") && !options.keeps_all;
  lowering.zero = zero_options(cluster, config, options, placement);
  lowering.zero.whole = options.updated_whole;
  lowering.end.gathers_from_owners =
      std::any_of(lowering.zero.shares.begin(), lowering.zero.shares.end(),
                  [](const auto& shares) { return shares.size() > 1; });
  lowering.offload = offload_options(options);
  const bool streams =
      lowering.offload.any() && options.offloaded.updates_apart && lowering.end.apply_groups == 1;
  if (streams) {
    lowering.end.apply_groups_of = [offload = lowering.offload](const Program& program) {
      return update_groups(offload, program);
    };
  }
  lowering.machine = machine_of(cluster);
  lowering.backend = c10::computeDispatchKey(c10::nullopt, c10::nullopt, options.device);
  return lowering;
}

Plan lower_roles(const CompiledStep& step, const SlicedSteps& sliced, const ClusterShape& cluster,
                 const Config& config, const LowerOptions& options) {
  const Placement& placement = step.placement;
  std::vector<Role> roles;
  for (size_t i = 0; i < placement.role_devices.size(); ++i) {
    const int devices = placement.role_devices[i];
    const auto found = sliced.find(devices);
    roles.push_back(
        {&step.graph_of(i), devices, placement.role_asked_by[i],
         placement.stage_of(static_cast<int>(i)),
         found == sliced.end() ? std::vector<Layout>() : found->second.sharding.values});
  }
  Schedule schedule;
  if (placement.is_pipeline()) schedule = schedule_of(step.graph, cluster, config, placement);
  return lower(step.recorded_for(1), roles, schedule, options);
}

// All that is decided about the step as a whole, but for how its values lie.
void decide(Graph& whole, const std::vector<int>& cuts, const Config& config,
            const Placement& placement) {
  const size_t taskgraphs = cuts.empty() ? whole.taskgraphs.size() : cuts.size() + 1;
  run_passes(whole, step_passes(config, placement, cuts, taskgraphs).whole);
  if (placement.is_pipeline()) settle_shared_writes(whole, placement.stages(), placement.asked_by);
}

// Several micro batches or replicas make up a step: what their mean is to all rows.
void look_at_loss(const Config& config, Graph& whole, CompiledStep& step) {
  const auto micro_batches = static_cast<int>(config.get<int64_t>("pipeline.num_micro_batch"));
  const int parts = step.placement.replicas * micro_batches;
  const bool averages = averages_gradients(config);
  if (step.placement.devices() * micro_batches < 2) return;
  step.loss = loss_over_rows(whole, parts);
  if (parts < 2) return;
  step.loss_remark = remark_on_loss(step.loss, parts, averages);
  step.metrics_remark = remark_on_metrics(whole, parts);
  look_at_targets(whole);
}

// The graphs that the roles run, from that of the whole step.
void take_graphs(Graph whole, SlicedSteps& sliced, const PassList& passes, CompiledStep& step) {
  for (auto& part : step.parts) {
    if (!part.leaves.empty()) run_passes(part, passes);
  }
  const Placement& placement = step.placement;
  for (auto& [devices, cut] : sliced) {
    run_passes(cut.graph, passes);
    step.other.emplace(devices, std::move(cut.graph));
  }
  const bool crosses = placement.is_pipeline();
  if (crosses || (step.parts.empty() && sliced.empty())) run_passes(whole, passes);
  if (crosses || sliced.empty()) step.other.emplace(1, std::move(whole));
  auto first = step.other.extract(placement.role_devices[0]);
  step.graph = std::move(first.mapped());
}

// Without any strategy every device has a replica of its own, and nothing is cut.
void check_cut_parameters(const Graph& graph, const std::vector<bool>& made_cut,
                          const MadeUnder& made_under, const Placement& placement) {
  const auto cut = std::find(made_cut.begin(), made_cut.end(), true);
  if (cut == made_cut.end() || placement.splits()) return;
  const auto index = static_cast<size_t>(cut - made_cut.begin());
  const Strategy& scope = made_under.at(graph.leaves[index].value);
  throw Error(
      concat("`", graph.leaves[index].name, "` was made to be cut over ", scope.device_count,
             " devices, but the step that uses it has no strategy: every device would have "
             "all of it"),
      scope.asked_by(),
      concat("epl::set_default_strategy(epl::replicate(", scope.device_count,
             ")) before the step"));
}

}  // namespace

Placement place_step(const Graph& whole, const MadeUnder& made_under, const std::vector<int>& cuts,
                     const ClusterShape& cluster, const Config& config) {
  const std::vector<bool> made_cut = parameters_made_cut(whole, made_under);
  const bool any_cut = std::find(made_cut.begin(), made_cut.end(), true) != made_cut.end();
  const std::vector<Strategy> taskgraphs =
      cuts.empty() ? whole.taskgraphs : chosen_taskgraphs(cuts);
  Placement found = find_placement(taskgraphs, cluster, config, any_cut);
  if (taskgraphs.empty()) check_cut_parameters(whole, made_cut, made_under, found);
  return found;
}

StepPasses step_passes(const Config& config, const Placement& placement,
                       const std::vector<int>& cuts, size_t taskgraphs) {
  StepPasses passes;
  const bool pipeline = placement.is_pipeline();
  const bool several = placement.devices() > 1;
  // First of all, since it looks at the operators as they were called.
  if (!cuts.empty()) passes.whole.push_back(std::make_unique<AssignTaskGraphs>(cuts));
  // What follows may then move and drop nodes without asking who shares memory.
  passes.whole.push_back(std::make_unique<Purify>());
  // So that attention can be cut over its heads; DeadCode removes what it leaves.
  if (placement.splits()) passes.whole.push_back(std::make_unique<BatchedProducts>());
  // Gives nodes in no scope their place, on which also depends what is cut.
  const bool chunks = pipeline || (placement.splits() && taskgraphs > 1);
  if (chunks) passes.whole.push_back(std::make_unique<AssignChunks>());
  // Needs chunks; before OwnGradients, which gives each of the new gradients memory of its own.
  if (pipeline) passes.whole.push_back(std::make_unique<TiedGradients>());
  // Before the cut: a sparse gradient cannot be cut, a dense one can.
  if (several && config.get<bool>("communication.sparse_as_dense")) {
    passes.whole.push_back(std::make_unique<DenseGradients>());
  }
  // So that nothing is decided about what nobody reads.
  passes.whole.push_back(std::make_unique<DeadCode>());
  // Needs purity and chunks; after DeadCode, so that no cast is kept for a reader that goes. What
  // it leaves without a reader goes with the passes of a role.
  if (mixes_precisions(config)) passes.whole.push_back(std::make_unique<JoinCasts>());
  // Once more for the nodes that came since, and for those whose readers went: it is these chunks
  // that are cut and proven.
  if (chunks) passes.whole.push_back(std::make_unique<AssignChunks>());

  // After Purify, which can make two gradients one value, and after the cut, which can as well;
  // before DeadCode, so that copies that nobody needs go.
  passes.role.push_back(std::make_unique<OwnGradients>());
  // Before DeadCode, which removes the arguments that an operator was like.
  if (several) passes.role.push_back(std::make_unique<OwnGenerators>());
  // Removes what the others left without a reader. Devices that operators are cut over have the
  // same nodes up to constants, so that the same collectives go.
  passes.role.push_back(std::make_unique<DeadCode>());
  // Once more, as above.
  if (pipeline) passes.role.push_back(std::make_unique<AssignChunks>());
  // Needs chunks, and nobody left who may go; last, since what is chosen to be kept is chosen with
  // it (recompute_step.cc), which also takes out whatever is not kept so.
  if (may_recompute(config)) passes.role.push_back(std::make_unique<PackMasks>());
  return passes;
}

CompiledStep compile(StepRecording recording, const ClusterShape& cluster, const Config& config,
                     const CompileOptions& options) {
  CompiledStep step;
  step.placement =
      place_step(recording.whole, recording.made_under, recording.cuts, cluster, config);
  const Placement& placement = step.placement;
  decide(recording.whole, recording.cuts, config, placement);
  look_at_loss(config, recording.whole, step);
  SlicedSteps sliced = cut_rows(recording.whole, placement, cluster, config);
  CutStep cut;
  if (placement.splits()) {
    cut = cut_operators(recording, placement, cluster, config, options.state);
    step.parts = std::move(cut.parts);
  }
  const LayoutsOfRoles outputs =
      output_layouts(placement, sliced, cut, recording.whole.metrics.size());
  take_graphs(std::move(recording.whole), sliced, step_passes(config, placement).role, step);
  for (size_t role = 0; role < step.parts.size(); ++role) {
    drop_repeated_gradients(cut, role, step.parts[role]);
  }
  const LowerOptions lowering = lower_options(cluster, config, options, placement);
  step.plan = lower_within_memory(step, config, options, lowering, [&](const CompiledStep& each) {
    return lower_roles(each, sliced, cluster, config, lowering);
  });
  step.device_bytes = most_bytes_of_device(step, options, lowering.zero);
  for (auto& remark : cut.remarks) step.plan.remarks.push_back(std::move(remark));
  for (auto& [devices, own] : sliced) {
    for (auto& remark : own.sharding.remarks) step.plan.remarks.push_back(std::move(remark));
  }
  settle_guards(cut, sliced, step.plan);
  settle_outputs(outputs, config, step);
  share_programs(step.plan);
  verify_plan(step.plan);
  return step;
}

}  // namespace epl

#include "compile/compile.h"

#include <c10/core/TensorOptions.h>

#include "base/check.h"
#include "compile/cut_rows.h"
#include "compile/split_step.h"
#include "cost/node_cost.h"
#include "passes/assign_chunks.h"
#include "passes/batched_products.h"
#include "passes/dead_code.h"
#include "passes/dense_gradients.h"
#include "passes/own_generators.h"
#include "passes/own_gradients.h"
#include "passes/purify.h"
#include "passes/tied_gradients.h"
#include "plan/crossings.h"
#include "plan/lower_pipeline.h"
#include "plan/schedules.h"
#include "plan/shared_writes.h"

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

Schedule schedule_of(const Graph& graph, const Config& config, const CompileOptions& options) {
  ScheduleRequest request;
  request.strategy = config.get<std::string>("pipeline.strategy");
  request.stages = options.placement.groups();
  request.chunks_per_stage = chunk_count(graph) / request.stages;
  request.micro_batches = static_cast<int>(config.get<int64_t>("pipeline.num_micro_batch"));
  if (request.strategy == "ZeroBubble") {
    request.costs = estimated_costs(graph, machine_of(options.cluster));
  }
  return make_schedule(request);
}

void check_same_nodes(const Graph& graph, const Graph& other) {
  EPL_ASSERT(graph.nodes.size() == other.nodes.size() && graph.value_count() == other.value_count(),
             "a step has the same operators for any number of rows");
}

Plan plan_pipeline(const CompiledStep& step, const Config& config, const CompileOptions& options) {
  const Placement& placement = options.placement;
  std::vector<Stage> stages;
  for (size_t i = 0; i < placement.stage_devices.size(); ++i) {
    const int devices = placement.stage_devices[i];
    stages.push_back({&step.recorded_for(devices), devices, placement.stage_asked_by[i],
                      placement.group(static_cast<int>(i))});
    check_same_nodes(step.graph, *stages.back().graph);
    const bool cut = i < step.parts.size() && !step.parts[i].leaves.empty();
    if (cut) stages.back().graph = &step.parts[i];
  }
  return lower_pipeline(step.recorded_for(1), stages, schedule_of(step.graph, config, options),
                        lower_options(config, options));
}

}  // namespace

LowerOptions lower_options(const Config& config, const CompileOptions& options) {
  LowerOptions lowering;
  lowering.micro_batches = static_cast<int>(config.get<int64_t>("pipeline.num_micro_batch"));
  lowering.replicas = options.placement.replicas;
  lowering.slices = options.placement.stage_devices[0];
  lowering.most_reductions = static_cast<int>(config.get<int64_t>("communication.max_splits"));
  lowering.end = options.end;
  lowering.end.apply_groups = static_cast<int>(config.get<int64_t>("optimizer.num_apply_group"));
  lowering.backend = c10::computeDispatchKey(c10::nullopt, c10::nullopt, options.device);
  return lowering;
}

PassList standard_passes(const Config& config, const CompileOptions& options) {
  PassList passes;
  const bool pipeline = options.placement.is_pipeline();
  // First: what follows may then move and drop nodes without asking who shares memory.
  passes.push_back(std::make_unique<Purify>());
  // So that attention can be cut over its heads; DeadCode removes what it leaves.
  if (options.placement.splits()) passes.push_back(std::make_unique<BatchedProducts>());
  if (pipeline) {
    passes.push_back(std::make_unique<AssignChunks>());
    // Needs chunks; before OwnGradients, which gives each of the new gradients memory of its own.
    passes.push_back(std::make_unique<TiedGradients>());
  }
  // After Purify, which can make two gradients one value; before DeadCode, so that copies that
  // nobody needs go as well.
  passes.push_back(std::make_unique<OwnGradients>());
  // After OwnGradients, which leaves sparse gradients to themselves.
  const bool several = options.placement.devices() > 1;
  if (several && config.get<bool>("communication.sparse_as_dense")) {
    passes.push_back(std::make_unique<DenseGradients>());
  }
  // Before DeadCode, which removes the arguments that an operator was like.
  if (several) passes.push_back(std::make_unique<OwnGenerators>());
  // Removes what the others left without a reader.
  passes.push_back(std::make_unique<DeadCode>());
  // Once more for the nodes that came since, and for those whose readers went.
  if (pipeline) passes.push_back(std::make_unique<AssignChunks>());
  return passes;
}

PassList local_passes(const Config& config) {
  PassList passes;
  // As in the list above; what it reads is pure already.
  passes.push_back(std::make_unique<OwnGradients>());
  if (config.get<bool>("communication.sparse_as_dense")) {
    passes.push_back(std::make_unique<DenseGradients>());
  }
  passes.push_back(std::make_unique<OwnGenerators>());
  // Devices have the same nodes up to constants, so that the same collectives go.
  passes.push_back(std::make_unique<DeadCode>());
  return passes;
}

bool has_parts(const Config& config, const CompileOptions& options) {
  return options.placement.replicas * config.get<int64_t>("pipeline.num_micro_batch") > 1;
}

CompiledStep compile(Graph graph, const Config& config, const CompileOptions& options,
                     std::map<int, Graph> other) {
  CompiledStep compiled;
  compiled.graph = std::move(graph);
  compiled.other = std::move(other);
  const auto run = [&](Graph& each) {
    run_passes(each, standard_passes(config, options));
    if (options.placement.is_pipeline()) {
      settle_shared_writes(each, options.placement.groups(), options.placement.asked_by);
    }
    look_at_targets(each, nodes_on_slices(each, options.placement), has_parts(config, options));
  };
  run(compiled.graph);
  for (auto& entry : compiled.other) run(entry.second);
  if (options.placement.splits()) cut_stages(compiled, config, options);
  compiled.plan = options.placement.is_pipeline()
                      ? plan_pipeline(compiled, config, options)
                      : lower(compiled.graph, lower_options(config, options));
  compiled.plan.remarks = compiled.remarks;
  return compiled;
}

}  // namespace epl

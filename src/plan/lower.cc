#include "plan/lower.h"

#include <map>

#include "plan/program_parts.h"
#include "plan/segment_builder.h"
#include "plan/stamp_costs.h"
#include "program/verify.h"

namespace epl {
namespace {

void add_instructions(const LowerOptions& options, const std::vector<int>& reduced,
                      bool reduces_early, Program& program) {
  for (int i = 0; i < options.micro_batches; ++i) {
    Instruction load;
    load.kind = Instruction::Kind::kLoad;
    load.micro_batch = i;
    program.instructions.push_back(load);
    Instruction run;
    run.micro_batch = i;
    run.segment = i == 0 ? 0 : 1;
    const bool last = i + 1 == options.micro_batches;
    if (last && options.replicas * options.slices > 1 && !reduced.empty()) {
      add_last_run({run, reduced, options.most_reductions, reduces_early}, program);
    } else {
      program.instructions.push_back(run);
    }
  }
}

// The gradients of a single micro batch lie wherever they are made; they are taken from there.
SegmentPart whole_step(const Graph& graph, bool accumulates) {
  SegmentPart part;
  part.name = "step";
  for (const auto& node : graph.nodes) part.nodes.push_back(&node);
  part.loss = graph.loss;
  part.metrics = graph.metrics;
  if (accumulates) return part;
  for (const auto& gradient : graph.gradients) part.taken.push_back(gradient.value);
  return part;
}

Program lower_program(const Graph& graph, const LowerOptions& options) {
  Program program;
  program.devices = options.slices;
  add_leaves(graph, InputPlaces::kOne, program);
  const bool accumulates = options.micro_batches > 1;
  std::map<ValueId, size_t> gradients;
  for (size_t i = 0; i < graph.gradients.size(); ++i) {
    gradients[graph.gradients[i].value] = i;
    if (accumulates) add_kept_gradient(graph, graph.gradients[i], program);
  }
  SegmentPart part = whole_step(graph, accumulates);
  SegmentBuilder builder(graph, {part}, gradients, program, options.backend);
  builder.mark();
  builder.build(part, accumulates ? Accumulation::kFirst : Accumulation::kNone);
  if (accumulates) {
    builder.rewind();
    part.name = "step and accumulate";
    builder.build(part, Accumulation::kNext);
  } else {
    for (const auto& gradient : graph.gradients) {
      program.gradients.push_back({gradient.parameter, builder.slot_of(gradient.value)});
    }
  }
  const Regions regions = builder.find_regions();
  put(regions, program.arena_bytes, program.arena_bytes, program);
  program.arena_bytes += regions.shared_bytes();
  return program;
}

std::vector<int> gradients_to_reduce(const Plan& plan, size_t program) {
  std::vector<int> indices;
  for (size_t i = 0; i < plan.programs[program].gradients.size(); ++i) {
    const auto index = static_cast<int>(i);
    if (!plan.is_tied(static_cast<int>(program), index)) indices.push_back(index);
  }
  return indices;
}

}  // namespace

Plan lower(const Graph& graph, const LowerOptions& options) {
  return lower_parts({&graph}, options);
}

Plan lower_parts(const std::vector<const Graph*>& parts, const LowerOptions& options) {
  Plan plan;
  plan.micro_batches = options.micro_batches;
  plan.replicas = options.replicas;
  for (const Graph* graph : parts) plan.programs.push_back(lower_program(*graph, options));
  find_tied(plan);
  // A guard may send the step back to its start.
  const bool early = !options.end.clips_each_replica && !plan.has_guards();
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    add_instructions(options, gradients_to_reduce(plan, i), early, plan.programs[i]);
  }
  add_step_end(options.end, early, plan);
  stamp_costs(plan, options.machine);
  verify_plan(plan);
  return plan;
}

}  // namespace epl

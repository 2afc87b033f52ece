#include "plan/lower.h"

#include <algorithm>

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

Program lower_program(const Graph& graph, const LowerOptions& options) {
  Program program;
  program.devices = options.slices;
  add_leaves(graph, InputPlaces::kOne, program);
  const bool accumulates = options.micro_batches > 1;
  if (accumulates) {
    for (const auto& gradient : graph.gradients) add_kept_gradient(graph, gradient, program);
  }
  const int64_t fixed = program.arena_bytes;

  SegmentBuilder first(graph, program, options.backend,
                       accumulates ? Accumulation::kFirst : Accumulation::kNone);
  first.build("step");
  int64_t largest = first.place_new_buffers(fixed);
  if (accumulates) {
    SegmentBuilder next(graph, program, options.backend, Accumulation::kNext);
    next.build("step and accumulate");
    largest = std::max(largest, next.place_new_buffers(fixed));
  } else {
    for (const auto& gradient : graph.gradients) {
      program.gradients.push_back({gradient.parameter, first.slot_of(gradient.value)});
    }
  }
  program.arena_bytes = fixed + largest;
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

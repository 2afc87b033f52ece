#include "plan/lower.h"

#include <algorithm>
#include <numeric>

#include "plan/program_parts.h"
#include "plan/segment_builder.h"
#include "program/verify.h"

namespace epl {
namespace {

void add_instructions(const LowerOptions& options, bool reduces_early, Program& program) {
  for (int i = 0; i < options.micro_batches; ++i) {
    Instruction load;
    load.kind = Instruction::Kind::kLoad;
    load.micro_batch = i;
    program.instructions.push_back(load);
    Instruction run;
    run.micro_batch = i;
    run.segment = i == 0 ? 0 : 1;
    if (i + 1 == options.micro_batches && options.replicas * options.slices > 1) {
      LastRun last{run, {}, options.most_reductions, reduces_early};
      last.made.resize(program.gradients.size());
      std::iota(last.made.begin(), last.made.end(), 0);
      add_last_run(last, program);
    } else {
      program.instructions.push_back(run);
    }
  }
  add_updates(options.apply_groups, program);
}

}  // namespace

Plan lower(const Graph& graph, const LowerOptions& options) {
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

  Plan plan;
  plan.micro_batches = options.micro_batches;
  plan.replicas = options.replicas;
  // A guard may send the step back to its start.
  plan.reduces_early = options.reduces_early && !program.has_guards;
  add_instructions(options, plan.reduces_early, program);
  plan.programs.push_back(std::move(program));
  verify_plan(plan);
  return plan;
}

}  // namespace epl

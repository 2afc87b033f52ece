#include "plan/lower.h"

#include <algorithm>

#include "plan/program_parts.h"
#include "plan/role_segments.h"
#include "plan/short_gradients.h"
#include "plan/spread.h"
#include "plan/stamp_costs.h"
#include "plan/transfers.h"
#include "program/verify.h"

namespace epl {
namespace {

// How many calls a segment begins with that touch nothing of what is received: they run while that
// is on its way. None where no call reads it: then it is handed on.
int calls_before(const std::vector<Instruction>& receives, const Program& program, int segment) {
  const auto& slots = program.slots;
  const auto shares_memory = [&](SlotId a, SlotId b) {
    const Slot& one = slots[static_cast<size_t>(a)];
    const Slot& other = slots[static_cast<size_t>(b)];
    const bool in_arena = one.where == Slot::Where::kArena && other.where == Slot::Where::kArena;
    return a == b || (in_arena && one.index == other.index);
  };
  const auto is_received = [&](SlotId slot) {
    return std::any_of(receives.begin(), receives.end(), [&](const Instruction& receive) {
      return std::any_of(receive.slots.begin(), receive.slots.end(),
                         [&](SlotId received) { return shares_memory(slot, received); });
    });
  };
  const auto& calls = program.segments[static_cast<size_t>(segment)].calls;
  for (size_t i = 0; i < calls.size(); ++i) {
    bool touches = false;
    for_each_operand(calls[i], [&](SlotId slot) { touches |= is_received(slot); });
    for_each_result(calls[i], [&](SlotId slot) { touches |= is_received(slot); });
    if (touches) return static_cast<int>(i);
  }
  return 0;
}

class Lowering {
 public:
  Lowering(const Graph& whole, const std::vector<Role>& roles, const Schedule& schedule,
           const LowerOptions& options)
      : roles_(roles), options_(options), step_(whole, schedule, options.micro_batches) {
    plan_.micro_batches = options.micro_batches;
    plan_.replicas = options.replicas;
    plan_.schedule = schedule;
  }

  Plan run() {
    for (size_t i = 0; i < step_.crossings().size(); ++i) add_transfers(i);
    plan_.programs.resize(roles_.size());
    const std::vector<ShortGradients> short_gradients =
        find_short_gradients(roles_, step_, options_, plan_.remarks);
    for (size_t i = 0; i < roles_.size(); ++i) {
      segments_.push_back(
          build_segments(roles_[i], step_, options_, short_gradients[i], plan_.programs[i]));
    }
    find_tied(plan_);
    assign_owners(options_.zero, plan_);
    spread_parameters(options_.zero, plan_);
    // A guard may send the step back to its start.
    reduces_early_ = !options_.end.clips_each_replica && !plan_.has_guards();
    for (size_t i = 0; i < roles_.size(); ++i) {
      const auto stage = static_cast<size_t>(roles_[i].stage);
      for (const auto& task : step_.schedule().stages[stage]) add_task(i, task);
    }
    add_step_end(options_.end, reduces_early_, plan_);
    add_offload(options_.offload, plan_);
    add_spread_fetches(options_.zero, plan_);
    stamp_costs(plan_, options_.machine);
    verify_plan(plan_);
    return std::move(plan_);
  }

 private:
  // What crosses is whole on every device of a stage: each receiver has one sender.
  void add_transfers(size_t index) {
    const Crossing& crossing = step_.crossings()[index];
    const std::vector<size_t> senders = roles_with(crossing.from.chunk);
    const std::vector<size_t> receivers = roles_with(crossing.to.chunk);
    for (size_t i = 0; i < receivers.size(); ++i) {
      const size_t from = senders[i % senders.size()];
      plan_.transfers.push_back(make_transfer(crossing, roles_[from], roles_[receivers[i]]));
      Transfer& transfer = plan_.transfers.back();
      transfer.from = static_cast<int>(from);
      transfer.to = static_cast<int>(receivers[i]);
      transfer.name = name_of(crossing.from) + " to " + name_of(crossing.to);
      crossing_of_transfer_.push_back(index);
    }
  }

  std::vector<size_t> roles_with(int chunk) const {
    std::vector<size_t> found;
    for (size_t i = 0; i < roles_.size(); ++i) {
      if (roles_[i].stage == step_.schedule().stage_of(chunk)) found.push_back(i);
    }
    return found;
  }

  void add_task(size_t role, const Task& task) {
    const auto program = static_cast<int>(role);
    const ChunkTask here{task.kind, task.chunk};
    const TaskSegments& segments = segments_[role].chunks.at(task.chunk).of(task.micro_batch);
    auto& instructions = plan_.programs[role].instructions;
    if (here == ChunkTask{}) instructions.push_back(load(role, task, segments));
    std::vector<Instruction> receives;
    for (size_t i = 0; i < plan_.transfers.size(); ++i) {
      if (!(crossing(i).to == here) || plan_.transfers[i].to != program) continue;
      receives.push_back(move(Instruction::Kind::kReceive, i, task, segments));
    }
    Instruction run;
    run.micro_batch = task.micro_batch;
    run.segment = segments.segments[static_cast<size_t>(task.kind)];
    if (task.kind != Task::Kind::kForward) {
      run.end_call = calls_before(receives, plan_.programs[role], run.segment);
      if (run.end_call > 0) instructions.push_back(run);
      run.first_call = run.end_call;
      run.end_call = Instruction::kToTheEnd;
    }
    for (Instruction& receive : receives) instructions.push_back(std::move(receive));
    add_run(role, here, run);
    for (size_t i = 0; i < plan_.transfers.size(); ++i) {
      if (!(crossing(i).from == here) || plan_.transfers[i].from != program) continue;
      instructions.push_back(move(Instruction::Kind::kSend, i, task, segments));
    }
  }

  // In a pipeline a micro batch does not lie at the leaves' own places.
  Instruction load(size_t role, const Task& task, const TaskSegments& segments) const {
    Instruction load;
    load.kind = Instruction::Kind::kLoad;
    load.micro_batch = task.micro_batch;
    if (!step_.is_pipeline()) return load;
    for (const auto& leaf : roles_[role].graph->leaves) {
      const auto place = segments.places.find(leaf.value);
      const bool loads = leaf.kind == Leaf::Kind::kInput && place != segments.places.end();
      load.slots.push_back(loads ? place->second : kNoSlot);
    }
    return load;
  }

  const Crossing& crossing(size_t transfer) const {
    return step_.crossings()[crossing_of_transfer_[transfer]];
  }

  Instruction move(Instruction::Kind kind, size_t transfer, const Task& task,
                   const TaskSegments& segments) const {
    Instruction instruction;
    instruction.kind = kind;
    instruction.micro_batch = task.micro_batch;
    instruction.transfer = static_cast<int>(transfer);
    for (ValueId id : crossing(transfer).values) {
      instruction.slots.push_back(segments.places.at(id));
    }
    return instruction;
  }

  void add_run(size_t role, const ChunkTask& task, const Instruction& run) {
    Program& program = plan_.programs[role];
    const bool reduces = options_.replicas * program.devices > 1;
    const bool last = run.micro_batch + 1 == options_.micro_batches;
    std::vector<int> made;
    if (reduces && last) made = gradients_to_reduce(role, task);
    std::vector<RunCut> cuts;
    if (!made.empty()) {
      cuts = cuts_of_reductions(program, run, made, options_.most_reductions);
    }
    const auto groups = segments_[role].short_groups.find(run.segment);
    if (groups != segments_[role].short_groups.end()) {
      const bool goes_on = step_.is_pipeline() || !last;
      for (RunCut& cut : cuts_of_short_groups(groups->second, program, run, goes_on)) {
        cuts.push_back(std::move(cut));
      }
    }
    if (cuts.empty()) {
      program.instructions.push_back(run);
    } else if (reduces_early_) {
      add_run_in_pieces(run, std::move(cuts), program);
    } else {
      add_run_and_groups(run, cuts, program);
    }
  }

  // Those that the task makes. What is tied is summed over roles at the end of the step.
  std::vector<int> gradients_to_reduce(size_t role, const ChunkTask& task) const {
    const std::vector<ChunkTask>& made_in = segments_[role].made_in;
    std::vector<int> indices;
    for (size_t i = 0; i < made_in.size(); ++i) {
      const auto index = static_cast<int>(i);
      const bool here = made_in[i] == task && !plan_.is_tied(static_cast<int>(role), index) &&
                        plan_.programs[role].gradients[i].stays_to_the_end();
      if (here) indices.push_back(index);
    }
    return indices;
  }

  const std::vector<Role>& roles_;
  const LowerOptions& options_;
  const StepTasks step_;
  std::vector<size_t> crossing_of_transfer_;
  std::vector<RoleSegments> segments_;  // by role
  bool reduces_early_ = true;           // groups of gradients set out as a program reaches them
  Plan plan_;
};

}  // namespace

Plan lower(const Graph& whole, const std::vector<Role>& roles, const Schedule& schedule,
           const LowerOptions& options) {
  return Lowering(whole, roles, schedule, options).run();
}

}  // namespace epl

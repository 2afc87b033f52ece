#include "plan/step_end.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "plan/program_parts.h"

namespace epl {
namespace {

std::vector<int> all_gradients(const Program& program) {
  std::vector<int> all(program.gradients.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<int> tied_gradients(const Plan& plan, size_t program) {
  std::vector<int> tied;
  for (int index : all_gradients(plan.programs[program])) {
    if (plan.is_tied(static_cast<int>(program), index)) tied.push_back(index);
  }
  return tied;
}

// State that only one device writes is as it should be, unless others are to have it.
std::vector<int> merged_leaves(const Plan& plan, const Program& program, bool travels) {
  const bool several = plan.replicas * program.devices > 1;
  return several || travels ? program.written_leaves : std::vector<int>();
}

// Leaves are the same in all programs, up to pieces. What is spread no worker has whole.
std::set<int> updated_leaves(const Program& program) {
  std::set<int> leaves;
  for (const auto& gradient : program.gradients) {
    const bool spread = program.leaves[static_cast<size_t>(gradient.leaf)].is_spread();
    if (!spread) leaves.insert(gradient.leaf);
  }
  return leaves;
}

std::set<int> read_leaves(const Program& program) {
  std::set<int> leaves;
  for (const auto& segment : program.segments) {
    for (const auto& call : segment.calls) {
      for_each_operand(call, [&](SlotId id) {
        const Slot& slot = program.slots[static_cast<size_t>(id)];
        if (slot.where == Slot::Where::kLeaf) leaves.insert(slot.index);
      });
    }
  }
  return leaves;
}

// Of a parameter that is cut each program lacks the shards of the others; nobody reads those.
std::vector<int> gathered_leaves(const Plan& plan, const Program& program, bool only_read) {
  std::set<int> everywhere;
  for (const auto& each : plan.programs) {
    const std::set<int> updated = updated_leaves(each);
    everywhere.insert(updated.begin(), updated.end());
  }
  const std::set<int> own = updated_leaves(program);
  const std::set<int> read = only_read ? read_leaves(program) : everywhere;
  std::vector<int> leaves;
  for (int leaf : everywhere) {
    const bool of_others = own.count(leaf) == 0 && read.count(leaf) != 0;
    const bool cut = program.leaves[static_cast<size_t>(leaf)].shard.is_cut();
    if (of_others || (cut && !only_read)) leaves.push_back(leaf);
  }
  return leaves;
}

// Of which a worker of the role updates a part, and all of them need the whole.
std::vector<int> owned_leaves(const Program& program) {
  std::set<int> leaves;
  for (const auto& gradient : program.gradients) {
    const bool spread = program.leaves[static_cast<size_t>(gradient.leaf)].is_spread();
    if (!gradient.owners.are_all() && !spread) leaves.insert(gradient.leaf);
  }
  return {leaves.begin(), leaves.end()};
}

class EndBuilder {
  using Kind = Instruction::Kind;
  using Over = Instruction::Over;

 public:
  EndBuilder(const StepEndOptions& options, Plan& plan) : options_(options), plan_(plan) {}

  void build(bool reduces_early) {
    if (!reduces_early) hold_reductions_back();
    const bool travels = options_.gather != StepEndOptions::Gather::kOneWorker;
    add(Kind::kReport);
    if (any_state(travels)) {
      for (auto& program : plan_.programs) {
        append(Kind::kMerge, program).leaves = merged_leaves(plan_, program, travels);
      }
    }
    if (options_.clips_each_replica) add_of_all(Kind::kClip, Over::kReplica);
    add_held_back();
    add_tied();
    if (reduces()) add(Kind::kAwait);
    if (options_.loss == StepEndOptions::OnBadLoss::kChecked) add(Kind::kCheck);
    if (options_.scales_loss) add_of_all(Kind::kFinite, Over::kReplicas);
    if (options_.clips_reduced) add_of_all(Kind::kClip, Over::kAll);
    update();
    if (options_.gathers_from_owners) gather_from_owners();
    if (travels) gather();
  }

 private:
  static Instruction& append(Kind kind, Program& program) {
    Instruction& made = program.instructions.emplace_back();
    made.kind = kind;
    return made;
  }

  void add(Kind kind) {
    for (auto& program : plan_.programs) append(kind, program);
  }

  // On all gradients of each program.
  void add_of_all(Kind kind, Over over) {
    for (auto& program : plan_.programs) {
      Instruction& made = append(kind, program);
      made.over = over;
      made.gradients = all_gradients(program);
    }
  }

  bool any_state(bool travels) const {
    return std::any_of(plan_.programs.begin(), plan_.programs.end(), [&](const Program& each) {
      return !merged_leaves(plan_, each, travels).empty();
    });
  }

  bool reduces() const {
    return std::any_of(plan_.programs.begin(), plan_.programs.end(), [](const Program& program) {
      return std::any_of(program.instructions.begin(), program.instructions.end(),
                         [](const Instruction& each) { return each.kind == Kind::kReduce; });
    });
  }

  void hold_reductions_back() {
    for (auto& program : plan_.programs) {
      auto& held = held_back_.emplace_back();
      auto& all = program.instructions;
      const auto first = std::stable_partition(all.begin(), all.end(), [](const Instruction& each) {
        return each.kind != Kind::kReduce;
      });
      held.assign(first, all.end());
      all.erase(first, all.end());
    }
  }

  // A program of one device has none where others have some.
  void add_held_back() {
    const bool any = std::any_of(held_back_.begin(), held_back_.end(),
                                 [](const auto& held) { return !held.empty(); });
    if (!any) return;
    for (size_t i = 0; i < held_back_.size(); ++i) {
      Program& program = plan_.programs[i];
      if (held_back_[i].empty()) append(Kind::kReduce, program);
      program.instructions.insert(program.instructions.end(), held_back_[i].begin(),
                                  held_back_[i].end());
    }
  }

  void add_tied() {
    if (plan_.tied.empty()) return;
    for (size_t i = 0; i < plan_.programs.size(); ++i) {
      Instruction& made = append(Kind::kReduce, plan_.programs[i]);
      made.over = Over::kRoles;
      made.gradients = tied_gradients(plan_, i);
    }
  }

  // Also where the step gives no gradient at all: optimizers may go on with zeros.
  void update() {
    for (auto& program : plan_.programs) {
      const size_t before = program.instructions.size();
      add_updates(
          options_.apply_groups_of ? options_.apply_groups_of(program) : options_.apply_groups,
          program);
      if (program.instructions.size() == before) append(Kind::kUpdate, program);
    }
  }

  // What each of the workers of a role updates comes to the others. Also where this step gives none
  // of it a gradient: what earlier ones gave one may go on by its momentum.
  void gather_from_owners() {
    for (auto& program : plan_.programs) {
      append(Kind::kGather, program).leaves = owned_leaves(program);
    }
  }

  void gather() {
    const bool only_read = options_.gather == StepEndOptions::Gather::kRead;
    for (auto& program : plan_.programs) {
      Instruction& made = append(Kind::kGather, program);
      made.over = Over::kRoles;
      made.leaves = gathered_leaves(plan_, program, only_read);
    }
  }

  const StepEndOptions& options_;
  Plan& plan_;
  std::vector<std::vector<Instruction>> held_back_;  // reductions, by program
};

}  // namespace

void add_step_end(const StepEndOptions& options, bool reduces_early, Plan& plan) {
  EndBuilder(options, plan).build(reduces_early);
}

}  // namespace epl

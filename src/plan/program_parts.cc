#include "plan/program_parts.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/check.h"
#include "plan/memory.h"

namespace epl {
namespace {

int64_t tensor_bytes(const TensorType& type) { return type.numel() * type.item_bytes(); }

// A buffer that no other one shares bytes with.
int add_fixed_buffer(Program& program, int64_t bytes) {
  program.buffers.push_back({bytes, program.arena_bytes});
  program.arena_bytes += align_up(bytes);
  return static_cast<int>(program.buffers.size() - 1);
}

std::vector<int64_t> gradient_bytes(const Program& program, const std::vector<int>& order) {
  std::vector<int64_t> bytes;
  for (int i : order) {
    const SlotId slot = program.gradients[static_cast<size_t>(i)].slot;
    bytes.push_back(tensor_bytes(program.slots[static_cast<size_t>(slot)].type));
  }
  return bytes;
}

// In the order in which they set out: those of one group have one number.
int next_group(const Program& program) {
  int next = 0;
  for (const Instruction& each : program.instructions) {
    const bool starts =
        each.kind == Instruction::Kind::kReduce || each.kind == Instruction::Kind::kUpdateEarly;
    if (starts) next = std::max(next, each.group + 1);
  }
  return next;
}

// Gradients (indices into Program::gradients) in the order of `order`, in at most so many groups of
// about equal bytes.
std::vector<std::vector<int>> grouped(const Program& program, const std::vector<int>& order,
                                      int groups) {
  auto result = cut_into_groups(gradient_bytes(program, order), groups);
  for (auto& group : result) {
    for (int& i : group) i = order[static_cast<size_t>(i)];
  }
  return result;
}

}  // namespace

SlotId add_slot(Program& program, Slot slot) {
  program.slots.push_back(std::move(slot));
  return static_cast<SlotId>(program.slots.size() - 1);
}

Slot fixed_slot(Program& program, TensorType type) {
  Slot slot;
  slot.type = std::move(type);
  slot.index = add_fixed_buffer(program, slot.type.extent_bytes());
  return slot;
}

void add_leaves(const Graph& graph, InputPlaces inputs, Program& program) {
  for (const auto& leaf : graph.leaves) {
    const TensorType& type = graph.value(leaf.value).type;
    PlanLeaf made;
    made.name = leaf.name;
    made.index = leaf.index;
    made.shard = leaf.shard;
    if (leaf.kind == Leaf::Kind::kInput) {
      EPL_CHECK(type.layout == c10::kStrided,
                concat("input ", leaf.index, " of the batch is not a dense tensor"), "epl::Trainer",
                "to_dense() before the step");
    }
    if (leaf.kind == Leaf::Kind::kInput || leaf.kind == Leaf::Kind::kSeed) {
      made.kind = leaf.kind == Leaf::Kind::kInput ? PlanLeaf::Kind::kInput : PlanLeaf::Kind::kSeed;
      const bool later = leaf.kind == Leaf::Kind::kInput && inputs == InputPlaces::kEachMicroBatch;
      if (!later) made.slot = add_slot(program, fixed_slot(program, type));
    } else {
      Slot slot;
      slot.where = Slot::Where::kLeaf;
      slot.index = static_cast<int>(program.leaves.size());
      slot.type = type;
      made.slot = add_slot(program, std::move(slot));
    }
    program.leaves.push_back(std::move(made));
  }
}

void add_kept_gradient(const Graph& graph, const Gradient& gradient, Program& program) {
  const TensorType& type = graph.value(gradient.value).type;
  Slot slot;
  slot.type = type;
  if (type.layout == c10::kStrided) {
    const TensorType& whole = graph.value(graph.value(gradient.value).storage).type;
    slot.index = add_fixed_buffer(program, std::max(whole.extent_bytes(), type.extent_bytes()));
  } else {
    slot.where = Slot::Where::kMadeByOperator;
  }
  program.gradients.push_back({gradient.parameter, add_slot(program, std::move(slot))});
}

std::vector<std::vector<int>> cut_into_groups(const std::vector<int64_t>& bytes, int groups) {
  const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  std::vector<std::vector<int>> result;
  int64_t before = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    // The group that the middle of this gradient falls into when all bytes are cut evenly.
    const int64_t middle = before + bytes[i] / 2;
    const int64_t group = total == 0 ? 0 : std::min<int64_t>(groups - 1, middle * groups / total);
    if (result.empty() || group >= static_cast<int64_t>(result.size())) result.emplace_back();
    result.back().push_back(static_cast<int>(i));
    before += bytes[i];
  }
  return result;
}

std::vector<int> ready_after(const Program& program, const Segment& segment,
                             const std::vector<SlotId>& slots) {
  std::map<int, std::vector<size_t>> by_buffer;
  std::map<SlotId, std::vector<size_t>> by_slot;
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = program.slots[static_cast<size_t>(slots[i])];
    by_slot[slots[i]].push_back(i);
    if (slot.where == Slot::Where::kArena) by_buffer[slot.index].push_back(i);
  }
  std::vector<int> ready(slots.size(), 0);
  for (size_t at = 0; at < segment.calls.size(); ++at) {
    const auto touch = [&](SlotId id) {
      const Slot& slot = program.slots[static_cast<size_t>(id)];
      const auto& touched = slot.where == Slot::Where::kArena ? by_buffer[slot.index] : by_slot[id];
      for (size_t i : touched) ready[i] = static_cast<int>(at) + 1;
    };
    for_each_result(segment.calls[at], touch);
    for_each_operand(segment.calls[at], touch);
  }
  return ready;
}

std::vector<RunCut> cuts_of_reductions(const Program& program, const Instruction& run,
                                       const std::vector<int>& made, int most_groups) {
  const Segment& segment = program.segments[static_cast<size_t>(run.segment)];
  std::vector<SlotId> slots;
  for (int i : made) slots.push_back(program.gradients[static_cast<size_t>(i)].slot);
  const std::vector<int> ready = ready_after(program, segment, slots);
  std::map<int, int> ready_of;
  for (size_t i = 0; i < made.size(); ++i) ready_of[made[i]] = ready[i];
  std::vector<int> order = made;
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return ready_of[a] < ready_of[b]; });
  std::vector<RunCut> cuts;
  for (auto& group : grouped(program, order, most_groups)) {
    Instruction reduce;
    reduce.kind = Instruction::Kind::kReduce;
    const int end = ready_of[group.back()];
    reduce.gradients = std::move(group);
    cuts.push_back({end, {std::move(reduce)}});
  }
  return cuts;
}

namespace {

// Instructions of a group that is under way name its number by its slots.
void number_groups(std::vector<Instruction>& then, const Program& program,
                   std::map<std::vector<SlotId>, int>& groups) {
  int next = next_group(program);
  for (const auto& [slots, group] : groups) next = std::max(next, group + 1);
  for (Instruction& each : then) {
    if (each.kind == Instruction::Kind::kReduce && each.slots.empty()) {
      each.group = next++;
    } else {
      const auto [found, fresh] = groups.try_emplace(each.slots, next);
      next += fresh ? 1 : 0;
      each.group = found->second;
    }
  }
}

}  // namespace

void add_run_in_pieces(Instruction run, std::vector<RunCut> cuts, Program& program) {
  const auto calls =
      static_cast<int>(program.segments[static_cast<size_t>(run.segment)].calls.size());
  std::stable_sort(cuts.begin(), cuts.end(),
                   [](const RunCut& a, const RunCut& b) { return a.end_call < b.end_call; });
  std::map<std::vector<SlotId>, int> groups;
  for (RunCut& cut : cuts) {
    if (cut.end_call > run.first_call) {
      run.end_call = cut.end_call;
      program.instructions.push_back(run);
      run.first_call = cut.end_call;
    }
    number_groups(cut.then, program, groups);
    program.instructions.insert(program.instructions.end(), cut.then.begin(), cut.then.end());
  }
  run.end_call = Instruction::kToTheEnd;
  if (run.first_call < calls || run.first_call == 0) program.instructions.push_back(run);
}

void add_run_and_groups(const Instruction& run, const std::vector<RunCut>& cuts, Program& program) {
  program.instructions.push_back(run);
  int next = next_group(program);
  for (const RunCut& cut : cuts) {
    for (Instruction each : cut.then) {
      each.group = next++;
      program.instructions.push_back(std::move(each));
    }
  }
}

void find_tied(Plan& plan) {
  std::map<int, std::vector<Plan::TiedGradient>> by_leaf;
  for (size_t number = 0; number < plan.programs.size(); ++number) {
    const Program& program = plan.programs[number];
    for (size_t i = 0; i < program.gradients.size(); ++i) {
      const int leaf = program.gradients[i].leaf;
      if (program.leaves[static_cast<size_t>(leaf)].shard.is_cut()) continue;
      by_leaf[leaf].push_back({static_cast<int>(number), static_cast<int>(i)});
    }
  }
  for (auto& [leaf, gradients] : by_leaf) {
    if (gradients.size() > 1) plan.tied.push_back(std::move(gradients));
  }
}

void add_updates(int groups, Program& program) {
  std::vector<int> order;
  for (size_t i = 0; i < program.gradients.size(); ++i) {
    const bool early = program.gradients[i].stays == PlanGradient::Stays::kUntilUpdated;
    if (!early) order.push_back(static_cast<int>(i));
  }
  for (auto& group : grouped(program, order, groups)) {
    Instruction update;
    update.kind = Instruction::Kind::kUpdate;
    update.gradients = std::move(group);
    program.instructions.push_back(std::move(update));
  }
}

}  // namespace epl

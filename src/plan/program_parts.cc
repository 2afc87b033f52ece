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

// After how many calls of the segment each gradient has got its last write, and nobody reads it any
// more: what is made of it for another parameter would else see it half reduced, since reductions
// work in place while the rest of the segment runs.
std::vector<int> ready_after(const Program& program, const Segment& segment) {
  std::map<int, std::vector<size_t>> by_buffer;
  std::map<SlotId, std::vector<size_t>> by_slot;
  for (size_t i = 0; i < program.gradients.size(); ++i) {
    const SlotId id = program.gradients[i].slot;
    const Slot& slot = program.slots[static_cast<size_t>(id)];
    by_slot[id].push_back(i);
    if (slot.where == Slot::Where::kArena) by_buffer[slot.index].push_back(i);
  }
  std::vector<int> ready(program.gradients.size(), 0);
  for (size_t at = 0; at < segment.calls.size(); ++at) {
    const auto touch = [&](SlotId id) {
      const Slot& slot = program.slots[static_cast<size_t>(id)];
      const auto& touched = slot.where == Slot::Where::kArena ? by_buffer[slot.index] : by_slot[id];
      for (size_t i : touched) ready[i] = static_cast<int>(at) + 1;
    };
    for_each_result(segment.calls[at], touch);
    for (const Operand& operand : segment.calls[at].operands) {
      for (SlotId id : operand.slots) {
        if (id != kNoSlot) touch(id);
      }
    }
  }
  return ready;
}

int groups_so_far(const Program& program) {
  return static_cast<int>(std::count_if(
      program.instructions.begin(), program.instructions.end(),
      [](const Instruction& each) { return each.kind == Instruction::Kind::kReduce; }));
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

void add_last_run(const LastRun& last, Program& program) {
  Instruction run = last.run;
  const Segment& segment = program.segments[static_cast<size_t>(run.segment)];
  const auto calls = static_cast<int>(segment.calls.size());
  const std::vector<int> ready = ready_after(program, segment);
  std::vector<int> order = last.made;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return ready[static_cast<size_t>(a)] < ready[static_cast<size_t>(b)];
  });
  std::vector<Instruction> waiting;
  const int first_group = groups_so_far(program);
  for (auto& group : grouped(program, order, last.most_groups)) {
    const int end = ready[static_cast<size_t>(group.back())];
    if (last.reduces_early && end > run.first_call) {
      run.end_call = end;
      program.instructions.push_back(run);
      run.first_call = end;
    }
    Instruction reduce;
    reduce.kind = Instruction::Kind::kReduce;
    reduce.gradients = std::move(group);
    reduce.group = first_group + static_cast<int>(waiting.size());
    waiting.push_back(reduce);
    if (last.reduces_early) program.instructions.push_back(std::move(reduce));
  }
  run.end_call = Instruction::kToTheEnd;
  if (run.first_call < calls || run.first_call == 0) program.instructions.push_back(run);
  if (last.reduces_early) return;
  program.instructions.insert(program.instructions.end(), waiting.begin(), waiting.end());
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
  std::vector<int> order(program.gradients.size());
  std::iota(order.begin(), order.end(), 0);
  for (auto& group : grouped(program, order, groups)) {
    Instruction update;
    update.kind = Instruction::Kind::kUpdate;
    update.gradients = std::move(group);
    program.instructions.push_back(std::move(update));
  }
}

}  // namespace epl

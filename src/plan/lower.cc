#include "plan/lower.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/check.h"
#include "plan/segment_builder.h"
#include "program/verify.h"

namespace epl {
namespace {

SlotId add_slot(Plan& plan, Slot slot) {
  plan.slots.push_back(std::move(slot));
  return static_cast<SlotId>(plan.slots.size() - 1);
}

int64_t tensor_bytes(const TensorType& type) { return type.numel() * type.item_bytes(); }

// A buffer that no other one shares bytes with.
int add_fixed_buffer(Plan& plan, int64_t bytes) {
  plan.buffers.push_back({bytes, plan.arena_bytes});
  plan.arena_bytes += align_up(bytes);
  return static_cast<int>(plan.buffers.size() - 1);
}

Slot fixed_slot(Plan& plan, TensorType type) {
  Slot slot;
  slot.type = std::move(type);
  slot.index = add_fixed_buffer(plan, slot.type.extent_bytes());
  return slot;
}

// Inputs are copied to a fixed place: views of them and arguments that name them never change.
void add_leaves(const Graph& graph, Plan& plan) {
  for (const auto& leaf : graph.leaves) {
    const TensorType& type = graph.value(leaf.value).type;
    PlanLeaf made;
    made.name = leaf.name;
    made.index = leaf.index;
    if (leaf.kind == Leaf::Kind::kInput) {
      EPL_CHECK(type.layout == c10::kStrided,
                concat("input ", leaf.index, " of the batch is not a dense tensor"), "epl::Trainer",
                "to_dense() before the step");
    }
    if (leaf.kind == Leaf::Kind::kInput || leaf.kind == Leaf::Kind::kSeed) {
      made.kind = leaf.kind == Leaf::Kind::kInput ? PlanLeaf::Kind::kInput : PlanLeaf::Kind::kSeed;
      made.slot = add_slot(plan, fixed_slot(plan, type));
    } else {
      Slot slot;
      slot.where = Slot::Where::kLeaf;
      slot.index = static_cast<int>(plan.leaves.size());
      slot.type = type;
      made.slot = add_slot(plan, std::move(slot));
    }
    plan.leaves.push_back(std::move(made));
  }
}

// Where the sum over micro batches is kept.
void add_kept_gradients(const Graph& graph, Plan& plan) {
  for (const auto& gradient : graph.gradients) {
    const TensorType& type = graph.value(gradient.value).type;
    Slot slot;
    if (type.layout == c10::kStrided) {
      TensorType whole = graph.value(graph.value(gradient.value).storage).type;
      slot.type = type;
      slot.index = add_fixed_buffer(plan, std::max(whole.extent_bytes(), type.extent_bytes()));
    } else {
      slot.where = Slot::Where::kMadeByOperator;
      slot.type = type;
    }
    plan.gradients.push_back({gradient.parameter, add_slot(plan, std::move(slot))});
  }
}

std::vector<int64_t> gradient_bytes(const Plan& plan, const std::vector<int>& order) {
  std::vector<int64_t> bytes;
  for (int i : order) {
    const SlotId slot = plan.gradients[static_cast<size_t>(i)].slot;
    bytes.push_back(tensor_bytes(plan.slots[static_cast<size_t>(slot)].type));
  }
  return bytes;
}

// The gradients in the order of `order`, in at most so many groups of about equal bytes.
std::vector<std::vector<int>> grouped(const Plan& plan, const std::vector<int>& order, int groups) {
  auto result = cut_into_groups(gradient_bytes(plan, order), groups);
  for (auto& group : result) {
    for (int& i : group) i = order[static_cast<size_t>(i)];
  }
  return result;
}

// After how many calls of the segment each gradient has got its last write.
std::vector<int> ready_after(const Plan& plan, const Segment& segment) {
  std::map<int, std::vector<size_t>> by_buffer;
  std::map<SlotId, std::vector<size_t>> by_slot;
  for (size_t i = 0; i < plan.gradients.size(); ++i) {
    const SlotId id = plan.gradients[i].slot;
    const Slot& slot = plan.slots[static_cast<size_t>(id)];
    by_slot[id].push_back(i);
    if (slot.where == Slot::Where::kArena) by_buffer[slot.index].push_back(i);
  }
  std::vector<int> ready(plan.gradients.size(), 0);
  for (size_t at = 0; at < segment.calls.size(); ++at) {
    for_each_result(segment.calls[at], [&](SlotId id) {
      const Slot& slot = plan.slots[static_cast<size_t>(id)];
      const auto& written = slot.where == Slot::Where::kArena ? by_buffer[slot.index] : by_slot[id];
      for (size_t i : written) ready[i] = static_cast<int>(at) + 1;
    });
  }
  return ready;
}

// The last micro batch runs in pieces: after each one group of gradients is ready and sets out
// while the next piece computes. Where a guard may send the step back to its start nothing sets out
// before its end.
void add_last_run(Plan& plan, Instruction run, const LowerOptions& options, Program& program) {
  const std::vector<int> ready = ready_after(plan, plan.segments[static_cast<size_t>(run.segment)]);
  std::vector<int> order(plan.gradients.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return ready[static_cast<size_t>(a)] < ready[static_cast<size_t>(b)];
  });
  std::vector<Instruction> waiting;
  for (auto& group : grouped(plan, order, options.most_reductions)) {
    const int end = ready[static_cast<size_t>(group.back())];
    if (plan.reduces_early && end > run.first_call) {
      run.end_call = end;
      program.instructions.push_back(run);
      run.first_call = end;
    }
    Instruction reduce;
    reduce.kind = Instruction::Kind::kReduce;
    reduce.gradients = std::move(group);
    reduce.group = static_cast<int>(waiting.size());
    waiting.push_back(reduce);
    if (plan.reduces_early) program.instructions.push_back(std::move(reduce));
  }
  const auto calls = static_cast<int>(plan.segments[static_cast<size_t>(run.segment)].calls.size());
  run.end_call = Instruction::kToTheEnd;
  if (run.first_call < calls || run.first_call == 0) program.instructions.push_back(run);
  if (!plan.reduces_early) {
    program.instructions.insert(program.instructions.end(), waiting.begin(), waiting.end());
  }
}

void add_program(Plan& plan, const LowerOptions& options) {
  Program program;
  for (int i = 0; i < options.micro_batches; ++i) {
    Instruction load;
    load.kind = Instruction::Kind::kLoad;
    load.micro_batch = i;
    program.instructions.push_back(load);
    Instruction run;
    run.micro_batch = i;
    run.segment = i == 0 ? 0 : 1;
    if (i + 1 == options.micro_batches && options.replicas * options.slices > 1) {
      add_last_run(plan, run, options, program);
    } else {
      program.instructions.push_back(run);
    }
  }
  std::vector<int> order(plan.gradients.size());
  std::iota(order.begin(), order.end(), 0);
  for (auto& group : grouped(plan, order, options.apply_groups)) {
    Instruction update;
    update.kind = Instruction::Kind::kUpdate;
    update.gradients = std::move(group);
    program.instructions.push_back(std::move(update));
  }
  plan.programs.push_back(std::move(program));
}

}  // namespace

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

Plan lower(const Graph& graph, const LowerOptions& options) {
  Plan plan;
  plan.micro_batches = options.micro_batches;
  plan.replicas = options.replicas;
  plan.slices = options.slices;
  add_leaves(graph, plan);
  const bool accumulates = options.micro_batches > 1;
  if (accumulates) add_kept_gradients(graph, plan);
  const int64_t fixed = plan.arena_bytes;

  SegmentBuilder first(graph, plan, options.backend,
                       accumulates ? Accumulation::kFirst : Accumulation::kNone);
  first.build("step");
  int64_t largest = first.place_new_buffers(fixed);
  if (accumulates) {
    SegmentBuilder next(graph, plan, options.backend, Accumulation::kNext);
    next.build("step and accumulate");
    largest = std::max(largest, next.place_new_buffers(fixed));
  } else {
    for (const auto& gradient : graph.gradients) {
      plan.gradients.push_back({gradient.parameter, first.slot_of(gradient.value)});
    }
  }
  plan.arena_bytes = fixed + largest;
  // A guard may send the step back to its start.
  plan.reduces_early = options.reduces_early && !plan.has_guards;
  add_program(plan, options);
  verify_plan(plan);
  return plan;
}

}  // namespace epl

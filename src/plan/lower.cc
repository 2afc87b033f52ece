#include "plan/lower.h"

#include <algorithm>
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
    program.instructions.push_back(run);
  }
  std::vector<int64_t> bytes;
  for (const auto& gradient : plan.gradients) {
    bytes.push_back(tensor_bytes(plan.slots[static_cast<size_t>(gradient.slot)].type));
  }
  for (auto& group : cut_into_groups(bytes, options.apply_groups)) {
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
  add_program(plan, options);
  verify_plan(plan);
  return plan;
}

}  // namespace epl

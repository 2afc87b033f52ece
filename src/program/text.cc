#include "program/text.h"

#include <algorithm>
#include <iomanip>
#include <set>
#include <sstream>

#include "base/text.h"
#include "layout/constant_text.h"

namespace epl {
namespace {

std::string slot_name(SlotId id) { return id == kNoSlot ? "_" : concat("s", id); }

std::string print_operand(const Operand& operand) {
  if (operand.kind == Operand::Kind::kConstant) return print_constant(operand.constant);
  std::vector<std::string> names;
  for (SlotId id : operand.slots) names.push_back(slot_name(id));
  const std::string list = join(names, ", ");
  return operand.kind == Operand::Kind::kList ? "[" + list + "]" : list;
}

std::string print_slot(const Plan& plan, SlotId id) {
  if (id == kNoSlot) return "_";
  const Slot& slot = plan.slots[static_cast<size_t>(id)];
  std::string text = slot_name(id) + " " + print_type(slot.type);
  if (slot.where == Slot::Where::kArena) {
    text += concat(" @", plan.buffers[static_cast<size_t>(slot.index)].offset);
  }
  return text;
}

std::string print_call(const Plan& plan, const Call& call) {
  std::vector<std::string> results;
  for (SlotId id : call.results) results.push_back(print_slot(plan, id));
  std::vector<std::string> operands;
  for (const auto& operand : call.operands) operands.push_back(print_operand(operand));
  std::string text = results.empty() ? "" : join(results, ", ") + " = ";
  text += c10::toString(call.op.operator_name()) + "(" + join(operands, ", ") + ")  ";
  text += call.backward ? "backward" : "forward";
  if (call.taskgraph >= 0) text += concat(" ", call.taskgraph);
  if (call.expects) text += "  expects " + print_constant(*call.expects);
  for (SlotId id : call.frees) text += "  free " + slot_name(id);
  return text;
}

std::string print_leaf(const Plan& plan, const PlanLeaf& leaf) {
  std::string text = print_slot(plan, leaf.slot) + " = ";
  switch (leaf.kind) {
    case PlanLeaf::Kind::kInput:
      return text + concat("input ", leaf.index);
    case PlanLeaf::Kind::kSeed:
      return text + "seed";
    case PlanLeaf::Kind::kTensor:
      break;
  }
  return text + quoted(leaf.name);
}

// Slots that no call makes and that are no leaves: other views of a buffer or of a leaf.
std::set<SlotId> views_of(const Plan& plan) {
  std::set<SlotId> known;
  for (const auto& leaf : plan.leaves) known.insert(leaf.slot);
  for (const auto& segment : plan.segments) {
    for (const auto& call : segment.calls) known.insert(call.results.begin(), call.results.end());
  }
  std::set<SlotId> views;
  const auto look = [&](SlotId id) {
    if (known.count(id) == 0) views.insert(id);
  };
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    for (const auto& call : plan.segments[i].calls) for_each_operand(call, look);
    look(plan.outputs[i].loss);
    for (const auto& metric : plan.outputs[i].metrics) look(metric.slot);
  }
  for (const auto& gradient : plan.gradients) look(gradient.slot);
  return views;
}

std::string print_view(const Plan& plan, SlotId id) {
  const Slot& slot = plan.slots[static_cast<size_t>(id)];
  std::string text = print_slot(plan, id);
  if (slot.where == Slot::Where::kLeaf) {
    text += " of " + quoted(plan.leaves[static_cast<size_t>(slot.index)].name);
  }
  return text;
}

std::string print_gradients(const Plan& plan, const std::vector<int>& gradients) {
  int64_t bytes = 0;
  for (int i : gradients) {
    const SlotId id = plan.gradients[static_cast<size_t>(i)].slot;
    const TensorType& type = plan.slots[static_cast<size_t>(id)].type;
    bytes += type.numel() * type.item_bytes();
  }
  return human_bytes(bytes);
}

std::string print_calls(const Plan& plan, const Instruction& run) {
  if (run.first_call == 0 && run.end_call == Instruction::kToTheEnd) return "";
  const auto calls = static_cast<int>(plan.segments[static_cast<size_t>(run.segment)].calls.size());
  return concat("  calls ", run.first_call, " to ", std::min(run.end_call, calls) - 1);
}

std::string print_instruction(const Plan& plan, const Instruction& instruction) {
  const std::string bytes = print_gradients(plan, instruction.gradients);
  switch (instruction.kind) {
    case Instruction::Kind::kLoad:
      return concat("load    micro batch ", instruction.micro_batch);
    case Instruction::Kind::kRun:
      return concat("run     ", plan.segments[static_cast<size_t>(instruction.segment)].name,
                    "  micro batch ", instruction.micro_batch, print_calls(plan, instruction));
    case Instruction::Kind::kReduce:
      return concat("reduce  group ", instruction.group, ": ", instruction.gradients.size(),
                    " gradients  ", bytes);
    case Instruction::Kind::kUpdate:
      break;
  }
  return concat("update  ", instruction.gradients.size(), " parameters  ", bytes);
}

// Nothing where there is one device.
std::string print_devices(const Plan& plan) {
  if (plan.replicas * plan.slices == 1) return "";
  std::string text = concat(", ", plan.replicas, plan.replicas == 1 ? " replica" : " replicas");
  if (plan.slices > 1) text += concat(" of ", plan.slices, " devices");
  return text;
}

}  // namespace

std::string print_plan(const Plan& plan) {
  std::ostringstream out;
  out << "plan: " << plan.programs.size() << " program, " << plan.micro_batches << " micro batches"
      << print_devices(plan) << ", arena " << human_bytes(plan.arena_bytes) << "\n";
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    out << "program " << i << "\n";
    const auto& instructions = plan.programs[i].instructions;
    for (size_t j = 0; j < instructions.size(); ++j) {
      out << std::setw(4) << j << "  " << print_instruction(plan, instructions[j]) << "\n";
    }
  }
  out << "leaves\n";
  for (const auto& leaf : plan.leaves) {
    if (leaf.slot != kNoSlot) out << "    " << print_leaf(plan, leaf) << "\n";
  }
  const std::set<SlotId> views = views_of(plan);
  if (!views.empty()) out << "views\n";
  for (SlotId id : views) out << "    " << print_view(plan, id) << "\n";
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    out << "segment " << plan.segments[i].name << "\n";
    for (const auto& call : plan.segments[i].calls) out << "    " << print_call(plan, call) << "\n";
    out << "    return loss " << slot_name(plan.outputs[i].loss);
    for (const auto& metric : plan.outputs[i].metrics) {
      out << ", " << metric.collection << " " << quoted(metric.name) << " "
          << slot_name(metric.slot);
    }
    out << "\n";
  }
  out << "gradients\n";
  for (const auto& gradient : plan.gradients) {
    out << "    " << slot_name(gradient.slot) << " of "
        << quoted(plan.leaves[static_cast<size_t>(gradient.leaf)].name) << "\n";
  }
  return out.str();
}

}  // namespace epl

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

std::string print_slot(const Program& program, SlotId id) {
  if (id == kNoSlot) return "_";
  const Slot& slot = program.slots[static_cast<size_t>(id)];
  std::string text = slot_name(id) + " " + print_type(slot.type);
  if (slot.where == Slot::Where::kArena) {
    text += concat(" @", program.buffers[static_cast<size_t>(slot.index)].offset);
  }
  return text;
}

std::string print_call(const Program& program, const Call& call) {
  std::vector<std::string> results;
  for (SlotId id : call.results) results.push_back(print_slot(program, id));
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

// "[4:8 of 8 in dim 0]"
std::string print_piece(const PlanLeaf& leaf) {
  if (leaf.cut_dim < 0) return "";
  return concat(" [", leaf.piece.begin, ":", leaf.piece.begin + leaf.piece.length, " of ",
                leaf.whole, " in dim ", leaf.cut_dim, "]");
}

std::string print_leaf(const Program& program, const PlanLeaf& leaf) {
  std::string text = print_slot(program, leaf.slot) + " = ";
  switch (leaf.kind) {
    case PlanLeaf::Kind::kInput:
      return text + concat("input ", leaf.index, print_piece(leaf));
    case PlanLeaf::Kind::kSeed:
      return text + "seed";
    case PlanLeaf::Kind::kTensor:
      break;
  }
  return text + quoted(leaf.name) + print_piece(leaf);
}

// Slots that no call makes and that are no leaves: other views of a buffer or of a leaf.
std::set<SlotId> views_of(const Program& program) {
  std::set<SlotId> known;
  for (const auto& leaf : program.leaves) known.insert(leaf.slot);
  for (const auto& segment : program.segments) {
    for (const auto& call : segment.calls) known.insert(call.results.begin(), call.results.end());
  }
  std::set<SlotId> views;
  const auto look = [&](SlotId id) {
    if (id != kNoSlot && known.count(id) == 0) views.insert(id);
  };
  for (size_t i = 0; i < program.segments.size(); ++i) {
    for (const auto& call : program.segments[i].calls) for_each_operand(call, look);
    look(program.outputs[i].loss);
    for (const auto& metric : program.outputs[i].metrics) look(metric.slot);
  }
  for (const auto& gradient : program.gradients) look(gradient.slot);
  return views;
}

std::string print_view(const Program& program, SlotId id) {
  const Slot& slot = program.slots[static_cast<size_t>(id)];
  std::string text = print_slot(program, id);
  if (slot.where == Slot::Where::kLeaf) {
    text += " of " + quoted(program.leaves[static_cast<size_t>(slot.index)].name);
  }
  return text;
}

std::string print_gradients(const Program& program, const std::vector<int>& gradients) {
  int64_t bytes = 0;
  for (int i : gradients) {
    const SlotId id = program.gradients[static_cast<size_t>(i)].slot;
    const TensorType& type = program.slots[static_cast<size_t>(id)].type;
    bytes += type.numel() * type.item_bytes();
  }
  return human_bytes(bytes);
}

std::string print_calls(const Program& program, const Instruction& run) {
  if (run.first_call == 0 && run.end_call == Instruction::kToTheEnd) return "";
  const auto calls =
      static_cast<int>(program.segments[static_cast<size_t>(run.segment)].calls.size());
  return concat("  calls ", run.first_call, " to ", std::min(run.end_call, calls) - 1);
}

std::string print_slots(const Instruction& instruction) {
  std::vector<std::string> names;
  for (SlotId id : instruction.slots) names.push_back(slot_name(id));
  return ": " + join(names, ", ");
}

// "2 states  12.0 KiB"
std::string print_leaves(const Program& program, const Instruction& instruction,
                         const std::string& what) {
  int64_t bytes = 0;
  for (int leaf : instruction.leaves) {
    const SlotId slot = program.leaves[static_cast<size_t>(leaf)].slot;
    if (slot == kNoSlot) continue;
    const TensorType& type = program.slots[static_cast<size_t>(slot)].type;
    bytes += type.numel() * type.item_bytes();
  }
  return concat(instruction.leaves.size(), " ", what, "  ", human_bytes(bytes));
}

std::string print_end(const Program& program, const Instruction& instruction) {
  const std::string bytes = print_gradients(program, instruction.gradients);
  const size_t gradients = instruction.gradients.size();
  switch (instruction.kind) {
    case Instruction::Kind::kReport:
      return "report  loss and metrics";
    case Instruction::Kind::kMerge:
      return "merge   " + print_leaves(program, instruction, "states");
    case Instruction::Kind::kAwait:
      return "await   reductions";
    case Instruction::Kind::kClip:
      return concat("clip    ",
                    instruction.over == Instruction::Over::kReplica ? "each replica: " : "all: ",
                    gradients, " gradients  ", bytes);
    case Instruction::Kind::kCheck:
      return "check   loss";
    case Instruction::Kind::kGather:
      return "gather  " + print_leaves(program, instruction, "parameters");
    default:
      break;
  }
  return concat("update  ", gradients, " parameters  ", bytes);
}

std::string print_instruction(const Program& program, const Instruction& instruction) {
  const std::string bytes = print_gradients(program, instruction.gradients);
  switch (instruction.kind) {
    case Instruction::Kind::kLoad:
      return concat("load    micro batch ", instruction.micro_batch);
    case Instruction::Kind::kReceive:
      return concat("receive transfer ", instruction.transfer, "  micro batch ",
                    instruction.micro_batch, print_slots(instruction));
    case Instruction::Kind::kSend:
      return concat("send    transfer ", instruction.transfer, "  micro batch ",
                    instruction.micro_batch, print_slots(instruction));
    case Instruction::Kind::kRun:
      return concat("run     ", program.segments[static_cast<size_t>(instruction.segment)].name,
                    "  micro batch ", instruction.micro_batch, print_calls(program, instruction));
    case Instruction::Kind::kReduce:
      return concat("reduce  ",
                    instruction.over == Instruction::Over::kPrograms
                        ? "over programs"
                        : concat("group ", instruction.group),
                    ": ", instruction.gradients.size(), " gradients  ", bytes);
    default:
      return print_end(program, instruction);
  }
}

// Nothing where there is one device.
std::string print_devices(const Plan& plan) {
  const int devices = plan.devices_of_replica();
  if (plan.replicas * devices == 1) return "";
  std::string text = concat(", ", plan.replicas, plan.replicas == 1 ? " replica" : " replicas");
  if (devices > 1) text += concat(" of ", devices, " devices");
  return text;
}

int64_t largest_arena(const Plan& plan) {
  int64_t largest = 0;
  for (const auto& program : plan.programs) largest = std::max(largest, program.arena_bytes);
  return largest;
}

// Who hands what to whom, and how many bytes of one micro batch.
std::string print_transfer(const Plan& plan, const Transfer& transfer) {
  const Program& sender = plan.programs[static_cast<size_t>(transfer.from)];
  const auto number = static_cast<int>(&transfer - plan.transfers.data());
  int64_t bytes = 0;
  for (const auto& instruction : sender.instructions) {
    const bool first = instruction.kind == Instruction::Kind::kSend &&
                       instruction.transfer == number && instruction.micro_batch == 0;
    if (!first) continue;
    for (SlotId id : instruction.slots) {
      const TensorType& type = sender.slots[static_cast<size_t>(id)].type;
      bytes += type.numel() * type.item_bytes();
    }
  }
  return concat(transfer.name, ", program ", transfer.from, " to ", transfer.to, ": ",
                transfer.items.size(), transfer.items.size() == 1 ? " value, " : " values, ",
                human_bytes(bytes * sender.devices), " a micro batch");
}

std::string print_role(const Plan& plan, size_t program) {
  if (plan.programs.size() == 1) return "";
  const Program& role = plan.programs[program];
  return concat("  ", role.devices, role.devices == 1 ? " device" : " devices", ", arena ",
                human_bytes(role.arena_bytes));
}

std::string print_merge(const PlanOutput& output) {
  const bool plain = output.devices == 1 && !output.all_alike && output.merge == SliceMerge::kMean;
  if (plain) return "";
  const std::string who = concat(", ", output.devices, " devices");
  if (output.all_alike) return who + " alike";
  switch (output.merge) {
    case SliceMerge::kMean:
      return who + ", mean";
    case SliceMerge::kSum:
      return who + ", sum";
    case SliceMerge::kConcat:
      break;
  }
  return who + concat(", rows in dim ", output.batch_dim);
}

// Numbers that read back as they were.
std::string print_number(double number) {
  std::ostringstream out;
  out << std::setprecision(17) << number;
  return out.str();
}

// Nothing of a loss that is that of one micro batch on one device.
void print_outputs(const Plan& plan, std::ostream& out) {
  const PlanOutput& loss = plan.loss;
  const bool plain = loss.program == 0 && loss.devices == 1 && plan.seed == 1 &&
                     plan.loss_parts == 1 && loss.merge == SliceMerge::kMean;
  if (!plain) {
    out << "loss      program " << loss.program << print_merge(loss) << ", over "
        << print_number(plan.loss_parts) << ", seed " << print_number(plan.seed) << "\n";
  }
  for (const auto& metric : plan.metrics) {
    out << "metric    " << metric.collection << " " << quoted(metric.name) << " program "
        << metric.program << print_merge(metric) << "\n";
  }
}

void print_program(const Program& program, std::ostream& out) {
  for (size_t j = 0; j < program.instructions.size(); ++j) {
    out << std::setw(4) << j << "  " << print_instruction(program, program.instructions[j]) << "\n";
  }
  out << "leaves\n";
  for (const auto& leaf : program.leaves) {
    if (leaf.slot != kNoSlot) out << "    " << print_leaf(program, leaf) << "\n";
  }
  const std::set<SlotId> views = views_of(program);
  if (!views.empty()) out << "views\n";
  for (SlotId id : views) out << "    " << print_view(program, id) << "\n";
  for (size_t i = 0; i < program.segments.size(); ++i) {
    out << "segment " << program.segments[i].name << "\n";
    for (const auto& call : program.segments[i].calls) {
      out << "    " << print_call(program, call) << "\n";
    }
    const SegmentOutputs& outputs = program.outputs[i];
    out << "    return loss " << slot_name(outputs.loss);
    for (const auto& metric : outputs.metrics) {
      out << ", " << metric.collection << " " << quoted(metric.name) << " "
          << slot_name(metric.slot);
    }
    out << "\n";
  }
  out << "gradients\n";
  for (const auto& gradient : program.gradients) {
    out << "    " << slot_name(gradient.slot) << " of "
        << quoted(program.leaves[static_cast<size_t>(gradient.leaf)].name) << "\n";
  }
}

}  // namespace

std::string print_plan(const Plan& plan) {
  std::ostringstream out;
  out << "plan: " << plan.programs.size()
      << (plan.programs.size() == 1 ? " program, " : " programs, ") << plan.micro_batches
      << " micro batches" << print_devices(plan) << ", arena " << human_bytes(largest_arena(plan))
      << "\n";
  for (const auto& remark : plan.remarks) out << "note      " << remark << "\n";
  print_outputs(plan, out);
  if (!plan.schedule.stages.empty()) out << print_schedule(plan.schedule);
  for (size_t i = 0; i < plan.transfers.size(); ++i) {
    out << "transfer " << i << "  " << print_transfer(plan, plan.transfers[i]) << "\n";
  }
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    out << "program " << i << print_role(plan, i) << "\n";
    print_program(plan.programs[i], out);
  }
  return out.str();
}

}  // namespace epl

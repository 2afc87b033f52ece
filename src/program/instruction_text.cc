#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "base/text.h"
#include "layout/constant_text.h"
#include "program/bytes_moved.h"
#include "program/program_text.h"
#include "program/step_end.h"
#include "program/text_rules.h"

namespace epl {
namespace {

using InstructionKind = Instruction::Kind;

bool moves(const Instruction& instruction) {
  return instruction.kind == InstructionKind::kSend ||
         instruction.kind == InstructionKind::kReceive;
}

// The number of a group of gradients, and where they lie.
bool is_of_group(const Instruction& instruction) {
  const bool reduces = instruction.kind == InstructionKind::kReduce &&
                       instruction.over == Instruction::Over::kReplicas;
  return reduces || instruction.kind == InstructionKind::kUpdateEarly ||
         instruction.kind == InstructionKind::kAwaitGroup;
}

bool names_gradients(const Instruction& instruction) {
  return is_of_group(instruction) || instruction.kind == InstructionKind::kReduce ||
         instruction.kind == InstructionKind::kClip ||
         instruction.kind == InstructionKind::kFinite ||
         instruction.kind == InstructionKind::kUpdate;
}

bool names_leaves(const Instruction& instruction) {
  return instruction.kind == InstructionKind::kMerge ||
         instruction.kind == InstructionKind::kGather || is_of_offload(instruction.kind);
}

// Of a reduction and of clipping.
std::string print_over(const Instruction& instruction) {
  switch (instruction.over) {
    case Instruction::Over::kReplicas:
      return "over replicas";
    case Instruction::Over::kRoles:
      return "over roles";
    case Instruction::Over::kReplica:
      return "each replica";
    case Instruction::Over::kAll:
      break;
  }
  return "all";
}

// "  calls 2 to 5": the last one is meant. "of 6" where the end is said though it is the segment's.
std::string print_calls(const Program& program, const Instruction& run) {
  if (run.first_call == 0 && run.end_call == Instruction::kToTheEnd) return "";
  const auto segment = static_cast<size_t>(run.segment);
  const bool exists = run.segment >= 0 && segment < program.segments.size();
  const int calls = exists ? static_cast<int>(program.segments[segment].calls.size()) : 0;
  const int end = run.end_call == Instruction::kToTheEnd ? calls : run.end_call;
  return concat("  calls ", run.first_call, " to ", end - 1,
                run.end_call == calls ? concat(" of ", calls) : "");
}

// "2, 4 to 7": runs of three and more are written by their ends.
std::string print_numbers(const std::string& what, const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (last < i + 2) last = i;
    parts.push_back(last == i ? concat(numbers[i]) : concat(numbers[i], " to ", numbers[last]));
    i = last + 1;
  }
  return "  " + what + " " + join(parts, ", ");
}

// A load has a slot for each leaf, most of which it does not load: those at the end are left out.
std::string print_slots(const Program& program, const Instruction& instruction) {
  const bool loads = instruction.kind == InstructionKind::kLoad;
  if (instruction.slots.empty() && !moves(instruction)) return "";
  std::vector<std::string> names;
  for (SlotId id : instruction.slots) names.push_back(print_slot_name(id));
  const bool one_a_leaf = loads && names.size() == program.leaves.size();
  while (one_a_leaf && names.size() > 1 && names.back() == "_") names.pop_back();
  const std::string count =
      loads && !one_a_leaf ? concat("  of ", instruction.slots.size()) : std::string();
  return (loads || moves(instruction) ? ": " : "  slots ") + join(names, ", ") + count;
}

// What the kind does not speak of, where it is there nevertheless.
std::string print_rest(const Program& program, const Instruction& instruction) {
  std::string text;
  const bool runs = instruction.kind == InstructionKind::kRun;
  if (ends_step(instruction.kind) || instruction.kind == InstructionKind::kReduce ||
      is_of_group(instruction) || is_of_offload(instruction.kind)) {
    if (instruction.micro_batch != 0) text += concat("  micro batch ", instruction.micro_batch);
  }
  if (!runs && instruction.segment != 0) text += concat("  segment ", instruction.segment);
  if (!runs) text += print_calls(program, instruction);
  if (!is_of_group(instruction) && instruction.group != 0)
    text += concat("  group ", instruction.group);
  const bool speaks_of_over = instruction.kind == InstructionKind::kReduce ||
                              instruction.kind == InstructionKind::kClip ||
                              instruction.kind == InstructionKind::kGather;
  if (!speaks_of_over && instruction.over != Instruction::Over::kReplicas) {
    text += "  " + print_over(instruction);
  }
  if (!names_leaves(instruction) && !instruction.leaves.empty()) {
    text += print_numbers("leaves", instruction.leaves);
  }
  if (!is_of_offload(instruction.kind) && instruction.states) text += "  states";
  if (!moves(instruction) && instruction.transfer != 0) {
    text += concat("  transfer ", instruction.transfer);
  }
  if (!names_gradients(instruction) && !instruction.gradients.empty()) {
    text += print_numbers("gradients", instruction.gradients);
  }
  return text;
}

std::string print_run(const Program& program, const Instruction& run) {
  const std::string& name = program.segments[static_cast<size_t>(run.segment)].name;
  std::string text = concat("run     ", print_words(name), "  micro batch ", run.micro_batch);
  if (segment_named(program, name) != run.segment) text += concat("  segment ", run.segment);
  return text + print_calls(program, run);
}

// Whole nanoseconds as they are stamped; all digits of anything else.
std::string print_seconds(double seconds) {
  const auto nanoseconds = static_cast<int64_t>(std::llround(seconds * 1e9));
  if (static_cast<double>(nanoseconds) / 1e9 != seconds) return print_constant(seconds) + " s";
  std::ostringstream text;
  text << nanoseconds / 1000 << "." << std::setw(3) << std::setfill('0') << nanoseconds % 1000
       << " us";
  return text.str();
}

}  // namespace

std::string print_cost(const Program& program, const Instruction& instruction) {
  const InstructionCost& cost = instruction.cost;
  std::vector<std::string> parts;
  const bool said = cost.seconds != 0 && prints_bytes(instruction.kind) &&
                    cost.bytes == bytes_moved(program, instruction);
  const bool expected = cost.seconds != 0 && prints_bytes(instruction.kind);
  if (!said && (expected || cost.bytes != 0)) parts.push_back(concat(cost.bytes, " B"));
  if (cost.seconds != 0) parts.push_back(print_seconds(cost.seconds));
  return parts.empty() ? "" : "  [" + join(parts, ", ") + "]";
}

std::string print_instruction(const Program& program, size_t index) {
  const Instruction& instruction = program.instructions[index];
  const auto& gradients = instruction.gradients;
  const auto which = [&] {
    const bool usual = gradients == usual_gradients(program.instructions, index, instruction.kind,
                                                    gradients.size());
    return usual ? "" : print_numbers("gradients", gradients);
  };
  const auto bytes = [&] { return human_bytes(bytes_moved(program, instruction)); };
  const auto leaves = [&](const std::string& what) {
    const auto& all = instruction.leaves;
    const bool usual = all == usual_leaves(program, instruction.kind, all.size());
    return concat(all.size(), " ", what, "  ", bytes(), usual ? "" : print_numbers("leaves", all));
  };
  const auto offloaded = [&] {
    return (instruction.states ? "states of " : "") + leaves("parameters");
  };
  const std::string rest = print_rest(program, instruction) + print_slots(program, instruction);
  switch (instruction.kind) {
    case InstructionKind::kLoad:
      return concat("load    micro batch ", instruction.micro_batch, rest);
    case InstructionKind::kReceive:
    case InstructionKind::kSend:
      return concat(instruction.kind == InstructionKind::kSend ? "send    " : "receive ",
                    "transfer ", instruction.transfer, "  micro batch ", instruction.micro_batch,
                    rest);
    case InstructionKind::kRun:
      return print_run(program, instruction) + rest;
    case InstructionKind::kReduce:
      return concat("reduce  ",
                    instruction.over == Instruction::Over::kReplicas
                        ? concat("group ", instruction.group)
                        : print_over(instruction),
                    ": ", gradients.size(), " gradients  ", bytes(), which(), rest);
    case InstructionKind::kUpdateEarly:
      return concat("update  early group ", instruction.group, ": ", gradients.size(),
                    " parameters  ", bytes(), which(), rest);
    case InstructionKind::kAwaitGroup:
      return concat("await   group ", instruction.group, ": ", gradients.size(), " gradients",
                    which(), rest);
    case InstructionKind::kFetch:
      return "fetch   " + offloaded() + rest;
    case InstructionKind::kWait:
      return "wait    " + offloaded() + rest;
    case InstructionKind::kStore:
      return "store   " + offloaded() + rest;
    case InstructionKind::kReport:
      return "report  loss and metrics" + rest;
    case InstructionKind::kMerge:
      return "merge   " + leaves("states") + rest;
    case InstructionKind::kAwait:
      return "await   reductions" + rest;
    case InstructionKind::kClip:
      return concat("clip    ", print_over(instruction), ": ", gradients.size(), " gradients  ",
                    bytes(), which(), rest);
    case InstructionKind::kFinite:
      return concat("finite  ", gradients.size(), " gradients  ", bytes(), which(), rest);
    case InstructionKind::kCheck:
      return "check   loss" + rest;
    case InstructionKind::kGather:
      return concat("gather  ", print_over(instruction), ": ", leaves("parameters"), rest);
    case InstructionKind::kUpdate:
      break;
  }
  return concat("update  ", gradients.size(), " parameters  ", bytes(), which(), rest);
}

}  // namespace epl

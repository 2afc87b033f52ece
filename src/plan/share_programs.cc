#include "plan/share_programs.h"

#include <sstream>

#include "program/program_text.h"
#include "program/text_rules.h"

namespace epl {
namespace {

std::string text_of(const Program& program) {
  std::ostringstream out;
  print_program(program, /*usual_stage=*/-1, CostText::kPrinted, out);
  return out.str();
}

template <typename Visit>
void for_each_operand_pair(Program& first, const Program& second, const Visit& visit) {
  for (size_t i = 0; i < first.segments.size(); ++i) {
    for (size_t j = 0; j < first.segments[i].calls.size(); ++j) {
      auto& operands = first.segments[i].calls[j].operands;
      const auto& others = second.segments[i].calls[j].operands;
      for (size_t k = 0; k < operands.size(); ++k) visit(operands[k], others[k]);
    }
  }
}

// Whether one can look at both side by side.
bool same_counts(const Program& first, const Program& second) {
  if (first.stage != second.stage || first.devices != second.devices) return false;
  if (first.slots.size() != second.slots.size()) return false;
  if (first.segments.size() != second.segments.size()) return false;
  for (size_t i = 0; i < first.segments.size(); ++i) {
    const auto& calls = first.segments[i].calls;
    const auto& others = second.segments[i].calls;
    if (calls.size() != others.size()) return false;
    for (size_t j = 0; j < calls.size(); ++j) {
      if (calls[j].operands.size() != others[j].operands.size()) return false;
    }
  }
  return true;
}

// What is another number in the program of the next role grows by the difference. Slots that
// nothing names are in no text, and stay as they are.
void find_growth(const Program& next, Program& first) {
  const std::vector<SlotMaker> makers = slot_makers(first);
  for (size_t i = 0; i < first.slots.size(); ++i) {
    if (makers[i].kind == SlotMaker::Kind::kNobody) continue;
    first.slots[i].by_role = next.slots[i].type.offset - first.slots[i].type.offset;
  }
  for_each_operand_pair(first, next, [](Operand& own, const Operand& other) {
    if (!own.constant.isInt() || !other.constant.isInt()) return;
    own.by_role = other.constant.toInt() - own.constant.toInt();
  });
}

// The program that a role has alone.
Program moved(const PlanRole& role) {
  Program own = role.program;
  own.roles = 1;
  for (size_t i = 0; i < own.slots.size(); ++i) {
    own.slots[i].type = role.type(static_cast<SlotId>(i));
    own.slots[i].by_role = 0;
  }
  for (size_t i = 0; i < own.leaves.size(); ++i) {
    own.leaves[i].shard = role.shard(static_cast<int>(i));
  }
  for_each_operand_pair(own, role.program, [&](Operand& operand, const Operand& shared) {
    operand.constant = role.constant(shared);
    operand.by_role = 0;
  });
  for (Instruction& each : own.instructions) {
    const bool moves =
        each.kind == Instruction::Kind::kSend || each.kind == Instruction::Kind::kReceive;
    if (moves) each.transfer = role.transfer(each);
  }
  return own;
}

// Whether the next role can have the program as well, and that it has.
bool joins(const Program& next, Program& shared) {
  if (!same_counts(shared, next)) return false;
  Program candidate = shared;
  if (candidate.roles == 1) find_growth(next, candidate);
  if (text_of(moved({candidate, candidate.roles})) != text_of(next)) return false;
  ++candidate.roles;
  shared = std::move(candidate);
  return true;
}

}  // namespace

void share_programs(Plan& plan) {
  std::vector<Program> shared;
  for (Program& program : plan.programs) {
    const bool joined = !shared.empty() && joins(program, shared.back());
    if (!joined) shared.push_back(std::move(program));
  }
  plan.programs = std::move(shared);
}

}  // namespace epl

#include "program/step_end.h"

#include "base/check.h"

namespace epl {

bool ends_step(Instruction::Kind kind) {
  switch (kind) {
    case Instruction::Kind::kLoad:
    case Instruction::Kind::kReceive:
    case Instruction::Kind::kRun:
    case Instruction::Kind::kSend:
    case Instruction::Kind::kReduce:
    case Instruction::Kind::kUpdateEarly:
    case Instruction::Kind::kAwaitGroup:
    case Instruction::Kind::kFetch:
    case Instruction::Kind::kWait:
    case Instruction::Kind::kStore:
      return false;
    case Instruction::Kind::kReport:
    case Instruction::Kind::kMerge:
    case Instruction::Kind::kAwait:
    case Instruction::Kind::kClip:
    case Instruction::Kind::kCheck:
    case Instruction::Kind::kFinite:
    case Instruction::Kind::kUpdate:
    case Instruction::Kind::kGather:
      break;
  }
  return true;
}

size_t begin_of_end(const Program& program) {
  size_t index = 0;
  while (index < program.instructions.size() && !ends_step(program.instructions[index].kind)) {
    ++index;
  }
  return index;
}

namespace {

std::vector<EndPhase> phases_of(const Plan& plan, size_t role) {
  std::vector<EndPhase> phases;
  const Program& program = plan.program_of(role);
  const auto& instructions = program.instructions;
  for (size_t i = begin_of_end(program); i < instructions.size(); ++i) {
    const Instruction& each = instructions[i];
    const auto kind = is_of_offload(each.kind) ? Instruction::Kind::kUpdate : each.kind;
    const bool goes_on =
        !phases.empty() && phases.back().kind == kind && phases.back().over == each.over;
    if (!goes_on) phases.push_back({kind, each.over, {}});
    phases.back().instructions.push_back({static_cast<int>(role), &each});
  }
  return phases;
}

}  // namespace

std::vector<EndPhase> end_of_step(const Plan& plan) {
  std::vector<EndPhase> all = phases_of(plan, 0);
  for (size_t role = 1; role < plan.roles(); ++role) {
    const std::vector<EndPhase> own = phases_of(plan, role);
    EPL_ASSERT(own.size() == all.size(), concat("role ", role, " ends its step in ", own.size(),
                                                " phases, and role 0 in ", all.size()));
    for (size_t i = 0; i < own.size(); ++i) {
      EPL_ASSERT(
          own[i].kind == all[i].kind && own[i].over == all[i].over,
          concat("phase ", i, " of the end of role ", role, " is another one than that of role 0"));
      all[i].instructions.insert(all[i].instructions.end(), own[i].instructions.begin(),
                                 own[i].instructions.end());
    }
  }
  return all;
}

}  // namespace epl

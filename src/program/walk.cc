#include "program/walk.h"

#include <map>
#include <utility>
#include <vector>

#include "base/check.h"

namespace epl {
namespace {

class PlanWalk {
 public:
  PlanWalk(const Plan& plan, PlanVisitor& visitor)
      : plan_(plan), visitor_(visitor), next_(plan.roles(), 0) {
    for (size_t i = 0; i < next_.size(); ++i) {
      roles_.push_back(plan.role(i));
      ends_.push_back(begin_of_end(roles_[i].program));
    }
  }

  void run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t i = 0; i < next_.size(); ++i) moved |= advance(i);
    }
    for (size_t i = 0; i < next_.size(); ++i) {
      EPL_ASSERT(next_[i] == ends_[i],
                 concat("role ", i, " waits for ever at instruction ", next_[i]));
    }
    EPL_ASSERT(sent_.empty(), "something is sent that nobody receives");
    for (const EndPhase& phase : end_of_step(plan_)) visitor_.visit(phase);
  }

 private:
  bool advance(size_t number) {
    const PlanRole& role = roles_[number];
    size_t& next = next_[number];
    const size_t before = next;
    for (; next < ends_[number]; ++next) {
      const Instruction& instruction = role.program.instructions[next];
      const Instruction* sent = nullptr;
      if (instruction.kind == Instruction::Kind::kSend) {
        EPL_ASSERT(sent_.emplace(key_of(role, instruction), &instruction).second,
                   "something is sent twice");
      } else if (instruction.kind == Instruction::Kind::kReceive) {
        const auto found = sent_.find(key_of(role, instruction));
        if (found == sent_.end()) break;
        sent = found->second;
        sent_.erase(found);
      }
      visitor_.visit(number, instruction, sent);
    }
    return next != before;
  }

  using Key = std::pair<int, int>;  // transfer and micro batch
  static Key key_of(const PlanRole& role, const Instruction& instruction) {
    return {role.transfer(instruction), instruction.micro_batch};
  }

  const Plan& plan_;
  PlanVisitor& visitor_;
  std::vector<PlanRole> roles_;
  std::vector<size_t> next_;  // instruction, by role
  std::vector<size_t> ends_;
  std::map<Key, const Instruction*> sent_;
};

}  // namespace

void walk(const Plan& plan, PlanVisitor& visitor) { PlanWalk(plan, visitor).run(); }

}  // namespace epl

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
      : plan_(plan), visitor_(visitor), next_(plan.programs.size(), 0) {
    for (const auto& program : plan.programs) ends_.push_back(begin_of_end(program));
  }

  void run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (size_t i = 0; i < next_.size(); ++i) moved |= advance(i);
    }
    for (size_t i = 0; i < next_.size(); ++i) {
      EPL_ASSERT(next_[i] == ends_[i],
                 concat("program ", i, " waits for ever at instruction ", next_[i]));
    }
    EPL_ASSERT(sent_.empty(), "something is sent that nobody receives");
    for (const EndPhase& phase : end_of_step(plan_)) visitor_.visit(phase);
  }

 private:
  bool advance(size_t program) {
    const size_t before = next_[program];
    for (; next_[program] < ends_[program]; ++next_[program]) {
      const Instruction& instruction = plan_.programs[program].instructions[next_[program]];
      const Instruction* sent = nullptr;
      if (instruction.kind == Instruction::Kind::kSend) {
        EPL_ASSERT(sent_.emplace(key_of(instruction), &instruction).second,
                   "something is sent twice");
      } else if (instruction.kind == Instruction::Kind::kReceive) {
        const auto found = sent_.find(key_of(instruction));
        if (found == sent_.end()) break;
        sent = found->second;
        sent_.erase(found);
      }
      visitor_.visit(program, instruction, sent);
    }
    return next_[program] != before;
  }

  using Key = std::pair<int, int>;  // transfer and micro batch
  static Key key_of(const Instruction& instruction) {
    return {instruction.transfer, instruction.micro_batch};
  }

  const Plan& plan_;
  PlanVisitor& visitor_;
  std::vector<size_t> next_;  // instruction, by program
  std::vector<size_t> ends_;
  std::map<Key, const Instruction*> sent_;
};

}  // namespace

void walk(const Plan& plan, PlanVisitor& visitor) { PlanWalk(plan, visitor).run(); }

}  // namespace epl

// Walks through all roles of a Plan side by side, each as far as it gets: a receive waits for
// its send, and the end of the step for all roles. Who asks whether a plan can run, and who asks
// how long it takes, see the same order.
#pragma once

#include <cstddef>

#include "program/program.h"
#include "program/step_end.h"

namespace epl {

class PlanVisitor {
 public:
  virtual ~PlanVisitor() = default;
  // In the order of its program. `sent`: of a receive, what it waited for; else null.
  virtual void visit(size_t role, const Instruction& instruction, const Instruction* sent) = 0;
  // Once all roles have come to their end.
  virtual void visit(const EndPhase& phase) = 0;
};

// Throws InternalError where a role waits for ever, or something is sent twice or to nobody.
void walk(const Plan& plan, PlanVisitor& visitor);

}  // namespace epl

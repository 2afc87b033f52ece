#include "runtime/step_end.h"

#include "base/check.h"

namespace epl {

bool StepEnd::run(const std::vector<EndPhase>& phases) {
  refused_ = false;
  for (const EndPhase& phase : phases) run(phase);
  return !refused_;
}

void StepEnd::run(const EndPhase& phase) {
  switch (phase.kind) {
    case Instruction::Kind::kReport:
      return report();
    case Instruction::Kind::kMerge:
      return merge_state();
    case Instruction::Kind::kReduce:
      return phase.over == Instruction::Over::kPrograms ? reduce_tied() : reduce();
    case Instruction::Kind::kAwait:
      return await();
    case Instruction::Kind::kCheck:
      refused_ = !check();
      return;
    case Instruction::Kind::kClip:
      if (phase.over == Instruction::Over::kReplica) return clip_replicas();
      if (!refused_) clip_reduced();
      return;
    case Instruction::Kind::kUpdate:
      if (!refused_) update();
      return;
    case Instruction::Kind::kGather:
      return gather();
    case Instruction::Kind::kLoad:
    case Instruction::Kind::kReceive:
    case Instruction::Kind::kRun:
    case Instruction::Kind::kSend:
      break;
  }
  EPL_ASSERT(false, "an instruction that computes stands in the end of a step");
}

}  // namespace epl

#include "program/bytes_moved.h"

#include <algorithm>
#include <set>

namespace epl {
namespace {

int64_t bytes_of_leaves(const Program& program, const std::vector<int>& leaves) {
  int64_t bytes = 0;
  for (int leaf : leaves) {
    bytes += slot_bytes(program, program.leaves[static_cast<size_t>(leaf)].slot);
  }
  return bytes;
}

int64_t bytes_of_offloaded(const Program& program, const Instruction& moves) {
  if (!moves.states) return bytes_of_leaves(program, moves.leaves);
  int64_t bytes = 0;
  for (int leaf : moves.leaves) {
    const PlanLeaf& own = program.leaves[static_cast<size_t>(leaf)];
    bytes += own.states * slot_bytes(program, own.slot);
  }
  return bytes;
}

int64_t bytes_of_gradients(const Program& program, const std::vector<int>& gradients) {
  int64_t bytes = 0;
  for (int i : gradients) {
    bytes += slot_bytes(program, program.gradients[static_cast<size_t>(i)].slot);
  }
  return bytes;
}

int64_t bytes_of_slots(const Program& program, const std::vector<SlotId>& slots) {
  int64_t bytes = 0;
  for (SlotId id : slots) bytes += slot_bytes(program, id);
  return bytes;
}

int64_t bytes_of_load(const Program& program, const Instruction& load) {
  if (!load.slots.empty()) return bytes_of_slots(program, load.slots);
  int64_t bytes = 0;
  for (const auto& leaf : program.leaves) {
    if (leaf.kind == PlanLeaf::Kind::kInput) bytes += slot_bytes(program, leaf.slot);
  }
  return bytes;
}

// What is written in place counts once.
int64_t bytes_of_call(const Program& program, const Call& call) {
  if (call.mode == Call::Mode::kNothing) return 0;
  std::set<SlotId> touched;
  for_each_operand(call, [&](SlotId id) { touched.insert(id); });
  for_each_result(call, [&](SlotId id) { touched.insert(id); });
  return bytes_of_slots(program, {touched.begin(), touched.end()});
}

int64_t bytes_of_run(const Program& program, const Instruction& run) {
  const auto index = static_cast<size_t>(run.segment);
  if (run.segment < 0 || index >= program.segments.size()) return 0;
  const auto& calls = program.segments[index].calls;
  const int end = std::min(run.end_call, static_cast<int>(calls.size()));
  int64_t bytes = 0;
  for (int i = run.first_call; i < end; ++i) {
    bytes += bytes_of_call(program, calls[static_cast<size_t>(i)]);
  }
  return bytes;
}

}  // namespace

int64_t slot_bytes(const Program& program, SlotId id) {
  if (id == kNoSlot) return 0;
  const TensorType& type = program.slots[static_cast<size_t>(id)].type;
  return type.numel() * type.item_bytes();
}

int64_t bytes_moved(const Program& program, const Instruction& instruction) {
  switch (instruction.kind) {
    case Instruction::Kind::kLoad:
      return bytes_of_load(program, instruction);
    case Instruction::Kind::kReceive:
    case Instruction::Kind::kSend:
      return bytes_of_slots(program, instruction.slots);
    case Instruction::Kind::kRun:
      return bytes_of_run(program, instruction);
    case Instruction::Kind::kReduce:
    case Instruction::Kind::kClip:
    case Instruction::Kind::kFinite:
    case Instruction::Kind::kUpdate:
    case Instruction::Kind::kUpdateEarly:
      return bytes_of_gradients(program, instruction.gradients);
    case Instruction::Kind::kMerge:
    case Instruction::Kind::kGather:
      return bytes_of_leaves(program, instruction.leaves);
    case Instruction::Kind::kFetch:
    case Instruction::Kind::kWait:
    case Instruction::Kind::kStore:
      return bytes_of_offloaded(program, instruction);
    case Instruction::Kind::kReport:
    case Instruction::Kind::kAwait:
    case Instruction::Kind::kAwaitGroup:
    case Instruction::Kind::kCheck:
      break;
  }
  return 0;
}

bool prints_bytes(Instruction::Kind kind) {
  return kind == Instruction::Kind::kReduce || kind == Instruction::Kind::kClip ||
         kind == Instruction::Kind::kFinite || kind == Instruction::Kind::kUpdate ||
         kind == Instruction::Kind::kUpdateEarly || kind == Instruction::Kind::kMerge ||
         kind == Instruction::Kind::kGather || is_of_offload(kind);
}

}  // namespace epl

#include "program/near_bytes.h"

#include <algorithm>
#include <utility>

#include "program/bytes_moved.h"

namespace epl {

int64_t near_bytes(const Program& program, int leaf, bool states) {
  const PlanLeaf& own = program.leaves[static_cast<size_t>(leaf)];
  const int64_t bytes = slot_bytes(program, own.slot);
  const int64_t pages = (bytes + kHomePageBytes - 1) / kHomePageBytes;
  return pages * kHomePageBytes * (states ? own.states : 1);
}

void NearBytes::play(const Instruction& instruction) {
  const Instruction::Kind kind = instruction.kind;
  if (kind == Instruction::Kind::kRun || kind == Instruction::Kind::kUpdate) going_ = 0;
  if (!is_of_offload(kind) || kind == Instruction::Kind::kWait) return;
  int64_t bytes = 0;
  for (int leaf : instruction.leaves) bytes += near_bytes(program_, leaf, instruction.states);
  if (kind == Instruction::Kind::kStore) {
    near_ -= bytes;
    going_ += bytes;
  } else {
    near_ += bytes;
    most_ = std::max(most_, near_ + going_);
  }
}

int64_t NearBytes::take_most() { return std::exchange(most_, near_ + going_); }

int64_t most_near(const Program& program) {
  NearBytes near(program);
  for (const Instruction& each : program.instructions) near.play(each);
  return near.take_most();
}

}  // namespace epl

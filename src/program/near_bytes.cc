#include "program/near_bytes.h"

#include <algorithm>
#include <utility>

#include "program/bytes_moved.h"

namespace epl {

int64_t near_bytes(const Program& program, int leaf, bool states) {
  const PlanLeaf& own = program.leaves[static_cast<size_t>(leaf)];
  if (own.is_spread()) return own.others;
  const int64_t bytes = slot_bytes(program, own.slot);
  const int64_t pages = (bytes + kHomePageBytes - 1) / kHomePageBytes;
  return pages * kHomePageBytes * (states ? own.states : 1);
}

NearBytes::NearBytes(const Program& program)
    : NearBytes(program,
                [&program](int leaf) { return near_bytes(program, leaf, /*states=*/false); }) {}

// What is spread goes at once, when the last device has stored it.
void NearBytes::play(const Instruction& instruction) {
  const Instruction::Kind kind = instruction.kind;
  if (kind == Instruction::Kind::kRun || kind == Instruction::Kind::kUpdate) going_ = 0;
  if (!is_of_offload(kind) || kind == Instruction::Kind::kWait) return;
  int64_t bytes = 0;
  int64_t stay = 0;  // for a while, once they are stored
  for (int leaf : instruction.leaves) {
    const bool spread = program_.leaves[static_cast<size_t>(leaf)].is_spread();
    const int64_t own =
        spread ? bytes_of_others_(leaf) : near_bytes(program_, leaf, instruction.states);
    bytes += own;
    stay += spread ? 0 : own;
  }
  if (kind == Instruction::Kind::kStore) {
    near_ -= bytes;
    going_ += stay;
  } else {
    near_ += bytes;
    most_ = std::max(most_, near_ + going_);
  }
}

int64_t NearBytes::take_most() { return std::exchange(most_, near_ + going_); }

namespace {

int64_t most_of(NearBytes near, const Program& program) {
  for (const Instruction& each : program.instructions) near.play(each);
  return near.take_most();
}

}  // namespace

int64_t most_near(const Program& program) { return most_of(NearBytes(program), program); }

int64_t most_near(const Program& program, const NearBytes::BytesOfLeaf& bytes_of_others) {
  return most_of(NearBytes(program, bytes_of_others), program);
}

}  // namespace epl

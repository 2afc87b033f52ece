#include "program/near_bytes.h"

#include <algorithm>

#include "program/bytes_moved.h"

namespace epl {

int64_t near_bytes(const Program& program, int leaf, bool states) {
  const PlanLeaf& own = program.leaves[static_cast<size_t>(leaf)];
  if (own.is_spread()) return own.others;
  const int64_t bytes = slot_bytes(program, own.slot);
  const int64_t pages = (bytes + kHomePageBytes - 1) / kHomePageBytes;
  return pages * kHomePageBytes * (states ? own.states : 1);
}

int64_t most_near(const Program& program) {
  return most_near(program, [&](int leaf) { return near_bytes(program, leaf, /*states=*/false); });
}

// What is spread goes at once, when the last device has stored it.
int64_t most_near(const Program& program, const std::function<int64_t(int leaf)>& bytes_of_others) {
  const auto is_spread = [&](int leaf) {
    return program.leaves[static_cast<size_t>(leaf)].is_spread();
  };
  int64_t near = 0;
  int64_t going = 0;  // stored since the last use
  int64_t most = 0;
  for (const Instruction& each : program.instructions) {
    const bool uses =
        each.kind == Instruction::Kind::kRun || each.kind == Instruction::Kind::kUpdate;
    if (uses) going = 0;
    if (!is_of_offload(each.kind) || each.kind == Instruction::Kind::kWait) continue;
    int64_t bytes = 0;
    int64_t stay = 0;  // for a while, once they are stored
    for (int leaf : each.leaves) {
      const int64_t own =
          is_spread(leaf) ? bytes_of_others(leaf) : near_bytes(program, leaf, each.states);
      bytes += own;
      stay += is_spread(leaf) ? 0 : own;
    }
    if (each.kind == Instruction::Kind::kStore) {
      near -= bytes;
      going += stay;
    } else {
      near += bytes;
      most = std::max(most, near + going);
    }
  }
  return most;
}

}  // namespace epl

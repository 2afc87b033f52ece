#include "program/program.h"

#include "base/check.h"

namespace epl {

Shard PlanRole::shard(int leaf) const {
  Shard shard = program.leaves[static_cast<size_t>(leaf)].shard;
  if (shard.is_cut()) shard.piece.begin += index * shard.piece.length;
  return shard;
}

TensorType PlanRole::type(SlotId slot) const {
  const Slot& place = program.slots[static_cast<size_t>(slot)];
  TensorType type = place.type;
  type.offset += index * place.by_role;
  return type;
}

c10::IValue PlanRole::constant(const Operand& operand) const {
  if (operand.by_role == 0) return operand.constant;
  return operand.constant.toInt() + index * operand.by_role;
}

PlanRole Plan::role(size_t number) const {
  size_t rest = number;
  for (const Program& program : programs) {
    const auto sharing = static_cast<size_t>(program.roles);
    if (rest < sharing) return {program, static_cast<int>(rest)};
    rest -= sharing;
  }
  throw InternalError(concat("role ", number, " of ", roles()));
}

}  // namespace epl

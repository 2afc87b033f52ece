#include "runtime/leaf_homes.h"

namespace epl {

void LeafHomes::run(const Instruction& instruction, FileHomes::Access access) {
  std::vector<at::Tensor> tensors;
  for (int leaf : instruction.leaves) tensors.push_back(leaves_[static_cast<size_t>(leaf)]);
  const auto part = instruction.states ? FileHomes::Part::kStates : FileHomes::Part::kParameter;
  if (instruction.states) access = FileHomes::Access::kWrite;
  if (instruction.kind == Instruction::Kind::kFetch) return homes_.fetch(tensors, part, access);
  if (instruction.kind == Instruction::Kind::kWait) return homes_.wait(tensors, part, access);
  homes_.store(tensors, part);
}

}  // namespace epl

#include "program/owned_sums.h"

namespace epl {

bool comes_to_owners(const Program& program, const PlanGradient& gradient) {
  if (gradient.owners.are_all()) return false;
  if (gradient.owners.kind == Owners::Kind::kRank) return true;
  const auto type_of = [&](SlotId slot) -> const TensorType& {
    return program.slots[static_cast<size_t>(slot)].type;
  };
  const TensorType& own = type_of(gradient.slot);
  const PlanLeaf& leaf = program.leaves[static_cast<size_t>(gradient.leaf)];
  if (leaf.shard.is_cut()) return own.strides == contiguous_strides(own.sizes);
  const TensorType& parameter = type_of(leaf.slot);
  return own.sizes == parameter.sizes && own.strides == parameter.strides;
}

int64_t worker_sum_bytes(const Program& program, const std::vector<int>& shares, int rank) {
  constexpr int64_t kPage = 4096;
  int64_t bytes = 0;
  for (const PlanGradient& gradient : program.gradients) {
    if (gradient.stays != PlanGradient::Stays::kUntilSummed) continue;
    const TensorType& type = program.slots[static_cast<size_t>(gradient.slot)].type;
    const bool cut = shares.size() > 1 && comes_to_owners(program, gradient);
    const int64_t elements =
        cut ? owned_elements(gradient.owners, type.numel(), shares, rank).length : type.numel();
    bytes += (elements * type.item_bytes() + kPage - 1) / kPage * kPage;
  }
  return bytes;
}

}  // namespace epl

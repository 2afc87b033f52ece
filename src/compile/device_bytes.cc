#include "compile/device_bytes.h"

#include <algorithm>
#include <set>

#include "program/near_bytes.h"
#include "program/owned_sums.h"

namespace epl {
namespace {

// Leaves that some call reads or a gradient belongs to, by index.
std::set<int> leaves_in_use(const Program& program) {
  std::set<int> used;
  const auto note = [&](SlotId slot) {
    const Slot& place = program.slots[static_cast<size_t>(slot)];
    if (place.where == Slot::Where::kLeaf) used.insert(place.index);
  };
  for (const auto& segment : program.segments) {
    for (const auto& call : segment.calls) {
      for_each_operand(call, note);
      for_each_result(call, note);
    }
  }
  for (const auto& gradient : program.gradients) used.insert(gradient.leaf);
  return used;
}

// Of an optimizer's state of so many bytes, on the worker of this rank. Small ones have no pages of
// their own, of which a part could be left out.
int64_t bytes_of_owner(const Program& program, const PlanGradient& gradient, int64_t state_bytes,
                       const std::vector<int>& shares, size_t rank) {
  const TensorType& type = program.slots[static_cast<size_t>(gradient.slot)].type;
  const int64_t owned =
      owned_elements(gradient.owners, type.numel(), shares, static_cast<int>(rank)).length;
  const bool whole = owned > 0 && state_bytes < kLeastSharedBytes;
  return whole ? state_bytes : owned * type.item_bytes();
}

// What the worker of this rank keeps of a parameter that is spread.
int64_t bytes_of_range(const Program& program, int leaf, const std::vector<int>& shares,
                       size_t rank) {
  const SlotId slot = program.leaves[static_cast<size_t>(leaf)].slot;
  const TensorType& type = program.slots[static_cast<size_t>(slot)].type;
  const Piece owned =
      owned_elements({Owners::Kind::kRanges, 0}, type.numel(), shares, static_cast<int>(rank));
  return owned.length * type.item_bytes();
}

}  // namespace

int64_t bytes_of_device(const Graph& graph, const Plan& plan, size_t role,
                        const CompileOptions& options, const ZeroOptions& zero) {
  const Program& program = plan.program_of(role);
  int64_t bytes = program.arena_bytes;
  const auto bytes_of = [&](int leaf) {
    return graph.value(graph.leaves[static_cast<size_t>(leaf)].value).type.extent_bytes();
  };
  bytes += most_near(program);
  const auto leaf_of = [&](int leaf) -> const PlanLeaf& {
    return program.leaves[static_cast<size_t>(leaf)];
  };
  // Where all update all there is one worker to look at.
  const std::vector<int> shares = zero.shares.empty() ? std::vector<int>{1} : zero.shares[role];
  std::vector<int64_t> kept_bytes(shares.size(), 0);  // by rank, with the sums that it keeps
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    kept_bytes[rank] += worker_sum_bytes(program, shares, static_cast<int>(rank));
  }
  for (int leaf : leaves_in_use(program)) {
    if (leaf_of(leaf).is_spread()) {
      for (size_t rank = 0; rank < shares.size(); ++rank) {
        kept_bytes[rank] += bytes_of_range(program, leaf, shares, rank);
      }
    } else if (!leaf_of(leaf).offloaded) {
      bytes += bytes_of(leaf);
    }
  }
  for (const auto& gradient : program.gradients) {
    if (leaf_of(gradient.leaf).states > 0) continue;
    const auto states =
        options.states_of.find(graph.leaves[static_cast<size_t>(gradient.leaf)].name);
    if (states == options.states_of.end()) continue;
    const int64_t whole = bytes_of(gradient.leaf);
    for (size_t rank = 0; rank < shares.size(); ++rank) {
      const int64_t each = gradient.owners.are_all()
                               ? whole
                               : bytes_of_owner(program, gradient, whole, shares, rank);
      kept_bytes[rank] += each * states->second;
    }
  }
  return bytes + *std::max_element(kept_bytes.begin(), kept_bytes.end());
}

int64_t most_bytes_of_device(const CompiledStep& step, const CompileOptions& options,
                             const ZeroOptions& zero) {
  int64_t most = 0;
  for (size_t role = 0; role < step.placement.role_devices.size(); ++role) {
    most = std::max(most, bytes_of_device(step.graph_of(role), step.plan, role, options, zero));
  }
  return most;
}

}  // namespace epl

// The state that a bound step writes: handed out to its devices, and brought together.
#include <algorithm>

#include "base/check.h"
#include "runtime/bound_step.h"

namespace epl {

// Of the parts that each have all of a state the first one has the user's own.
bool BoundStep::owns_state(size_t stage, int index) const {
  const auto number = static_cast<int>(stage);
  const PlanLeaf& leaf = plan_.programs[stage].leaves[static_cast<size_t>(index)];
  return leaf.shard.is_cut() || placement().stages_of(placement().group(number))[0] == number;
}

at::Tensor BoundStep::piece_of_state(size_t stage, int index, const at::Tensor& whole) const {
  const PlanLeaf& leaf = plan_.programs[stage].leaves[static_cast<size_t>(index)];
  if (!leaf.shard.is_cut()) return whole;
  return whole.narrow(leaf.shard.dim, leaf.shard.piece.begin, leaf.shard.piece.length);
}

void BoundStep::hand_out_state() {
  const c10::AutoGradMode no_grad(false);
  for (size_t device = 0; device < own_state_.size(); ++device) {
    const auto stage = static_cast<size_t>(place(static_cast<int>(device)).stage);
    const auto& written = plan_.programs[stage].written_leaves;
    for (size_t i = 0; i < own_state_[device].size(); ++i) {
      at::Tensor& own = own_state_[device][i];
      if (own.defined()) own.copy_(leaf(stage, written[i]).tensor.detach());
    }
  }
  state_before_.resize(plan_.programs.size());
  for (size_t stage = 0; stage < plan_.programs.size(); ++stage) {
    const auto& written = plan_.programs[stage].written_leaves;
    state_before_[stage].resize(written.size());
    for (size_t i = 0; i < written.size(); ++i) {
      if (merge_of(stage, written[i]) != WrittenState::Merge::kWriters) continue;
      const at::Tensor users =
          piece_of_state(stage, written[i], leaf(stage, written[i]).tensor.detach());
      at::Tensor& before = state_before_[stage][i];
      if (before.defined() && before.sizes() == users.sizes()) {
        before.copy_(users);
      } else {
        before = users.clone();
      }
    }
  }
}

// One device has what the plain loop has; only to other workers it travels.
WrittenState::Merge BoundStep::merge_of(size_t stage, int index) const {
  const BoundLeaves::Leaf& written = leaf(stage, index);
  const bool mean = !written.is_parameter && written.tensor.is_floating_point();
  const bool one = plan_.replicas * plan_.programs[stage].devices == 1;
  return mean || one ? WrittenState::Merge::kMean : WrittenState::Merge::kWriters;
}

WrittenState BoundStep::written_state(size_t stage, int index) const {
  const Program& program = plan_.programs[stage];
  const auto& all = program.written_leaves;
  const auto place = std::find(all.begin(), all.end(), index);
  EPL_ASSERT(place != all.end(), concat("leaf ", index, " is merged, and nobody writes it"));
  const auto number = static_cast<size_t>(place - all.begin());
  WrittenState state;
  state.devices = plan_.replicas * program.devices;
  state.name = program.leaves[static_cast<size_t>(index)].name;
  state.merge = merge_of(stage, index);
  state.stage = static_cast<int>(stage);
  state.users = piece_of_state(stage, index, leaf(stage, index).tensor.detach());
  state.before = state_before_[stage][number];
  for (int device : devices_of_stage(stage)) {
    const at::Tensor& own = own_state_[static_cast<size_t>(device)][number];
    state.written.push_back(own.defined() ? piece_of_state(stage, index, own) : state.users);
  }
  return state;
}

// Of a state that one device writes nothing is merged, but other workers get it: then the plan
// names it.
void BoundStep::merge_state(const EndPhase& merge) {
  std::vector<WrittenState> states;
  for (const auto& [program, instruction] : merge.instructions) {
    const auto stage = static_cast<size_t>(program);
    for (int index : instruction->leaves) {
      if (owns_state(stage, index)) states.push_back(written_state(stage, index));
    }
  }
  if (!states.empty()) merge_written_state(states, connections_.workers());
}

}  // namespace epl

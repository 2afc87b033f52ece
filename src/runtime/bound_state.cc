// The state that a bound step writes: handed out to its devices, and brought together.
#include <algorithm>

#include "base/check.h"
#include "runtime/bound_step.h"

namespace epl {

// Of the parts that each have all of a state the first one has the user's own.
bool BoundStep::owns_state(size_t role, int index) const {
  const auto number = static_cast<int>(role);
  const bool cut = plan_.role(role).shard(index).is_cut();
  return cut || placement().roles_of(placement().stage_of(number))[0] == number;
}

at::Tensor BoundStep::piece_of_state(size_t role, int index, const at::Tensor& whole) const {
  const Shard shard = plan_.role(role).shard(index);
  if (!shard.is_cut()) return whole;
  return whole.narrow(shard.dim, shard.piece.begin, shard.piece.length);
}

void BoundStep::hand_out_state() {
  const c10::AutoGradMode no_grad(false);
  for (size_t device = 0; device < own_state_.size(); ++device) {
    const auto role = static_cast<size_t>(place(static_cast<int>(device)).role);
    const auto& written = plan_.program_of(role).written_leaves;
    for (size_t i = 0; i < own_state_[device].size(); ++i) {
      at::Tensor& own = own_state_[device][i];
      if (own.defined()) own.copy_(leaf(role, written[i]).tensor.detach());
    }
  }
  state_before_.resize(plan_.roles());
  for (size_t role = 0; role < plan_.roles(); ++role) {
    const auto& written = plan_.program_of(role).written_leaves;
    state_before_[role].resize(written.size());
    for (size_t i = 0; i < written.size(); ++i) {
      if (merge_of(role, written[i]) != WrittenState::Merge::kWriters) continue;
      const at::Tensor users =
          piece_of_state(role, written[i], leaf(role, written[i]).tensor.detach());
      at::Tensor& before = state_before_[role][i];
      if (before.defined() && before.sizes() == users.sizes()) {
        before.copy_(users);
      } else {
        before = users.clone();
      }
    }
  }
}

// One device has what the plain loop has; only to other workers it travels.
WrittenState::Merge BoundStep::merge_of(size_t role, int index) const {
  const BoundLeaves::Leaf& written = leaf(role, index);
  const bool mean = !written.is_parameter && written.tensor.is_floating_point();
  const bool one = plan_.replicas * plan_.program_of(role).devices == 1;
  return mean || one ? WrittenState::Merge::kMean : WrittenState::Merge::kWriters;
}

WrittenState BoundStep::written_state(size_t role, int index) const {
  const Program& program = plan_.program_of(role);
  const auto& all = program.written_leaves;
  const auto place = std::find(all.begin(), all.end(), index);
  EPL_ASSERT(place != all.end(), concat("leaf ", index, " is merged, and nobody writes it"));
  const auto number = static_cast<size_t>(place - all.begin());
  WrittenState state;
  state.devices = plan_.replicas * program.devices;
  state.name = program.leaves[static_cast<size_t>(index)].name;
  state.merge = merge_of(role, index);
  state.role = static_cast<int>(role);
  state.users = piece_of_state(role, index, leaf(role, index).tensor.detach());
  state.before = state_before_[role][number];
  for (int device : devices_of_role(role)) {
    const at::Tensor& own = own_state_[static_cast<size_t>(device)][number];
    state.written.push_back(own.defined() ? piece_of_state(role, index, own) : state.users);
  }
  return state;
}

// Of a state that one device writes nothing is merged, but other workers get it: then the plan
// names it.
void BoundStep::merge_state(const EndPhase& merge) {
  std::vector<WrittenState> states;
  for (const auto& [number, instruction] : merge.instructions) {
    const auto role = static_cast<size_t>(number);
    for (int index : instruction->leaves) {
      if (owns_state(role, index)) states.push_back(written_state(role, index));
    }
  }
  if (!states.empty()) merge_written_state(states, connections_.workers());
}

}  // namespace epl

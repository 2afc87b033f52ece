#include "runtime/leaf_homes.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/text.h"
#include "program/near_bytes.h"

namespace epl {

LeafHomes::LeafHomes(TensorHomes& homes, const Plan& plan, std::vector<at::Tensor> leaves,
                     const std::vector<int>& devices)
    : homes_(homes), leaves_(std::move(leaves)), devices_(devices.size()) {
  for (size_t role = 0; role < devices.size(); ++role) {
    if (devices[role] > 0) most_near_ += epl::most_near(plan.program_of(role));
  }
  if (!homes.has_windows()) return;
  std::set<int> offloaded;
  std::set<int> written;
  for (size_t role = 0; role < devices.size(); ++role) {
    if (devices[role] == 0) continue;
    const Program& program = plan.program_of(role);
    if (devices[role] > 1) devices_[role] = std::make_unique<SideBySide>(program, devices[role]);
    written.insert(program.written_leaves.begin(), program.written_leaves.end());
    for (size_t i = 0; i < program.leaves.size(); ++i) {
      if (program.leaves[i].offloaded) offloaded.insert(static_cast<int>(i));
    }
  }
  offloaded_.assign(offloaded.begin(), offloaded.end());
  written_.assign(written.begin(), written.end());
}

// What was recorded apart may lie together by now: the program has given a tensor other memory.
void LeafHomes::check_apart() const {
  struct Range {
    const char* begin = nullptr;
    const char* end = nullptr;
  };
  const auto memory_of = [&](int leaf) {
    const at::Tensor& tensor = leaves_[static_cast<size_t>(leaf)];
    if (!tensor.defined() || !tensor.has_storage()) return Range();
    const auto* const begin = static_cast<const char*>(tensor.storage().data());
    return Range{begin, begin + tensor.storage().nbytes()};
  };
  for (int leaf : written_) {
    const Range written = memory_of(leaf);
    const auto overlaps = [&](int each) {
      const Range other = memory_of(each);
      return written.begin < other.end && other.begin < written.end;
    };
    EPL_CHECK(std::none_of(offloaded_.begin(), offloaded_.end(), overlaps),
              "the step writes memory in which a parameter lies that is offloaded", "offload.level",
              "memory of its own for what the step writes");
  }
}

void LeafHomes::begin() {
  if (homes_.has_windows()) check_apart();
  homes_.begin(most_near_);
  for (const auto& devices : devices_) {
    if (devices != nullptr) devices->begin();
  }
}

void LeafHomes::run(const Instruction& instruction, Device device,
                    const std::function<void()>& look) {
  SideBySide* const others = devices_[static_cast<size_t>(device.role)].get();
  const bool fetches = instruction.kind == Instruction::Kind::kFetch;
  if (others != nullptr && fetches) others->wait_for_others(device.number, instruction, look);
  run(instruction, TensorHomes::Access::kRead);
  if (others != nullptr) others->note_done(device.number);
}

void LeafHomes::run(const Instruction& instruction, TensorHomes::Access access) {
  std::vector<at::Tensor> tensors;
  for (int leaf : instruction.leaves) tensors.push_back(leaves_[static_cast<size_t>(leaf)]);
  const auto part = instruction.states ? TensorHomes::Part::kStates : TensorHomes::Part::kParameter;
  if (instruction.states) access = TensorHomes::Access::kWrite;
  if (instruction.kind == Instruction::Kind::kFetch) return homes_.fetch(tensors, part, access);
  if (instruction.kind == Instruction::Kind::kWait) return homes_.wait(tensors, part, access);
  homes_.store(tensors, part);
}

}  // namespace epl

#include "plan/spread.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "program/bytes_moved.h"

namespace epl {
namespace {

bool is_of_leaf(const Program& program, SlotId id, int leaf) {
  if (id == kNoSlot) return false;
  const Slot& slot = program.slots[static_cast<size_t>(id)];
  return slot.where == Slot::Where::kLeaf && slot.index == leaf;
}

// Whether somebody reads a leaf who comes before or after the runs that read it.
bool is_read_beside_runs(const Program& program, int leaf) {
  const auto reads = [&](SlotId slot) { return is_of_leaf(program, slot, leaf); };
  const bool sent =
      std::any_of(program.instructions.begin(), program.instructions.end(), [&](const auto& each) {
        return each.kind == Instruction::Kind::kSend &&
               std::any_of(each.slots.begin(), each.slots.end(), reads);
      });
  return sent || std::any_of(program.gradients.begin(), program.gradients.end(),
                             [&](const PlanGradient& each) { return reads(each.slot); });
}

class SpreadRole {
 public:
  SpreadRole(const ZeroOptions& options, Plan& plan, size_t role)
      : options_(options), plan_(plan), program_(plan.programs[role]), role_(role) {}

  void run() {
    for (size_t i = 0; i < program_.leaves.size(); ++i) {
      PlanLeaf& leaf = program_.leaves[i];
      if (leaf.kind != PlanLeaf::Kind::kTensor || leaf.slot == kNoSlot) continue;
      if (!has_ranges(static_cast<int>(i))) continue;
      const TensorType& type = program_.slots[static_cast<size_t>(leaf.slot)].type;
      const std::string why = why_whole(static_cast<int>(i), type);
      if (why.empty()) {
        leaf.others = most_of_others(type);
        spread_ += slot_bytes(program_, leaf.slot);
      } else {
        whole_[why] += slot_bytes(program_, leaf.slot);
      }
    }
  }

  std::string remark() const {
    std::string text =
        concat("zero: workers", options_.shares.size() > 1 ? concat(" of role ", role_) : "",
               " each keep a part of ", human_bytes(spread_), " of parameters");
    for (const auto& [why, bytes] : whole_) {
      text += concat("; all of them keep ", human_bytes(bytes), " ", why);
    }
    return text;
  }

 private:
  // In this step, or since an earlier one that gave it a gradient.
  bool has_ranges(int leaf) const {
    const auto of_leaf = [&](const PlanGradient& each) { return each.leaf == leaf; };
    const auto found = std::find_if(program_.gradients.begin(), program_.gradients.end(), of_leaf);
    if (found != program_.gradients.end()) {
      return found->owners.kind == Owners::Kind::kRanges;
    }
    const auto settled = options_.settled.find(program_.leaves[static_cast<size_t>(leaf)].name);
    return settled != options_.settled.end() && settled->second.kind == Owners::Kind::kRanges;
  }

  std::string why_whole(int index, const TensorType& type) const {
    const PlanLeaf& leaf = program_.leaves[static_cast<size_t>(index)];
    if (leaf.shard.is_cut()) return "that is cut over devices";
    if (plan_.has_guards()) return "since the step reads values back into C++";
    const auto& written = program_.written_leaves;
    if (std::find(written.begin(), written.end(), index) != written.end()) {
      return "that the step itself writes";
    }
    if (is_read_elsewhere(index)) return "that other stages or parts read as well";
    if (is_read_beside_runs(program_, index)) return "that is sent or reduced as it is";
    if (type.offset != 0 || type.extent_bytes() != type.numel() * type.item_bytes()) {
      return "with gaps in memory";
    }
    if (most_of_others(type) == 0) return "of which one worker has all";
    return options_.spread.count(leaf.name) != 0 ? "" : "whose memory other tensors show as well";
  }

  bool is_read_elsewhere(int leaf) const {
    for (size_t other = 0; other < plan_.programs.size(); ++other) {
      const PlanLeaf& there = plan_.programs[other].leaves[static_cast<size_t>(leaf)];
      if (other != role_ && there.slot != kNoSlot) return true;
    }
    return false;
  }

  int64_t most_of_others(const TensorType& type) const {
    const std::vector<int>& shares = options_.shares[role_];
    int64_t least = type.numel();
    for (size_t rank = 0; rank < shares.size(); ++rank) {
      const Piece owned =
          owned_elements({Owners::Kind::kRanges, 0}, type.numel(), shares, static_cast<int>(rank));
      least = std::min(least, owned.length);
    }
    return (type.numel() - least) * type.item_bytes();
  }

  const ZeroOptions& options_;
  const Plan& plan_;
  Program& program_;
  const size_t role_;
  int64_t spread_ = 0;
  std::map<std::string, int64_t> whole_;  // bytes, by reason
};

}  // namespace

void spread_parameters(const ZeroOptions& options, Plan& plan) {
  if (!options.spreads) return;
  for (size_t role = 0; role < options.shares.size(); ++role) {
    if (options.shares[role].size() < 2) continue;
    SpreadRole spread(options, plan, role);
    spread.run();
    plan.remarks.push_back(spread.remark());
  }
}

void add_spread_fetches(const ZeroOptions& options, Plan& plan) {
  for (Program& program : plan.programs) {
    const bool any = std::any_of(program.leaves.begin(), program.leaves.end(),
                                 [](const PlanLeaf& leaf) { return leaf.is_spread(); });
    if (any) add_fetches(options.fetches, program);
  }
}

}  // namespace epl

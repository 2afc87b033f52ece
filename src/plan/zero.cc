#include "plan/zero.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/text.h"
#include "program/bytes_moved.h"

namespace epl {
namespace {

// Ranges with fewer bytes are not worth a state of whole size with pages of its own.
constexpr int64_t kLeastRangeBytes = 64 << 10;

// A shard may have gaps: its gradient has none, and it is elements of that which are owned.
bool is_dense(const TensorType& type, const Shard& shard) {
  const bool gaps = type.extent_bytes() != type.numel() * type.item_bytes();
  return type.layout == c10::kStrided && c10::isFloatingType(type.dtype) &&
         (!gaps || shard.is_cut());
}

class RoleOwners {
 public:
  RoleOwners(const ZeroOptions& options, const Plan& plan, size_t role)
      : options_(options),
        plan_(plan),
        role_(role),
        shares_(options.shares[role]),
        loads_(shares_.size(), 0) {}

  // Those that are settled first: what is new goes where there is room.
  void assign(Program& program) {
    for (size_t i = 0; i < program.gradients.size(); ++i) {
      PlanGradient& gradient = program.gradients[i];
      const auto found = options_.settled.find(name_of(program, gradient));
      if (found == options_.settled.end()) continue;
      const std::string why = why_whole(program, i);
      EPL_CHECK(why.empty(),
                concat("workers keep parts of the states of `", found->first,
                       "` since an earlier step, and in this one it is a parameter ", why),
                "zero.level", "zero.level = \"\", or an optimizer and network for each");
      own(program, found->second, gradient);
    }
    for (size_t i = 0; i < program.gradients.size(); ++i) {
      PlanGradient& gradient = program.gradients[i];
      if (!gradient.owners.are_all()) continue;
      const int64_t bytes = slot_bytes(program, gradient.slot);
      if (bytes == 0) continue;
      if (const std::string why = why_whole(program, i); !why.empty()) {
        whole_[why] += bytes;
        continue;
      }
      // Shards are cut into ranges, however small: those of all roles alike.
      const bool cut = program.leaves[static_cast<size_t>(gradient.leaf)].shard.is_cut();
      const bool large = cut || (is_fused(program, gradient) &&
                                 bytes >= kLeastRangeBytes * static_cast<int64_t>(shares_.size()));
      own(program,
          large ? Owners{Owners::Kind::kRanges, 0} : Owners{Owners::Kind::kRank, lightest()},
          gradient);
    }
  }

  const std::map<std::string, int64_t>& whole() const { return whole_; }  // bytes, by reason
  std::vector<int64_t> loads() const { return loads_; }

 private:
  static const std::string& name_of(const Program& program, const PlanGradient& gradient) {
    return program.leaves[static_cast<size_t>(gradient.leaf)].name;
  }

  // Of other types LibTorch's own step does all of a parameter, and writes all of its states.
  static bool is_fused(const Program& program, const PlanGradient& gradient) {
    const auto type = program.slots[static_cast<size_t>(gradient.slot)].type.dtype;
    return type == c10::kFloat || type == c10::kDouble;
  }

  std::string why_whole(const Program& program, size_t index) const {
    const PlanGradient& gradient = program.gradients[index];
    const auto type_of = [&](SlotId slot) -> const TensorType& {
      return program.slots[static_cast<size_t>(slot)].type;
    };
    if (plan_.is_tied(static_cast<int>(role_), static_cast<int>(index))) {
      return "tied over stages or parts";
    }
    if (type_of(gradient.slot).layout != c10::kStrided) return "with sparse gradients";
    const PlanLeaf& leaf = program.leaves[static_cast<size_t>(gradient.leaf)];
    if (!is_dense(type_of(leaf.slot), leaf.shard))
      return "with gaps in memory, or not of real numbers";
    if (leaf.shard.is_cut() && !on_several_everywhere(gradient.leaf)) {
      return "of which one worker has a shard alone";
    }
    const auto found = options_.whole.find(leaf.name);
    return found == options_.whole.end() ? "" : found->second;
  }

  // All roles that have a shard of the parameter: its owners are the same for all of them.
  bool on_several_everywhere(int leaf) const {
    for (size_t role = 0; role < plan_.programs.size(); ++role) {
      const auto& gradients = plan_.programs[role].gradients;
      const bool has = std::any_of(gradients.begin(), gradients.end(),
                                   [&](const PlanGradient& each) { return each.leaf == leaf; });
      if (has && options_.shares[role].size() < 2) return false;
    }
    return true;
  }

  void own(const Program& program, const Owners& owners, PlanGradient& gradient) {
    gradient.owners = owners;
    const TensorType& type = program.slots[static_cast<size_t>(gradient.slot)].type;
    for (size_t rank = 0; rank < loads_.size(); ++rank) {
      const Piece owned = owned_elements(owners, type.numel(), shares_, static_cast<int>(rank));
      loads_[rank] += owned.length * type.item_bytes();
    }
  }

  // In proportion to its devices.
  int lightest() const {
    size_t best = 0;
    for (size_t rank = 1; rank < loads_.size(); ++rank) {
      if (loads_[rank] * shares_[best] < loads_[best] * shares_[rank]) best = rank;
    }
    return static_cast<int>(best);
  }

  const ZeroOptions& options_;
  const Plan& plan_;
  const size_t role_;
  const std::vector<int>& shares_;
  std::vector<int64_t> loads_;  // bytes of parameters, by rank
  std::map<std::string, int64_t> whole_;
};

std::string remark_on(const std::vector<int64_t>& loads,
                      const std::map<std::string, int64_t>& whole, size_t role, bool several) {
  std::vector<std::string> parts;
  for (int64_t load : loads) parts.push_back(human_bytes(load));
  std::string text = concat("zero: workers", several ? concat(" of role ", role) : "", " update ",
                            join(parts, ", "), " of parameters");
  for (const auto& [why, bytes] : whole) {
    text += concat("; all of them update ", human_bytes(bytes), " ", why);
  }
  return text;
}

}  // namespace

void assign_owners(const ZeroOptions& options, Plan& plan) {
  for (size_t role = 0; role < options.shares.size(); ++role) {
    if (options.shares[role].size() < 2) {
      plan.remarks.push_back(concat("zero: the devices",
                                    options.shares.size() > 1 ? concat(" of role ", role) : "",
                                    " lie on one worker, which has one state for all of them: "
                                    "there is nothing to be cut"));
      continue;
    }
    RoleOwners owners(options, plan, role);
    owners.assign(plan.programs[role]);
    plan.remarks.push_back(
        remark_on(owners.loads(), owners.whole(), role, options.shares.size() > 1));
  }
}

}  // namespace epl

#include "plan/window_leaves.h"

#include "base/text.h"

namespace epl {
namespace {

class WindowLeaves {
 public:
  WindowLeaves(const Program& program, std::map<std::string, std::string>& found)
      : program_(program), found_(found) {}

  void run() {
    for (int leaf : program_.written_leaves) note(leaf, "the step itself writes it");
    for (size_t i = 0; i < program_.leaves.size(); ++i) {
      if (program_.leaves[i].shard.is_cut()) {
        note(static_cast<int>(i), "its operators are cut over devices, and it with them");
      }
    }
    for (const Segment& segment : program_.segments) {
      for (const Call& call : segment.calls) look_at(call);
    }
    for (const Instruction& each : program_.instructions) {
      for (SlotId slot : each.slots) note_slot(slot, "it travels between stages");
    }
    for (const PlanGradient& each : program_.gradients) {
      note_slot(each.slot, "it is a gradient as well");
    }
  }

 private:
  // What an operator makes in memory of its own choice may be a view of what it was given.
  void look_at(const Call& call) {
    bool makes = false;
    for_each_result(call, [&](SlotId id) {
      makes |= slot(id).where == Slot::Where::kMadeByOperator;
      note_slot(id, "an operator writes it");
    });
    if (!makes) return;
    for_each_operand(call, [&](SlotId id) {
      note_slot(id, concat("what ", call.op.schema().operator_name().name, " makes may lie in it"));
    });
  }

  const Slot& slot(SlotId id) const { return program_.slots[static_cast<size_t>(id)]; }
  void note_slot(SlotId id, const std::string& why) {
    if (id == kNoSlot || slot(id).where != Slot::Where::kLeaf) return;
    note(slot(id).index, why);
  }
  void note(int leaf, const std::string& why) {
    const PlanLeaf& own = program_.leaves[static_cast<size_t>(leaf)];
    if (own.kind == PlanLeaf::Kind::kTensor) found_.emplace(own.name, why);
  }

  const Program& program_;
  std::map<std::string, std::string>& found_;
};

}  // namespace

std::map<std::string, std::string> leaves_without_window(const Plan& plan) {
  std::map<std::string, std::string> found;
  for (const Program& program : plan.programs) WindowLeaves(program, found).run();
  return found;
}

}  // namespace epl

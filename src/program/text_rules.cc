#include "program/text_rules.h"

#include <algorithm>
#include <numeric>

namespace epl {
namespace {

constexpr int64_t kAlignment = 64;  // as plan/memory.h places buffers

class MakerFinder {
 public:
  explicit MakerFinder(const Program& program) : program_(program), makers_(program.slots.size()) {}

  std::vector<SlotMaker> find() {
    for (size_t i = 0; i < program_.leaves.size(); ++i) {
      if (SlotMaker* maker = fresh(program_.leaves[i].slot)) {
        maker->kind = SlotMaker::Kind::kLeaf;
        maker->leaf = static_cast<int>(i);
      }
    }
    for (const auto& segment : program_.segments) {
      for (const auto& call : segment.calls) find_results(call);
    }
    find_views();
    return std::move(makers_);
  }

 private:
  // Nothing where somebody makes the slot already.
  SlotMaker* fresh(SlotId id) {
    if (id == kNoSlot) return nullptr;
    SlotMaker& maker = makers_.at(static_cast<size_t>(id));
    return maker.kind == SlotMaker::Kind::kNobody ? &maker : nullptr;
  }

  void find_results(const Call& call) {
    for_each_result(call, [&](SlotId id) {
      if (SlotMaker* maker = fresh(id)) {
        maker->kind = SlotMaker::Kind::kCall;
        maker->call = &call;
      }
    });
  }

  void view(SlotId id) {
    if (SlotMaker* maker = fresh(id)) maker->kind = SlotMaker::Kind::kView;
  }

  void find_views() {
    for (const auto& segment : program_.segments) {
      for (const auto& call : segment.calls) {
        for_each_operand(call, [&](SlotId id) { view(id); });
        for (SlotId id : call.frees) view(id);
      }
    }
    for (const auto& outputs : program_.outputs) {
      view(outputs.loss);
      for (const auto& metric : outputs.metrics) view(metric.slot);
    }
    for (const auto& gradient : program_.gradients) view(gradient.slot);
    for (const auto& instruction : program_.instructions) {
      const bool fills = instruction.kind == Instruction::Kind::kLoad ||
                         instruction.kind == Instruction::Kind::kReceive;
      for (SlotId id : instruction.slots) {
        view(id);
        if (id != kNoSlot && fills) makers_[static_cast<size_t>(id)].filled = true;
      }
    }
  }

  const Program& program_;
  std::vector<SlotMaker> makers_;
};

// The slot that a call in place writes first; kNoSlot: none.
SlotId written_slot(const Call& call) {
  if (usual_mode(call) != Call::Mode::kInPlace || call.operands.empty()) return kNoSlot;
  const auto& slots = call.operands[0].slots;
  return slots.empty() ? kNoSlot : slots[0];
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool makes_nothing(const std::string& op) {
  return op == "aten::empty" || op == "aten::empty_like" || op == "aten::empty_strided" ||
         op == "aten::new_empty" || op == "aten::new_empty_strided";
}

}  // namespace

std::vector<SlotMaker> slot_makers(const Program& program) { return MakerFinder(program).find(); }

Call::Mode usual_mode(const Call& call) {
  const auto& arguments = call.op.schema().arguments();
  const size_t given = std::min(call.operands.size(), arguments.size());
  if (given < arguments.size() && is_written(arguments[given])) return Call::Mode::kOut;
  if (std::any_of(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(given),
                  is_written)) {
    return Call::Mode::kInPlace;
  }
  const bool nothing = makes_nothing(call.op.operator_name().name);
  return nothing ? Call::Mode::kNothing : Call::Mode::kResult;
}

Slot usual_place(const Program& program, SlotId id, const SlotMaker& maker) {
  Slot slot;
  slot.where = Slot::Where::kMadeByOperator;
  if (maker.kind == SlotMaker::Kind::kLeaf) {
    slot.where = Slot::Where::kLeaf;
    slot.index = maker.leaf;
  } else if (maker.kind == SlotMaker::Kind::kCall) {
    const SlotId written = written_slot(*maker.call);
    if (written == kNoSlot || written >= id) return slot;
    const Slot& other = program.slots[static_cast<size_t>(written)];
    if (other.where == Slot::Where::kArena) return slot;
    slot.where = other.where;
    slot.index = other.index;
  }
  return slot;
}

BufferGuess::BufferGuess(const Program& program, const std::vector<SlotMaker>& makers)
    : makers_(makers) {
  for (const auto& gradient : program.gradients) {
    if (gradient.stays_to_the_end()) gradients_.insert(gradient.slot);
  }
}

// A view lies where the last value did that has its place. So does the sum of a gradient, which
// stays; and a result at the place of an operand, which lives still while its reader runs. All else
// is new, since places are taken again when nobody reads what lay there.
int BufferGuess::guess(SlotId id, int64_t offset) const {
  const auto latest = latest_.find(offset);
  if (latest == latest_.end()) return next_;
  const SlotMaker& maker = makers_[static_cast<size_t>(id)];
  const bool view = maker.kind == SlotMaker::Kind::kView && !maker.filled;
  if (view || of_gradients_.count(latest->second) != 0) return latest->second;
  int buffer = next_;
  if (maker.kind != SlotMaker::Kind::kCall) return buffer;
  for_each_operand(*maker.call, [&](SlotId operand) {
    const auto found = known_.find(operand);
    if (found != known_.end() && found->second.first == offset) buffer = found->second.second;
  });
  return buffer;
}

void BufferGuess::tell(SlotId id, int64_t offset, int buffer) {
  known_[id] = {offset, buffer};
  latest_[offset] = buffer;
  if (gradients_.count(id) != 0) of_gradients_.insert(buffer);
  next_ = std::max(next_, buffer + 1);
}

std::vector<int64_t> usual_bytes(const Program& program, const std::vector<SlotMaker>& makers) {
  std::vector<int64_t> bytes(program.buffers.size(), kNoBytes);
  for (size_t i = 0; i < program.slots.size(); ++i) {
    const Slot& slot = program.slots[i];
    const bool counts = makers[i].kind != SlotMaker::Kind::kNobody &&
                        slot.where == Slot::Where::kArena && slot.type.layout == c10::kStrided;
    if (!counts) continue;
    int64_t& most = bytes[static_cast<size_t>(slot.index)];
    most = std::max(most, slot.type.extent_bytes());
  }
  return bytes;
}

int64_t usual_arena(const Program& program) {
  int64_t end = 0;
  for (const auto& buffer : program.buffers) end = std::max(end, buffer.offset + buffer.bytes);
  return (end + kAlignment - 1) / kAlignment * kAlignment;
}

bool usual_guards(const Program& program) {
  return std::any_of(program.segments.begin(), program.segments.end(), [](const auto& segment) {
    return std::any_of(segment.calls.begin(), segment.calls.end(),
                       [](const Call& call) { return call.expects.has_value(); });
  });
}

int usual_stage(const Plan& plan, int program) {
  if (plan.schedule.stages.empty()) return 0;
  int first_role = 0;
  for (int i = 0; i < program; ++i) first_role += plan.programs[static_cast<size_t>(i)].roles;
  return first_role;
}

SegmentTask usual_task(const std::string& segment) {
  const std::pair<const char*, Task::Kind> kinds[] = {{"forward ", Task::Kind::kForward},
                                                      {"backward ", Task::Kind::kBackward},
                                                      {"weights ", Task::Kind::kWeights}};
  for (const auto& [name, kind] : kinds) {
    const std::string word = name;
    if (segment.compare(0, word.size(), word) != 0) continue;
    int chunk = 0;
    for (size_t i = word.size(); i < segment.size() && i < word.size() + 6; ++i) {
      if (segment[i] < '0' || segment[i] > '9') break;
      chunk = 10 * chunk + (segment[i] - '0');
    }
    return {kind, chunk};
  }
  return {};
}

int leaf_named(const Program& program, const std::string& name) {
  const auto& leaves = program.leaves;
  const auto found = std::find_if(leaves.begin(), leaves.end(),
                                  [&](const PlanLeaf& leaf) { return leaf.name == name; });
  return found == leaves.end() ? -1 : static_cast<int>(found - leaves.begin());
}

int segment_named(const Program& program, const std::string& name) {
  const auto& segments = program.segments;
  const auto found = std::find_if(segments.begin(), segments.end(),
                                  [&](const Segment& segment) { return segment.name == name; });
  return found == segments.end() ? -1 : static_cast<int>(found - segments.begin());
}

std::vector<int> usual_gradients(const std::vector<Instruction>& instructions, size_t end,
                                 Instruction::Kind kind, size_t count) {
  int first = 0;
  for (size_t i = end; i-- > 0 && first == 0;) {
    const bool takes_all = kind == Instruction::Kind::kClip || kind == Instruction::Kind::kFinite;
    if (takes_all) break;
    const bool same = instructions[i].kind == kind && !instructions[i].gradients.empty();
    if (same) first = instructions[i].gradients.back() + 1;
  }
  std::vector<int> gradients(count);
  std::iota(gradients.begin(), gradients.end(), first);
  return gradients;
}

std::vector<int> usual_leaves(const Program& program, Instruction::Kind kind, size_t count) {
  const auto& written = program.written_leaves;
  if (kind != Instruction::Kind::kMerge) return {};
  return {written.begin(),
          written.begin() + static_cast<std::ptrdiff_t>(std::min(count, written.size()))};
}

std::vector<int> usual_stages_of_chunks(size_t stages, size_t chunks) {
  std::vector<int> result(chunks);
  for (size_t i = 0; i < chunks; ++i) result[i] = static_cast<int>(i % stages);
  return result;
}

bool usually_splits(const Schedule& schedule) {
  return std::any_of(schedule.stages.begin(), schedule.stages.end(), [](const auto& tasks) {
    return std::any_of(tasks.begin(), tasks.end(),
                       [](const Task& task) { return task.kind == Task::Kind::kWeights; });
  });
}

}  // namespace epl

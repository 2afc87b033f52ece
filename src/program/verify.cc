#include "program/verify.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"

namespace epl {
namespace {

class Verifier {
 public:
  Verifier(const Plan& plan, const Program& program) : plan_(plan), program_(program) {}

  void run() {
    for (const auto& slot : program_.slots) verify_place(slot);
    verify_instructions();
  }

 private:
  const Slot& slot(SlotId id) const { return program_.slots.at(static_cast<size_t>(id)); }

  void verify_place(const Slot& slot) const {
    if (slot.where != Slot::Where::kArena) return;
    const Buffer& buffer = program_.buffers.at(static_cast<size_t>(slot.index));
    EPL_ASSERT(slot.type.extent_bytes() <= buffer.bytes, "a slot is larger than its buffer");
    EPL_ASSERT(buffer.offset >= 0 && buffer.offset + buffer.bytes <= program_.arena_bytes,
               "a buffer lies outside of the arena");
  }

  void verify_instructions() {
    std::set<int> loaded;
    std::set<int> ran;
    std::set<int> reduced;
    std::set<int> updated;
    next_call_ = 0;
    for (const auto& instruction : program_.instructions) {
      switch (instruction.kind) {
        case Instruction::Kind::kLoad:
          load_leaves();
          loaded.insert(instruction.micro_batch);
          break;
        case Instruction::Kind::kRun:
          EPL_ASSERT(loaded.count(instruction.micro_batch) != 0,
                     concat("micro batch ", instruction.micro_batch, " runs before it is loaded"));
          EPL_ASSERT(instruction.first_call != 0 || ran.insert(instruction.micro_batch).second,
                     concat("micro batch ", instruction.micro_batch, " runs twice"));
          run_segment(instruction);
          break;
        case Instruction::Kind::kReduce:
          for (int i : instruction.gradients) {
            EPL_ASSERT(reduced.insert(i).second, concat("gradient ", i, " is reduced twice"));
            EPL_ASSERT(static_cast<int>(ran.size()) == plan_.micro_batches,
                       concat("gradient ", i, " is reduced before the last micro batch"));
            read(program_.gradients.at(static_cast<size_t>(i)).slot, "reduce");
            sent_.insert(program_.gradients[static_cast<size_t>(i)].slot);
          }
          break;
        case Instruction::Kind::kUpdate:
          EPL_ASSERT(static_cast<int>(ran.size()) == plan_.micro_batches && next_call_ == 0,
                     "an update comes before the last micro batch");
          for (int i : instruction.gradients) {
            EPL_ASSERT(updated.insert(i).second, concat("gradient ", i, " is updated twice"));
            read(program_.gradients.at(static_cast<size_t>(i)).slot, "update");
          }
          break;
      }
    }
    EPL_ASSERT(updated.size() == program_.gradients.size(), "a gradient is never updated");
    EPL_ASSERT(
        plan_.replicas * program_.devices == 1 || reduced.size() == program_.gradients.size(),
        "a gradient is never reduced");
  }

  void load_leaves() {
    for (const auto& leaf : program_.leaves) {
      if (leaf.slot != kNoSlot) write(leaf.slot);
    }
  }

  void run_segment(const Instruction& run) {
    const auto index = static_cast<size_t>(run.segment);
    const Segment& segment = program_.segments.at(index);
    const auto calls = static_cast<int>(segment.calls.size());
    const int end = std::min(run.end_call, calls);
    EPL_ASSERT(run.first_call == next_call_ && end >= run.first_call,
               concat("a run of ", segment.name, " goes on at call ", run.first_call,
                      ", but stopped before call ", next_call_));
    for (int i = run.first_call; i < end; ++i) {
      const Call& call = segment.calls[static_cast<size_t>(i)];
      const std::string where = c10::toString(call.op.operator_name());
      for_each_operand(call, [&](SlotId id) { read(id, where); });
      for_each_result(call, [&](SlotId id) { write(id); });
      for (SlotId id : call.frees) {
        EPL_ASSERT(made_.erase(id) == 1, concat("s", id, " is freed but not there, in ", where));
      }
    }
    next_call_ = end == calls ? 0 : end;
    if (end != calls) return;
    const SegmentOutputs& outputs = program_.outputs.at(index);
    read(outputs.loss, "loss");
    for (const auto& metric : outputs.metrics) read(metric.slot, "metric " + metric.name);
  }

  // Bytes of the arena belong to the buffer that was written there last. A slot may be read while
  // its buffer still has all of its own.
  void write(SlotId id) {
    EPL_ASSERT(sent_.count(id) == 0, concat("s", id, " is written while it is reduced"));
    const Slot& target = slot(id);
    if (target.where == Slot::Where::kMadeByOperator) made_.insert(id);
    if (target.where != Slot::Where::kArena) return;
    const Buffer& buffer = program_.buffers[static_cast<size_t>(target.index)];
    if (buffer.bytes == 0) return;
    auto next = owners_.lower_bound(buffer.offset);
    if (next != owners_.begin()) {
      auto before = std::prev(next);
      if (before->second.end > buffer.offset) next = before;
    }
    while (next != owners_.end() && next->first < buffer.offset + buffer.bytes) {
      next = next->second.buffer == target.index ? std::next(next) : owners_.erase(next);
    }
    owners_[buffer.offset] = {target.index, buffer.offset + buffer.bytes};
  }

  void read(SlotId id, const std::string& where) const {
    const Slot& source = slot(id);
    if (source.where == Slot::Where::kMadeByOperator) {
      EPL_ASSERT(made_.count(id) != 0, concat("s", id, " is read but not there, in ", where));
    }
    if (source.where != Slot::Where::kArena) return;
    const Buffer& buffer = program_.buffers[static_cast<size_t>(source.index)];
    if (buffer.bytes == 0) return;
    const auto owner = owners_.find(buffer.offset);
    EPL_ASSERT(
        owner != owners_.end() && owner->second.buffer == source.index,
        concat("s", id, " is read before it is written or after its place was taken, in ", where));
  }

  struct Owner {
    int buffer;
    int64_t end;
  };

  const Plan& plan_;
  const Program& program_;
  std::map<int64_t, Owner> owners_;  // by first byte
  std::set<SlotId> made_;
  std::set<SlotId> sent_;  // gradients whose reduction has started
  int next_call_ = 0;      // of the segment that is running in pieces
};

}  // namespace

void verify_plan(const Plan& plan) {
  for (const auto& program : plan.programs) Verifier(plan, program).run();
}

}  // namespace epl

#include "program/memory_profile.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/text.h"
#include "program/bytes_moved.h"
#include "program/near_bytes.h"
#include "program/step_end.h"

namespace epl {
namespace {

// One after the other: the calls of all runs, and the instructions besides.
struct Moment {
  const Instruction* instruction = nullptr;
  const Call* call = nullptr;  // of a run
};

std::string describe(const Moment& moment) {
  if (moment.instruction == nullptr) return "the begin of the step";
  if (moment.call == nullptr) {
    return concat("micro batch ", moment.instruction->micro_batch, " as it comes or goes");
  }
  return concat(c10::toString(moment.call->op.operator_name()), ", ",
                moment.call->backward ? "backward" : "forward", " of micro batch ",
                moment.instruction->micro_batch);
}

// Empty where it belongs to the phase that it stands in.
std::string phase_of(const Moment& moment) {
  if (moment.call != nullptr) return moment.call->backward ? "backward" : "forward";
  const bool updates =
      moment.instruction != nullptr && moment.instruction->kind == Instruction::Kind::kUpdate;
  return updates ? "update" : "";
}

// What lies in a buffer, from the write of all of it to its last reader.
struct Life {
  enum class Begin : uint8_t { kForward, kBackward, kLoad, kReceive };

  Begin begin = Begin::kForward;
  size_t first = 0;
  size_t last = 0;
  bool read_in_forward = false;
  bool read_in_backward = false;
  bool is_gradient = false;

  MemoryKind kind() const {
    if (begin == Begin::kLoad) return MemoryKind::kBatch;
    if (is_gradient) return MemoryKind::kGradients;
    const bool of_forward =
        begin == Begin::kForward || (begin == Begin::kReceive && read_in_forward);
    return of_forward && read_in_backward ? MemoryKind::kSaved : MemoryKind::kTemporary;
  }
};

class Profiler {
 public:
  explicit Profiler(const Program& program) : program_(program), near_(program) {}

  MemoryProfile run() {
    const size_t end = begin_of_end(program_);
    for (const PlanLeaf& leaf : program_.leaves) {
      if (leaf.kind == PlanLeaf::Kind::kSeed) write(leaf.slot, Life::Begin::kLoad);
    }
    for (size_t i = 0; i < end; ++i) play(program_.instructions[i]);
    play_updates(end);
    take_gradients();
    for (const auto& [buffer, life] : lives_) ended_.push_back({buffer, life});
    return result();
  }

 private:
  using Ended = std::pair<int, Life>;  // with its buffer

  const Slot* in_arena(SlotId id) const {
    if (id == kNoSlot) return nullptr;
    const Slot& slot = program_.slots[static_cast<size_t>(id)];
    return slot.where == Slot::Where::kArena ? &slot : nullptr;
  }
  size_t now() const { return moments_.size() - 1; }
  void begin_moment(const Instruction& instruction, const Call* call) {
    moments_.push_back({&instruction, call});
    windows_.push_back(near_.take_most());
  }

  void read(SlotId id, Life::Begin by) {
    const Slot* const slot = in_arena(id);
    if (slot == nullptr) return;
    Life& life = lives_.try_emplace(slot->index, Life{by, now()}).first->second;
    life.last = now();
    (by == Life::Begin::kBackward ? life.read_in_backward : life.read_in_forward) = true;
  }

  // A part of a buffer is written beside what lies in the rest of it.
  void write(SlotId id, Life::Begin by) {
    const Slot* const slot = in_arena(id);
    if (slot == nullptr) return;
    const bool all =
        slot->type.extent_bytes() == program_.buffers[static_cast<size_t>(slot->index)].bytes &&
        slot->type.dense();
    const auto found = lives_.find(slot->index);
    if (found != lives_.end() && (!all || found->second.last == now())) {
      found->second.last = now();
      return;
    }
    if (found != lives_.end()) ended_.push_back({slot->index, found->second});
    lives_[slot->index] = Life{by, now(), now()};
  }

  void play(const Instruction& instruction) {
    near_.play(instruction);
    if (instruction.kind == Instruction::Kind::kRun) return play_run(instruction);
    if (is_of_offload(instruction.kind)) return;  // not in the arena
    begin_moment(instruction, nullptr);
    extra_.push_back(held_by_operators_);
    switch (instruction.kind) {
      case Instruction::Kind::kLoad:
        for (size_t i = 0; i < program_.leaves.size(); ++i) {
          const PlanLeaf& leaf = program_.leaves[i];
          if (leaf.kind != PlanLeaf::Kind::kInput) continue;
          write(instruction.slots.empty() ? leaf.slot : instruction.slots[i], Life::Begin::kLoad);
        }
        return;
      case Instruction::Kind::kReceive:
        for (SlotId id : instruction.slots) write(id, Life::Begin::kReceive);
        return;
      case Instruction::Kind::kSend:
        // Not a use in forward or backward: what is only sent is saved for nobody.
        for (SlotId id : instruction.slots) keep(id);
        return;
      case Instruction::Kind::kReduce:
      case Instruction::Kind::kUpdateEarly:
      case Instruction::Kind::kAwaitGroup:
        // Of gradients that do not stay: until the last of these.
        for (SlotId id : instruction.slots) keep_gradient(id);
        return;
      default:
        return;
    }
  }

  void keep(SlotId id) {
    if (Life* const life = life_of(id)) life->last = now();
  }

  void keep_gradient(SlotId id) {
    if (Life* const life = life_of(id)) life->is_gradient = true;
    keep(id);
  }

  Life* life_of(SlotId id) {
    const Slot* const slot = in_arena(id);
    const auto found = slot == nullptr ? lives_.end() : lives_.find(slot->index);
    return found == lives_.end() ? nullptr : &found->second;
  }

  void play_run(const Instruction& run) {
    const Segment& segment = program_.segments[static_cast<size_t>(run.segment)];
    const auto size = static_cast<int>(segment.calls.size());
    const int end = std::min(run.end_call, size);
    for (int i = run.first_call; i < end; ++i)
      play_call(run, segment.calls[static_cast<size_t>(i)]);
    if (run.end_call < size) return;
    const SegmentOutputs& outputs = program_.outputs[static_cast<size_t>(run.segment)];
    keep(outputs.loss);
    for (const PlanMetric& metric : outputs.metrics) {
      keep(metric.slot);
      // The device copies it for the end of the step.
      held_by_operators_ += slot_bytes(program_, metric.slot);
    }
  }

  void play_call(const Instruction& run, const Call& call) {
    begin_moment(run, &call);
    const auto phase = call.backward ? Life::Begin::kBackward : Life::Begin::kForward;
    for_each_operand(call, [&](SlotId id) { read(id, phase); });
    for_each_result(call, [&](SlotId id) {
      write(id, phase);
      hold(id);
    });
    extra_.push_back(call.workspace + held_by_operators_);
    for (SlotId id : call.frees) {
      const auto found = made_.find(id);
      if (found == made_.end()) continue;
      held_by_operators_ -= found->second;
      made_.erase(found);
    }
  }

  // What an operator makes wherever it likes. How much a sparse tensor has is not known: what the
  // kernel allocated for it counts as its workspace.
  void hold(SlotId id) {
    const Slot& slot = program_.slots[static_cast<size_t>(id)];
    if (slot.where != Slot::Where::kMadeByOperator || slot.type.layout != c10::kStrided) return;
    const int64_t bytes = slot_bytes(program_, id);
    held_by_operators_ += bytes - std::exchange(made_[id], bytes);
  }

  // The end of a step makes nothing in the arena; what it updates comes near group by group.
  void play_updates(size_t end) {
    for (size_t i = end; i < program_.instructions.size(); ++i) {
      const Instruction& instruction = program_.instructions[i];
      near_.play(instruction);
      if (instruction.kind != Instruction::Kind::kUpdate) continue;
      begin_moment(instruction, nullptr);
      extra_.push_back(held_by_operators_);
    }
  }

  void take_gradients() {
    for (const PlanGradient& gradient : program_.gradients) {
      if (gradient.stays_to_the_end()) keep_gradient(gradient.slot);
    }
  }

  MemoryProfile result() const {
    MemoryProfile profile;
    // By moment, what comes to life; what is dead is taken away one moment later.
    std::vector<std::array<int64_t, kMemoryKinds>> change(moments_.size() + 1);
    for (const auto& [buffer, life] : ended_) {
      const int64_t bytes = program_.buffers[static_cast<size_t>(buffer)].bytes;
      const auto kind = static_cast<size_t>(life.kind());
      change[life.first][kind] += bytes;
      change[life.last + 1][kind] -= bytes;
    }
    MemoryBytes alive;
    for (size_t i = 0; i < moments_.size(); ++i) {
      for (size_t kind = 0; kind < kMemoryKinds; ++kind) {
        alive[static_cast<MemoryKind>(kind)] += change[i][kind];
      }
      profile.over_time.push_back(alive);
      profile.over_time.back()[MemoryKind::kWorkspace] = extra_[i];
      profile.over_time.back()[MemoryKind::kWindows] = windows_[i];
      add_phase(i, profile.phases);
      if (i > 0 && alive.total() <= profile.bytes.total()) continue;
      profile.bytes = alive;
      profile.peak_at = describe(moments_[i]);
    }
    profile.bytes[MemoryKind::kFragmentation] = program_.arena_bytes - profile.bytes.total();
    const auto most = std::max_element(extra_.begin(), extra_.end());
    profile.bytes[MemoryKind::kWorkspace] = *most;
    if (*most > 0)
      profile.workspace_at = describe(moments_[static_cast<size_t>(most - extra_.begin())]);
    return profile;
  }

  void add_phase(size_t moment, std::vector<MemoryReport::Device::Phase>& phases) const {
    const std::string name = phase_of(moments_[moment]);
    if (name.empty() || (!phases.empty() && phases.back().name == name)) return;
    phases.push_back({name, phases.empty() ? 0 : moment});
  }

  const Program& program_;
  NearBytes near_;
  std::vector<Moment> moments_{Moment{}};
  std::vector<int64_t> extra_{0};    // by moment: outside of the arena
  std::vector<int64_t> windows_{0};  // by moment: of what rests in a file
  std::map<int, Life> lives_;        // by buffer: what lies in it now
  std::vector<Ended> ended_;
  std::map<SlotId, int64_t> made_;  // by operators, that nobody has freed
  int64_t held_by_operators_ = 0;
};

}  // namespace

MemoryProfile profile_memory(const Program& program) { return Profiler(program).run(); }

}  // namespace epl

#include "program/verify.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "base/check.h"
#include "program/plan_mesh.h"
#include "program/walk.h"

namespace epl {
namespace {

// What is offloaded or spread is used between a wait for its fetch and its store, and nowhere else.
class NearVerifier {
 public:
  explicit NearVerifier(const Program& program) : program_(program) {}

  void take(const Instruction& moves) {
    for (int index : moves.leaves) {
      const PlanLeaf& leaf = program_.leaves.at(static_cast<size_t>(index));
      EPL_ASSERT(leaf.is_fetched() && (!moves.states || (leaf.offloaded && leaf.states > 0)),
                 concat("leaf ", index, " is fetched or stored, and is not offloaded or spread"));
      take({index, moves.states}, moves.kind);
    }
  }

  void check_read(int leaf, const std::string& where) const {
    EPL_ASSERT(!is_away({leaf, false}),
               concat("leaf ", leaf, " is read while it is away, in ", where));
  }

  void check_updated(const Instruction& update) const {
    for (int i : update.gradients) {
      const int leaf = program_.gradients[static_cast<size_t>(i)].leaf;
      // Of what is spread each worker updates what it keeps.
      const bool spread = program_.leaves[static_cast<size_t>(leaf)].is_spread();
      EPL_ASSERT((spread || !is_away({leaf, false})) && !is_away({leaf, true}),
                 concat("leaf ", leaf, " is updated while it or its state is away"));
    }
  }

  void check_all_stored() const {
    EPL_ASSERT(there_.empty(), "something is fetched and never stored");
  }

 private:
  using Item = std::pair<int, bool>;  // a leaf, or its states
  enum class There : uint8_t { kFetched, kNear };

  void take(const Item& item, Instruction::Kind kind) {
    const auto found = there_.find(item);
    const bool fetched = found != there_.end();
    EPL_ASSERT(fetched == (kind != Instruction::Kind::kFetch),
               concat("leaf ", item.first, " is fetched twice, or stored before it is fetched"));
    if (kind == Instruction::Kind::kStore) {
      there_.erase(found);
    } else {
      there_[item] = kind == Instruction::Kind::kWait ? There::kNear : There::kFetched;
    }
  }

  bool is_away(const Item& item) const {
    const PlanLeaf& leaf = program_.leaves[static_cast<size_t>(item.first)];
    const bool rests = item.second ? leaf.offloaded && leaf.states > 0 : leaf.is_fetched();
    const auto found = there_.find(item);
    return rests && (found == there_.end() || found->second != There::kNear);
  }

  const Program& program_;
  std::map<Item, There> there_;
};

// Gradients that do not stay: each micro batch is reduced once, or updated, and its place is taken
// only when somebody has waited for that.
class GroupVerifier {
 public:
  GroupVerifier(const Program& program, bool reduces) : program_(program), reduces_(reduces) {}

  bool is_of_group(const Instruction& each) const {
    return each.kind == Instruction::Kind::kUpdateEarly ||
           each.kind == Instruction::Kind::kAwaitGroup ||
           (each.kind == Instruction::Kind::kReduce && !each.slots.empty());
  }

  void take(const Instruction& each) {
    EPL_ASSERT(each.slots.size() == each.gradients.size(),
               concat("group ", each.group, " has ", each.gradients.size(), " gradients in ",
                      each.slots.size(), " slots"));
    if (each.kind == Instruction::Kind::kAwaitGroup) return await(each);
    const bool updates = each.kind == Instruction::Kind::kUpdateEarly;
    for (size_t i = 0; i < each.gradients.size(); ++i) {
      const int index = each.gradients[i];
      const PlanGradient& gradient = program_.gradients.at(static_cast<size_t>(index));
      EPL_ASSERT(!gradient.stays_to_the_end(),
                 concat("gradient ", index, " stays, and a group has it in another slot"));
      auto& taken = updates ? updated_ : reduced_;
      EPL_ASSERT(taken.insert({index, each.micro_batch}).second,
                 concat("gradient ", index, " of micro batch ", each.micro_batch,
                        " is reduced or updated twice"));
      EPL_ASSERT(!updates || !reduces_ || reduced_.count({index, each.micro_batch}) != 0,
                 concat("gradient ", index, " is updated before it is reduced"));
      if (updates) changed_.insert(gradient.leaf);
    }
    if (reduces_) under_way_[each.group] = each.slots;
  }

  // Slots that somebody may still be working in, and those that must be as they were.
  bool is_under_way(SlotId id) const {
    return std::any_of(under_way_.begin(), under_way_.end(), [&](const auto& group) {
      return std::find(group.second.begin(), group.second.end(), id) != group.second.end();
    });
  }
  const std::map<int, std::vector<SlotId>>& under_way() const { return under_way_; }

  void check_read(int leaf, const std::string& where) const {
    EPL_ASSERT(changed_.count(leaf) == 0,
               concat("leaf ", leaf, " is read after it was updated, in ", where));
  }

  void check_all_taken(int micro_batches) const {
    for (size_t i = 0; i < program_.gradients.size(); ++i) {
      const PlanGradient& gradient = program_.gradients[i];
      if (gradient.stays_to_the_end()) continue;
      const bool updates = gradient.stays == PlanGradient::Stays::kUntilUpdated;
      for (int micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
        const std::pair<int, int> own = {static_cast<int>(i), micro_batch};
        EPL_ASSERT((updates || reduced_.count(own) != 0) && (!updates || updated_.count(own) != 0),
                   concat("gradient ", i, " of micro batch ", micro_batch, " is lost"));
      }
    }
  }

 private:
  void await(const Instruction& each) {
    const auto found = under_way_.find(each.group);
    EPL_ASSERT(found != under_way_.end() && found->second == each.slots,
               concat("group ", each.group, " is waited for, and is not under way"));
    under_way_.erase(found);
  }

  const Program& program_;
  const bool reduces_;                            // several devices have them
  std::set<std::pair<int, int>> reduced_;         // gradient and micro batch
  std::set<std::pair<int, int>> updated_;         // likewise
  std::set<int> changed_;                         // leaves
  std::map<int, std::vector<SlotId>> under_way_;  // by group
};

class Verifier {
 public:
  Verifier(const Plan& plan, const Program& program, int first_role)
      : plan_(plan),
        program_(program),
        first_role_(first_role),
        near_(program),
        groups_(program, plan.replicas * program.devices > 1) {}

  void run() {
    EPL_ASSERT(program_.roles > 0, "somebody runs a program");
    for (const auto& slot : program_.slots) verify_place(slot);
    verify_instructions();
  }

 private:
  const Slot& slot(SlotId id) const { return program_.slots.at(static_cast<size_t>(id)); }

  void verify_place(const Slot& slot) const {
    if (slot.where != Slot::Where::kArena) return;
    const Buffer& buffer = program_.buffers.at(static_cast<size_t>(slot.index));
    TensorType last = slot.type;
    last.offset += (program_.roles - 1) * slot.by_role;
    EPL_ASSERT(slot.type.extent_bytes() <= buffer.bytes && last.extent_bytes() <= buffer.bytes &&
                   last.offset >= 0,
               "a slot is larger than its buffer");
    EPL_ASSERT(buffer.offset >= 0 && buffer.offset + buffer.bytes <= program_.arena_bytes,
               "a buffer lies outside of the arena");
  }

  void verify_instructions() {
    std::set<std::tuple<int, Task::Kind, int>> ran;  // chunk, kind, micro batch
    next_call_ = 0;
    for (const auto& leaf : program_.leaves) {
      if (leaf.kind == PlanLeaf::Kind::kSeed && leaf.slot != kNoSlot) write(leaf.slot);
    }
    for (const auto& instruction : program_.instructions) {
      if (groups_.is_of_group(instruction)) {
        verify_group(instruction);
        continue;
      }
      switch (instruction.kind) {
        case Instruction::Kind::kLoad:
          load_leaves(instruction);
          loaded_.insert(instruction.micro_batch);
          break;
        case Instruction::Kind::kReceive:
          for (SlotId id : instruction.slots) write(id);
          break;
        case Instruction::Kind::kRun: {
          const Segment& segment = program_.segments.at(static_cast<size_t>(instruction.segment));
          const bool fresh =
              ran.insert({segment.chunk, segment.kind, instruction.micro_batch}).second;
          EPL_ASSERT(fresh || instruction.first_call != 0,
                     concat("micro batch ", instruction.micro_batch, " runs twice"));
          run_segment(instruction);
          break;
        }
        case Instruction::Kind::kSend:
          for (SlotId id : instruction.slots) read(id, "send");
          break;
        case Instruction::Kind::kFetch:
        case Instruction::Kind::kWait:
        case Instruction::Kind::kStore:
          near_.take(instruction);
          break;
        default:
          verify_end(instruction, ran.size() == tasks() && next_call_ == 0);
          break;
      }
    }
    EPL_ASSERT(updated_.size() == updated_at_end(), "a gradient is never updated");
    EPL_ASSERT(plan_.replicas * program_.devices == 1 || reduced_.size() + tied() == staying(),
               "a gradient is never reduced");
    groups_.check_all_taken(plan_.micro_batches);
    EPL_ASSERT(reduced_over_roles_.size() == tied(), "a tied gradient is never reduced");
    verify_owners();
    near_.check_all_stored();
    EPL_ASSERT(looked_at_ == plan_.scales_loss(),
               "the loss is scaled, and a program does not look whether its gradients are finite");
  }

  // What it works on is there when it sets out, and still when it is waited for.
  void verify_group(const Instruction& group) {
    for (SlotId id : group.slots) read(id, concat("group ", group.group));
    groups_.take(group);
  }

  size_t count_of(const std::function<bool(const PlanGradient&)>& wanted) const {
    return static_cast<size_t>(
        std::count_if(program_.gradients.begin(), program_.gradients.end(), wanted));
  }
  size_t staying() const {
    return count_of([](const PlanGradient& each) { return each.stays_to_the_end(); });
  }
  size_t updated_at_end() const {
    return count_of(
        [](const PlanGradient& each) { return each.stays != PlanGradient::Stays::kUntilUpdated; });
  }

  // Of the step, but for reductions, which may set out while the last micro batch is computed.
  void verify_end(const Instruction& instruction, bool all_ran) {
    const bool reduces = instruction.kind == Instruction::Kind::kReduce;
    const bool updates = instruction.kind == Instruction::Kind::kUpdate;
    EPL_ASSERT(all_ran || reduces, concat(updates ? "an update" : "the end of the step",
                                          " comes before the last micro batch"));
    for (int leaf : instruction.leaves) {
      EPL_ASSERT(leaf >= 0 && static_cast<size_t>(leaf) < program_.leaves.size(),
                 concat("leaf ", leaf, " of ", program_.leaves.size(), " is merged or gathered"));
    }
    for (int i : instruction.gradients) {
      const PlanGradient& gradient = program_.gradients.at(static_cast<size_t>(i));
      if (!gradient.stays_to_the_end()) continue;  // the worker has its sum
      read(gradient.slot, updates ? "update" : reduces ? "reduce" : "clip or finite");
    }
    if (instruction.kind == Instruction::Kind::kAwait) await_all();
    if (instruction.kind == Instruction::Kind::kClip) verify_clip(instruction);
    if (instruction.kind == Instruction::Kind::kFinite) verify_look(instruction);
    if (updates) verify_update(instruction);
    if (reduces) verify_reduction(instruction);
    if (instruction.kind == Instruction::Kind::kGather) verify_gather(instruction);
  }

  void await_all() {
    awaited_ = reduced_.size();
    for (const auto& [group, slots] : groups_.under_way()) {
      for (SlotId id : slots) read(id, concat("group ", group));
    }
    all_awaited_ = true;
  }

  void verify_reduction(const Instruction& reduce) {
    const bool over_roles = reduce.over == Instruction::Over::kRoles;
    for (int i : reduce.gradients) {
      for (int role = first_role_; role < first_role_ + program_.roles; ++role) {
        EPL_ASSERT(
            plan_.is_tied(role, i) == over_roles,
            concat("gradient ", i, " is tied and reduced over replicas, or the other way round"));
      }
      auto& reduced = over_roles ? reduced_over_roles_ : reduced_;
      EPL_ASSERT(reduced.insert(i).second, concat("gradient ", i, " is reduced twice"));
      sent_.insert(program_.gradients[static_cast<size_t>(i)].slot);
    }
  }

  void verify_clip(const Instruction& clip) {
    EPL_ASSERT(clip.gradients.size() == program_.gradients.size(),
               "gradients are clipped together, all of them");
    EPL_ASSERT(updated_at_end() == program_.gradients.size(),
               "gradients are clipped, and some are updated before");
    const bool each = clip.over == Instruction::Over::kReplica;
    clipped_ |= !each;
    EPL_ASSERT(!each || reduced_.empty(), "a replica clips gradients that have set out");
    EPL_ASSERT(each || awaited_ == reduced_.size(),
               "gradients are clipped before their sums are there");
  }

  // Clipping by value would make finite what is not.
  void verify_look(const Instruction& look) {
    EPL_ASSERT(look.gradients.size() == program_.gradients.size(),
               "all gradients are finite, or the step is skipped");
    EPL_ASSERT(awaited_ == reduced_.size(), "gradients are looked at before their sums are there");
    EPL_ASSERT(updated_.empty() && !clipped_,
               "gradients are looked at after they are clipped or updated");
    looked_at_ = true;
  }

  void verify_update(const Instruction& update) {
    EPL_ASSERT(awaited_ == reduced_.size() && (all_awaited_ || groups_.under_way().empty()),
               "an update comes before its gradients are there");
    near_.check_updated(update);
    for (int i : update.gradients) {
      EPL_ASSERT(updated_.insert(i).second, concat("gradient ", i, " is updated twice"));
    }
  }

  // Whoever does not update a parameter is brought what its owners have made of it.
  void verify_gather(const Instruction& gather) {
    EPL_ASSERT(updated_.size() == updated_at_end(),
               "parameters are gathered before they are updated");
    if (gather.over != Instruction::Over::kReplicas) return;
    gathered_.insert(gather.leaves.begin(), gather.leaves.end());
  }

  void verify_owners() const {
    for (size_t i = 0; i < program_.gradients.size(); ++i) {
      const PlanGradient& gradient = program_.gradients[i];
      if (gradient.owners.are_all()) continue;
      const bool spread = program_.leaves[static_cast<size_t>(gradient.leaf)].is_spread();
      EPL_ASSERT(spread == (gathered_.count(gradient.leaf) == 0),
                 concat("gradient ", i,
                        " has owners, whose updates nobody gathers, or is gathered "
                        "and spread"));
      EPL_ASSERT(!plan_.is_tied(first_role_, static_cast<int>(i)) &&
                     slot(gradient.slot).type.layout == c10::kStrided,
                 concat("gradient ", i, " is tied or sparse, and not all update it"));
    }
  }

  // Runs of the whole program.
  size_t tasks() const {
    if (plan_.schedule.stages.empty()) return static_cast<size_t>(plan_.micro_batches);
    return plan_.schedule.stages.at(static_cast<size_t>(program_.stage)).size();
  }

  // Gradients that are summed over roles as well: not by a reduce instruction.
  size_t tied() const {
    size_t count = 0;
    for (const auto& entry : plan_.tied) {
      for (const auto& each : entry) count += each.role == first_role_ ? 1 : 0;
    }
    return count;
  }

  void load_leaves(const Instruction& load) {
    for (size_t i = 0; i < program_.leaves.size(); ++i) {
      const SlotId slot = load.slots.empty() ? program_.leaves[i].slot : load.slots[i];
      if (slot != kNoSlot) write(slot);
    }
  }

  void run_segment(const Instruction& run) {
    const auto index = static_cast<size_t>(run.segment);
    const Segment& segment = program_.segments.at(index);
    const auto calls = static_cast<int>(segment.calls.size());
    const int end = std::min(run.end_call, calls);
    const bool loads = program_.reads_batch() && segment.chunk == 0;
    EPL_ASSERT(!loads || loaded_.count(run.micro_batch) != 0,
               concat("micro batch ", run.micro_batch, " runs before it is loaded"));
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
    if (outputs.loss != kNoSlot) read(outputs.loss, "loss");
    for (const auto& metric : outputs.metrics) read(metric.slot, "metric " + metric.name);
  }

  // Bytes of the arena belong to the buffer that was written there last. A slot may be read while
  // its buffer still has all of its own.
  void write(SlotId id) {
    EPL_ASSERT(sent_.count(id) == 0 && !groups_.is_under_way(id),
               concat("s", id, " is written while it is reduced"));
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
    if (source.where == Slot::Where::kLeaf) {
      near_.check_read(source.index, where);
      groups_.check_read(source.index, where);
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
  const int first_role_;
  NearVerifier near_;
  GroupVerifier groups_;
  std::map<int64_t, Owner> owners_;  // by first byte
  std::set<SlotId> made_;
  std::set<int> loaded_;   // micro batches
  std::set<SlotId> sent_;  // gradients whose reduction has started
  std::set<int> reduced_;
  std::set<int> reduced_over_roles_;
  std::set<int> updated_;
  std::set<int> gathered_;  // leaves, from their owners
  bool clipped_ = false;    // reduced gradients
  bool looked_at_ = false;  // reduced gradients, whether they are finite
  size_t awaited_ = 0;      // reductions, when somebody last waited for them
  bool all_awaited_ = false;
  int next_call_ = 0;  // of the segment that is running in pieces
};

// Both ends of a transfer speak of the same values.
class TransferVerifier final : public PlanVisitor {
 public:
  explicit TransferVerifier(const Plan& plan) : plan_(plan) {}

  void visit(size_t role, const Instruction& instruction, const Instruction* sent) override {
    if (instruction.kind == Instruction::Kind::kSend) {
      const Transfer& transfer = transfer_of(role, instruction);
      EPL_ASSERT(static_cast<size_t>(transfer.from) == role, "a role sends for another one");
    }
    if (sent != nullptr) match(*sent, instruction, role);
  }
  void visit(const EndPhase&) override {}

 private:
  const Transfer& transfer_of(size_t role, const Instruction& instruction) const {
    return plan_.transfers.at(static_cast<size_t>(plan_.role(role).transfer(instruction)));
  }

  void match(const Instruction& send, const Instruction& receive, size_t role) const {
    const Transfer& transfer = transfer_of(role, receive);
    EPL_ASSERT(static_cast<size_t>(transfer.to) == role, "a role receives for another one");
    EPL_ASSERT(
        send.slots.size() == transfer.items.size() && receive.slots.size() == transfer.items.size(),
        "a transfer has as many slots at both ends as values");
    for (size_t i = 0; i < transfer.items.size(); ++i) {
      const auto type_at = [&](int end, SlotId slot) {
        return plan_.role(static_cast<size_t>(end)).type(slot);
      };
      const TensorType there = type_at(transfer.from, send.slots[i]);
      const TensorType here = type_at(transfer.to, receive.slots[i]);
      EPL_ASSERT(there.dtype == here.dtype && there.sizes.size() == here.sizes.size() &&
                     (transfer.items[i].batch_dim >= 0 || there.sizes == here.sizes),
                 "a value is received as another type than it was sent as");
      verify_rows(transfer, transfer.items[i], there, here);
    }
  }

  // Each row of each receiving device comes once, from where the sender has it.
  void verify_rows(const Transfer& transfer, const Transfer::Item& item, const TensorType& there,
                   const TensorType& here) const {
    EPL_ASSERT((item.batch_dim >= 0) == !item.rows.empty(), "rows go along a dimension");
    if (item.batch_dim < 0) return;
    const auto dim = static_cast<size_t>(item.batch_dim);
    EPL_ASSERT(dim < here.sizes.size(), "rows go along a dimension that is there");
    const auto count = [&](int end) { return plan_.program_of(static_cast<size_t>(end)).devices; };
    std::vector<int64_t> received(static_cast<size_t>(count(transfer.to)), 0);
    for (const auto& rows : item.rows) {
      EPL_ASSERT(rows.from >= 0 && rows.from < count(transfer.from) && rows.to >= 0 &&
                     rows.to < count(transfer.to) && rows.count > 0 && rows.first >= 0 &&
                     rows.first + rows.count <= there.sizes[dim],
                 "rows are sent by a device that has them");
      int64_t& next = received[static_cast<size_t>(rows.to)];
      EPL_ASSERT(rows.place == next, "rows come one after the other");
      next += rows.count;
    }
    for (int64_t rows : received) EPL_ASSERT(rows == here.sizes[dim], "all rows come");
  }

  const Plan& plan_;
};

// A collective runs along an axis of its mesh, and has a piece for each device along it.
void verify_collective(const Call& call, const Mesh& mesh) {
  const std::string name = c10::toString(call.op.operator_name());
  const std::string_view axis = axis_of(call);
  const Axis* found = mesh.find(axis);
  EPL_ASSERT(found != nullptr,
             concat(name, " runs along axis \"", axis, "\" of a mesh ", mesh.str()));
  for (const auto& operand : call.operands) {
    if (!operand.constant.isIntList()) continue;
    const size_t pieces = operand.constant.toIntVector().size();
    EPL_ASSERT(static_cast<int>(pieces) == found->size,
               concat(name, " has ", pieces, " pieces for axis \"", axis, "\" of ", mesh.str()));
  }
}

std::vector<std::string> verified_collectives(const Program& program, const Mesh& mesh) {
  std::vector<std::string> calls;
  for (const auto& segment : program.segments) {
    for (const auto& call : segment.calls) {
      if (!runs_along_axis(call)) continue;
      verify_collective(call, mesh);
      calls.push_back(concat(call.op.operator_name().name, " ", axis_of(call)));
    }
  }
  return calls;
}

// Programs of one stage, each with its part of the operators, call the same collectives in the same
// order.
void verify_collectives(const Plan& plan) {
  std::map<int, std::vector<std::string>> by_stage;
  const std::vector<ProgramMesh> meshes = meshes_of(plan);
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    const Program& program = plan.programs[i];
    const std::vector<std::string> calls = verified_collectives(program, meshes[i].mesh);
    const auto known = by_stage.emplace(program.stage, calls).first;
    EPL_ASSERT(known->second == calls, concat("the parts of stage ", program.stage,
                                              " call different collectives, or in another order"));
  }
}

}  // namespace

void verify_plan(const Plan& plan) {
  int role = 0;
  for (const auto& program : plan.programs) {
    Verifier(plan, program, role).run();
    role += program.roles;
  }
  verify_collectives(plan);
  TransferVerifier transfers(plan);
  walk(plan, transfers);
}

}  // namespace epl

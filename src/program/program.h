// Plan: what runs, from the first row that is loaded to the last parameter that is updated.
// Programs over numbered slots, for the roles in the cluster.
//
//   slots          where each tensor lies: in the device's arena at a fixed place, in a tensor of
//                  the user's, or wherever the operator makes it (sparse tensors)
//   segments       lists of operator calls that run in one go
//   instructions   load a micro batch, run a segment, send to another stage of a pipeline and
//                  receive from it, reduce gradients over the replicas, fetch what is offloaded or
//                  lies on other workers; then the end of the step (program/step_end.h): report, merge state, clip, check,
//                  update, gather
//
// Every place in the arena is known before anything runs: places are shared by values that do not
// live at the same time, stay where they are across steps, and need no allocation. A Plan is const
// once it is made.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "layout/layout.h"
#include "layout/owners.h"
#include "layout/shard.h"
#include "layout/slice_merge.h"
#include "layout/tensor_type.h"
#include "program/schedule.h"

namespace epl {

using SlotId = int32_t;
inline constexpr SlotId kNoSlot = -1;

// Bytes of the arena that hold values which share memory.
struct Buffer {
  int64_t bytes = 0;
  int64_t offset = 0;  // from the arena's begin
};

// A tensor that the plan reads but does not make.
struct PlanLeaf {
  enum class Kind : uint8_t { kInput, kSeed, kTensor };

  Kind kind = Kind::kTensor;
  int index = 0;     // kInput: place in the batch
  std::string name;  // kTensor
  SlotId slot = kNoSlot;
  // Where the device has a part of it. Of roles that share the program the first has this one, each
  // further one the next.
  Shard shard = {};
  // It rests in a file (offload.level), and lies in memory from a kFetch to a kStore only; and so
  // do as many tensors of its size that its optimizer keeps.
  bool offloaded = false;
  int states = 0;
  // Workers of the role each keep a range of its elements (zero.level = "v2"), and the rest lies
  // in memory from a kFetch to a kStore only: so many bytes on the one that keeps least. 0 where
  // all of it is on each of them.
  int64_t others = 0;

  bool is_spread() const { return others > 0; }
  bool is_fetched() const { return offloaded || is_spread(); }
};

struct Slot {
  enum class Where : uint8_t { kArena, kLeaf, kMadeByOperator };

  Where where = Where::kArena;
  int index = 0;  // kArena: buffer; kLeaf: leaf
  TensorType type;
  // What the offset grows by from one role to the next that shares the program: its piece of a
  // leaf, or of a value that all of them have, is a view.
  int64_t by_role = 0;
};

struct Operand {
  enum class Kind : uint8_t { kConstant, kSlot, kList };

  Kind kind = Kind::kConstant;
  std::vector<SlotId> slots;
  c10::IValue constant;
  int64_t by_role = 0;  // what a constant integer grows by, as Slot::by_role
};

struct Call {
  // How results come into their slots.
  enum class Mode : uint8_t {
    kOut,      // the operator writes them there: it takes them after the operands
    kResult,   // the operator makes them; the executor sees to it that they lie there
    kInPlace,  // it writes its operands; results are those
    kNothing,  // nothing runs: whatever lies in the slots will do (aten::empty)
  };

  c10::OperatorHandle op;
  Mode mode = Mode::kResult;
  std::vector<Operand> operands;
  std::vector<SlotId> results;  // one a tensor, lists flat; kNoSlot: nobody reads it
  bool backward = false;
  int taskgraph = -1;
  std::optional<c10::IValue> expects;  // see Node::expects
  std::vector<SlotId> frees;  // tensors made by operators that nobody reads after this call
  // What its kernel holds meanwhile besides operands and results, as measured where the step was
  // recorded. No part of the text, in which plans of machines with other kernels are the same.
  int64_t workspace = 0;
};

struct Segment {
  std::string name;
  std::vector<Call> calls;
  // In a pipeline: which task it does.
  Task::Kind kind = Task::Kind::kForward;
  int chunk = 0;
};

// What an instruction costs one device, by estimate.
struct InstructionCost {
  // That it moves: what is loaded, sent or received; gradients that are reduced, clipped or
  // updated; leaves that are merged or gathered; what the calls of a run read and write.
  int64_t bytes = 0;
  double seconds = 0;
};

struct Instruction {
  enum class Kind : uint8_t {
    kLoad,
    kReceive,  // waits for what another stage sends, and puts it into its slots
    kRun,
    kSend,    // what was computed is copied and sets out; nobody waits
    kReduce,  // starts the sum of a group of gradients
    // Of gradients that do not stay (PlanGradient::Stays): among the runs, a device by itself.
    kUpdateEarly,  // once all devices have come here and their sum is there: updates parameters
    kAwaitGroup,   // until that is done: the places of these gradients may be taken
    // What is offloaded (PlanLeaf::offloaded): `leaves`, or the states that belong to them. Among
    // the runs a device does these by itself; those among updates belong to the update. Or what
    // other workers keep of leaves (PlanLeaf::others), among the runs alone: it is gathered when
    // all devices of the role have come to the fetch.
    kFetch,  // starts to bring them into memory, ahead of their use; nobody waits
    kWait,   // until they are there
    kStore,  // they may go: nobody uses them before the next fetch
    // The end of the step. All devices of a worker take part in each of these together.
    kReport,  // loss and metrics of all micro batches and replicas become one
    kMerge,   // what devices wrote into state (`leaves`) becomes one
    kAwait,   // until all sums that were started are there
    kClip,
    kCheck,  // ends the step without an update where its loss is not finite
    // Where the loss is scaled (amp.level): looks whether all reduced gradients are finite, which
    // all devices and workers agree about; ends the step without an update where some are not.
    kFinite,
    kUpdate,
    kGather,  // parameters (`leaves`) that others update come from their workers
  };
  // Whose gradients are added up (kReduce), or clipped together (kClip); whose updates are gathered
  // (kGather).
  enum class Over : uint8_t {
    kReplicas,  // kReduce: of all devices of the role. kGather: of its other owners
    kRoles,     // kReduce: of all roles that use a parameter as well: it is tied. kGather: of those
    kReplica,   // kClip: of one replica, before they are reduced
    kAll,       // kClip: those that are reduced
  };

  Kind kind = Kind::kRun;
  // kLoad, kReceive, kRun, kSend; kReduce of gradients that do not stay
  int micro_batch = 0;
  int segment = 0;              // kRun
  Over over = Over::kReplicas;  // kReduce, kClip, kGather
  // kReduce, kUpdateEarly, kAwaitGroup, kClip, kFinite, kUpdate: indices into Program::gradients
  std::vector<int> gradients;
  // kMerge, kGather, kFetch, kWait, kStore: indices into Program::leaves
  std::vector<int> leaves;
  bool states = false;  // kFetch, kWait, kStore: not the leaves, but their states
  int first_call = 0;   // kRun: the calls [first_call, end_call) of the segment
  int end_call = kToTheEnd;
  int group = 0;  // kReduce, kUpdateEarly, kAwaitGroup: its number in the order of their starts
  // kSend, kReceive: index into Plan::transfers. Each further role of the program has the next.
  int transfer = 0;
  // kSend, kReceive: one for each of the transfer's values. kLoad: one for each leaf, where a micro
  // batch does not lie at the leaves' own places; kNoSlot for what is not loaded. kReduce,
  // kUpdateEarly, kAwaitGroup of gradients that do not stay: where each lies in this micro batch.
  std::vector<SlotId> slots;
  InstructionCost cost;  // stamped by the planner

  static constexpr int kToTheEnd = std::numeric_limits<int>::max();
};

// Whether it brings what is not in memory throughout, or lets it go.
inline bool is_of_offload(Instruction::Kind kind) {
  return kind == Instruction::Kind::kFetch || kind == Instruction::Kind::kWait ||
         kind == Instruction::Kind::kStore;
}

// What one task of a pipeline hands to another one, for each micro batch.
struct Transfer {
  // What a device of the sender has of the rows of a device of the receiver, counted in one
  // replica.
  struct Rows {
    int from = 0;  // devices of their role
    int to = 0;
    int64_t first = 0;  // in what the sender has
    int64_t place = 0;  // in what the receiver has
    int64_t count = 0;
  };
  struct Item {
    // Along which dimension sender and receiver cut the rows of a micro batch over their devices;
    // -1 where both cut them alike, so that each device has one peer, which takes all.
    int batch_dim = -1;
    std::vector<Rows> rows = {};  // who sends which of them to whom
  };

  int from = 0;  // roles
  int to = 0;
  std::string name;  // "forward 0 to forward 1"
  std::vector<Item> items;
};

struct PlanMetric {
  std::string collection;
  std::string name;
  SlotId slot = kNoSlot;
};

struct PlanGradient {
  // How long what a device has computed stays in its arena.
  enum class Stays : uint8_t {
    kToTheEnd,
    // What all devices have of a micro batch is added to a sum that the worker keeps, of the
    // elements that it owns (zero.level = "v1").
    kUntilSummed,
    kUntilUpdated,  // the parameter is updated at once (optimizer.update_early)
  };

  int leaf = 0;  // the parameter
  SlotId slot = kNoSlot;
  // Which of the workers that have the role update it. Where not all do, its sum comes to those,
  // and what they have made of the parameter to the others.
  Owners owners = {};
  Stays stays = Stays::kToTheEnd;

  bool stays_to_the_end() const { return stays == Stays::kToTheEnd; }
};

// What a segment leaves to be read. Micro batches other than the first have slots of their own.
struct SegmentOutputs {
  SlotId loss = kNoSlot;
  std::vector<PlanMetric> metrics;
};

// What a role runs, and the memory that it runs in. Devices that do the same work share a Program:
// those of a role, which have other rows, and roles one behind the other whose operators are cut
// alike. What differs from role to role is said by `by_role`, and by the shards of leaves.
struct Program {
  std::vector<Instruction> instructions;
  std::vector<PlanLeaf> leaves;
  std::vector<Slot> slots;
  std::vector<Buffer> buffers;
  std::vector<Segment> segments;
  std::vector<SegmentOutputs> outputs;  // one a segment
  std::vector<PlanGradient> gradients;  // accumulated over the micro batches when kUpdate runs
  std::vector<int> written_leaves;      // state that the segments change
  bool has_guards = false;  // a run may end in GuardFailed: a value or shape is not as recorded
  // How far a number that C++ read may be from the recorded one. Where operators are cut over
  // devices sums have another order than in the recorded run.
  double guard_tolerance = 0;
  int64_t arena_bytes = 0;
  int roles = 1;    // that share it
  int devices = 1;  // of one role of one replica: each takes one part of its micro batch
  int stage = 0;    // in the schedule; where operators are cut over devices several have the same

  // Whether it reads the batch: in a pipeline the first stage does.
  bool reads_batch() const {
    return std::any_of(instructions.begin(), instructions.end(), [](const Instruction& each) {
      return each.kind == Instruction::Kind::kLoad;
    });
  }
};

// A role: who runs a Program.
struct PlanRole {
  PlanRole(const Program& runs, int number = 0)  // NOLINT: one that has a program alone
      : program(runs), index(number) {}

  const Program& program;
  int index;  // among those that share the program

  // What this role has where the program says it of the first.
  Shard shard(int leaf) const;
  TensorType type(SlotId slot) const;
  c10::IValue constant(const Operand& operand) const;
  int transfer(const Instruction& instruction) const { return instruction.transfer + index; }
};

// The loss or a metric of a step: how what devices and micro batches have of it becomes one.
struct PlanOutput {
  std::string collection;  // of a metric
  std::string name;
  int role = 0;                          // that computes it; of several the last
  int devices = 1;                       // of one replica that have it
  bool all_alike = false;                // each of them has that of all rows of the micro batch
  SliceMerge merge = SliceMerge::kMean;  // else: of their rows, to that of all
  int batch_dim = -1;                    // kConcat

  // Devices of a replica that have rows of their own.
  int slices() const { return all_alike ? 1 : devices; }
};

struct Plan {
  // In the order of the roles that run them. Roles: in a pipeline one a stage, and one a device
  // where operators are cut over devices.
  std::vector<Program> programs;
  // How operators and parameters are cut, and what is not: for whoever reads the plan.
  std::vector<std::string> remarks;
  std::vector<Transfer> transfers;
  Schedule schedule;  // of a pipeline; without stages where there is none
  // Parameters that several roles have a gradient of, each its own uses: the sum counts. Each entry
  // names the gradients of one parameter.
  struct TiedGradient {
    int role = 0;
    int gradient = 0;
  };
  std::vector<std::vector<TiedGradient>> tied;
  bool is_tied(int role, int gradient) const {
    return std::any_of(tied.begin(), tied.end(), [&](const auto& entry) {
      return std::any_of(entry.begin(), entry.end(), [&](const TiedGradient& each) {
        return each.role == role && each.gradient == gradient;
      });
    });
  }
  int micro_batches = 1;
  int replicas = 1;  // model replicas in the whole cluster; each has every role
  // The gradient of the loss of one micro batch on one device: its share in that of the step.
  double seed = 1;
  // The loss of the step is the sum of what all micro batches and devices have, over this.
  double loss_parts = 1;
  PlanOutput loss;
  std::vector<PlanOutput> metrics;

  // Whether the seed is multiplied by the loss scale of a step, and gradients divided by it.
  bool scales_loss() const {
    return !programs.empty() &&
           std::any_of(
               programs[0].instructions.begin(), programs[0].instructions.end(),
               [](const Instruction& each) { return each.kind == Instruction::Kind::kFinite; });
  }
  bool has_guards() const {
    return std::any_of(programs.begin(), programs.end(),
                       [](const Program& program) { return program.has_guards; });
  }
  // Of one replica.
  size_t roles() const {
    return std::accumulate(
        programs.begin(), programs.end(), size_t{0},
        [](size_t sum, const Program& each) { return sum + static_cast<size_t>(each.roles); });
  }
  PlanRole role(size_t number) const;
  const Program& program_of(size_t role) const { return this->role(role).program; }
  // Devices of one replica, in all roles.
  int devices_of_replica() const {
    return std::accumulate(programs.begin(), programs.end(), 0, [](int sum, const Program& each) {
      return sum + each.roles * each.devices;
    });
  }
};

// Calls visit(SlotId) for each slot that the call reads (operands) or makes (results).
template <typename Visit>
void for_each_operand(const Call& call, Visit visit) {
  for (const auto& operand : call.operands) {
    for (SlotId slot : operand.slots) {
      if (slot != kNoSlot) visit(slot);
    }
  }
}

template <typename Visit>
void for_each_result(const Call& call, Visit visit) {
  for (SlotId slot : call.results) {
    if (slot != kNoSlot) visit(slot);
  }
}

}  // namespace epl

// For tests: small Plans, and all that a Plan holds as one text.
#pragma once

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "layout/constant_text.h"
#include "program/program.h"

namespace epl::test_plan {

inline TensorType type(std::vector<int64_t> sizes, c10::Layout layout = c10::kStrided) {
  TensorType result;
  result.layout = layout;
  if (layout == c10::kStrided) result.strides = contiguous_strides(sizes);
  result.sizes = std::move(sizes);
  return result;
}

inline Slot in_arena(int buffer, std::vector<int64_t> sizes) {
  return {Slot::Where::kArena, buffer, type(std::move(sizes))};
}

inline Operand slots(std::vector<SlotId> ids, Operand::Kind kind = Operand::Kind::kSlot) {
  return {kind, std::move(ids), {}};
}

inline Operand constant(c10::IValue value) {
  return {Operand::Kind::kConstant, {}, std::move(value)};
}

inline Call call(const char* name, const char* overload, std::vector<Operand> operands,
                 std::vector<SlotId> results) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  Call made{op, Call::Mode::kResult, std::move(operands), std::move(results), false, -1, {}, {}};
  return made;
}

inline Instruction instruction(Instruction::Kind kind, int micro_batch, int segment = 0) {
  Instruction made;
  made.kind = kind;
  made.micro_batch = micro_batch;
  made.segment = segment;
  return made;
}

inline Instruction update(std::vector<int> gradients) {
  Instruction made = instruction(Instruction::Kind::kUpdate, 0);
  made.gradients = std::move(gradients);
  return made;
}

inline constexpr auto kLoad = Instruction::Kind::kLoad;
inline constexpr auto kRun = Instruction::Kind::kRun;

// Two parameters; the gradient of "table" is sparse. s4 and s6 share bytes 64 to 128; s10 is a view
// of "w", s11 one of s4.
inline Plan good_plan() {
  Program program;
  program.arena_bytes = 256;
  program.buffers = {{16, 0}, {16, 64}, {4, 128}, {16, 64}, {16, 192}};
  program.leaves = {{PlanLeaf::Kind::kInput, 0, "", 0},
                    {PlanLeaf::Kind::kSeed, 0, "", 1},
                    {PlanLeaf::Kind::kTensor, 0, "w", 2},
                    {PlanLeaf::Kind::kTensor, 0, "table", 3},
                    {PlanLeaf::Kind::kTensor, 0, "unused", kNoSlot}};
  program.slots = {in_arena(0, {4}),
                   {Slot::Where::kLeaf, 1, type({})},
                   {Slot::Where::kLeaf, 2, type({4})},
                   {Slot::Where::kLeaf, 3, type({4})},
                   in_arena(1, {4}),
                   in_arena(2, {}),
                   in_arena(3, {4}),
                   in_arena(4, {4}),
                   {Slot::Where::kMadeByOperator, 0, type({4}, c10::kSparse)},
                   {Slot::Where::kMadeByOperator, 0, type({4}, c10::kSparse)},
                   {Slot::Where::kLeaf, 2, type({2, 2})},
                   in_arena(1, {2})};
  Segment step;
  step.name = "step";
  step.calls = {
      call("aten::mul", "Tensor", {slots({0}), slots({2})}, {4}),
      call("aten::sum", "", {slots({11}), constant({})}, {5}),
      call("aten::cat", "", {slots({0, 10}, Operand::Kind::kList), constant(0)}, {kNoSlot}),
      call("aten::relu", "", {slots({0})}, {6}),
      call("aten::neg", "", {slots({6})}, {7}),
      call("aten::to_sparse", "", {slots({3})}, {8}),
      call("aten::neg", "", {slots({8})}, {9}),
      call("aten::_local_scalar_dense", "", {slots({5})}, {}),
  };
  step.calls[0].taskgraph = 1;
  step.calls[4].backward = true;
  step.calls[6].backward = true;
  step.calls[6].taskgraph = 0;
  step.calls[6].frees = {8};
  step.calls[7].expects = c10::IValue(0.5);
  program.segments = {step};
  program.outputs = {{5, {{"GLOBAL_MEAN", "accuracy", 5}}}};
  program.gradients = {{2, 7}, {3, 9}};
  program.instructions = {instruction(kLoad, 0), instruction(kRun, 0), update({0}), update({1})};
  program.has_guards = true;
  Plan plan;
  plan.programs.push_back(std::move(program));
  return plan;
}

// Two stages, each with the good program; the first hands two values to the second, which has a
// gradient of the same parameter.
inline Plan pipeline_plan() {
  Plan plan = good_plan();
  plan.programs.push_back(plan.programs[0]);
  plan.programs[1].stage = 1;
  plan.micro_batches = 2;
  plan.replicas = 2;
  plan.remarks = {"`w` is whole", "(of 2 notes)"};
  plan.schedule.strategy = "PreferBackward";
  plan.schedule.micro_batches = 2;
  plan.schedule.stage_of_chunk = {0, 1};
  plan.schedule.in_flight = {2, 1};
  const auto forward = Task::Kind::kForward;
  const auto backward = Task::Kind::kBackward;
  plan.schedule.stages = {{{forward, 0, 0}, {forward, 0, 1}, {backward, 0, 0}, {backward, 0, 1}},
                          {{forward, 1, 0}, {backward, 1, 0}, {forward, 1, 1}, {backward, 1, 1}}};
  plan.transfers = {{0, 1, "forward 0 to forward 1", {{-1}, {-1}}}};
  plan.tied = {{{0, 0}, {1, 0}}};
  plan.loss.role = 1;
  plan.seed = 0.25;
  plan.loss_parts = 4;
  plan.metrics.resize(1);
  plan.metrics[0].collection = "GLOBAL_MEAN";
  plan.metrics[0].name = "accuracy";
  for (const auto kind : {Instruction::Kind::kSend, Instruction::Kind::kReceive}) {
    Instruction move = instruction(kind, 0);
    move.slots = {4, 7};
    auto& program = plan.programs[kind == Instruction::Kind::kSend ? 0 : 1];
    program.instructions.push_back(move);
  }
  return plan;
}

// --- all that there is, read from the structure
// ----------------------------------------------------

inline std::string describe(const c10::IValue& constant) {
  std::string kind = constant.tagKind();
  if (constant.isList()) kind += " of " + constant.toList().elementType()->str();
  return kind + " " + print_constant(constant);
}

inline std::string describe(const Call& call) {
  std::string text =
      concat(c10::toString(call.op.operator_name()), " mode ", static_cast<int>(call.mode),
             " backward ", call.backward, " taskgraph ", call.taskgraph, " results ",
             join(call.results, ","), " frees ", join(call.frees, ","));
  for (const auto& operand : call.operands) {
    text += concat("; ", static_cast<int>(operand.kind), " ", join(operand.slots, ","), " ",
                   describe(operand.constant), " ", operand.by_role);
  }
  return call.expects ? text + " expects " + describe(*call.expects) : text;
}

inline std::string describe(const Instruction& each) {
  return concat(static_cast<int>(each.kind), " micro batch ", each.micro_batch, " segment ",
                each.segment, " over ", static_cast<int>(each.over), " gradients ",
                join(each.gradients, ","), " leaves ", join(each.leaves, ","), " states ",
                each.states, " calls ", each.first_call, " ", each.end_call, " group ", each.group,
                " transfer ", each.transfer, " slots ", join(each.slots, ","), " cost ",
                each.cost.bytes, " ", print_constant(each.cost.seconds));
}

// Whether a leaf, a call, an output, a gradient or an instruction names the slot.
inline bool is_named(const Program& program, SlotId id) {
  bool named = false;
  const auto look = [&](SlotId other) { named |= other == id; };
  for (const auto& leaf : program.leaves) look(leaf.slot);
  for (const auto& segment : program.segments) {
    for (const auto& call : segment.calls) {
      for_each_operand(call, look);
      for_each_result(call, look);
      for (SlotId freed : call.frees) look(freed);
    }
  }
  for (const auto& outputs : program.outputs) {
    look(outputs.loss);
    for (const auto& metric : outputs.metrics) look(metric.slot);
  }
  for (const auto& gradient : program.gradients) look(gradient.slot);
  for (const auto& instruction : program.instructions) {
    for (SlotId each : instruction.slots) look(each);
  }
  return named;
}

// Slots that nothing names are left out, as in the text.
inline std::string describe(const Program& program) {
  std::ostringstream out;
  for (const auto& each : program.instructions) out << describe(each) << "\n";
  for (const auto& leaf : program.leaves) {
    out << "leaf " << static_cast<int>(leaf.kind) << " " << leaf.index << " " << leaf.name << " s"
        << leaf.slot << " " << leaf.shard.dim << " " << leaf.shard.piece.begin << " "
        << leaf.shard.piece.length << " " << leaf.shard.whole << " " << leaf.offloaded << " "
        << leaf.states << " " << leaf.others << "\n";
  }
  for (size_t i = 0; i < program.slots.size(); ++i) {
    if (!is_named(program, static_cast<SlotId>(i))) continue;
    const Slot& slot = program.slots[i];
    out << "s" << i << " " << static_cast<int>(slot.where) << " " << slot.index << " "
        << slot.type.dtype << " " << slot.type.layout << " " << join(slot.type.sizes, ",") << " "
        << join(slot.type.strides, ",") << " " << slot.type.offset << " " << slot.by_role << "\n";
  }
  for (const auto& buffer : program.buffers) {
    out << "buffer " << buffer.bytes << " " << buffer.offset << "\n";
  }
  for (const auto& segment : program.segments) {
    out << segment.name << " " << static_cast<int>(segment.kind) << " " << segment.chunk << "\n";
    for (const auto& call : segment.calls) out << describe(call) << "\n";
  }
  for (const auto& outputs : program.outputs) {
    out << "loss " << outputs.loss;
    for (const auto& m : outputs.metrics) out << ", " << m.collection << " " << m.name << m.slot;
    out << "\n";
  }
  for (const auto& each : program.gradients) {
    out << "gradient " << each.leaf << each.slot << print_owners(each.owners) << " stays "
        << static_cast<int>(each.stays) << "\n";
  }
  out << "writes " << join(program.written_leaves, ",") << " guards " << program.has_guards << " "
      << print_constant(program.guard_tolerance) << " arena " << program.arena_bytes << " devices "
      << program.devices << " roles " << program.roles << " stage " << program.stage << "\n";
  return out.str();
}

inline std::string describe(const Schedule& schedule) {
  std::ostringstream out;
  out << schedule.strategy << " " << schedule.micro_batches << " " << schedule.splits_backward
      << " chunks " << join(schedule.stage_of_chunk, ",") << " in flight "
      << join(schedule.in_flight, ",") << "\n";
  for (const auto& tasks : schedule.stages) {
    for (const auto& task : tasks) out << str(task) << "; ";
    out << "\n";
  }
  return out.str();
}

inline std::string describe(const PlanOutput& output) {
  return concat(output.collection, " ", output.name, " role ", output.role, " devices ",
                output.devices, output.all_alike ? " alike " : " ", static_cast<int>(output.merge),
                " ", output.batch_dim, "\n");
}

inline std::string describe(const Plan& plan) {
  std::ostringstream out;
  out << join(plan.remarks, "\n") << "\n" << describe(plan.schedule);
  for (const auto& transfer : plan.transfers) {
    out << transfer.name << " " << transfer.from << " " << transfer.to;
    for (const auto& item : transfer.items) {
      out << " " << item.batch_dim;
      for (const auto& rows : item.rows) {
        out << " [" << rows.from << " " << rows.to << " " << rows.first << " " << rows.place << " "
            << rows.count << "]";
      }
    }
    out << "\n";
  }
  for (const auto& gradients : plan.tied) {
    for (const auto& each : gradients) out << each.role << "." << each.gradient << " ";
    out << "\n";
  }
  out << plan.micro_batches << " " << plan.replicas << " " << print_constant(plan.seed) << " "
      << print_constant(plan.loss_parts) << "\n"
      << describe(plan.loss);
  for (const auto& metric : plan.metrics) out << describe(metric);
  for (const auto& program : plan.programs) out << describe(program);
  return out.str();
}

}  // namespace epl::test_plan

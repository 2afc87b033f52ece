#include "program/memory_profile.h"

#include <gtest/gtest.h>

#include "program/test_plan.h"

namespace epl {
namespace {

using test_plan::call;
using test_plan::in_arena;
using test_plan::instruction;
using test_plan::kLoad;
using test_plan::kRun;
using test_plan::slots;

Call backward(Call made) {
  made.backward = true;
  return made;
}

Call with_workspace(Call made, int64_t bytes) {
  made.workspace = bytes;
  return made;
}

// x is loaded; a = relu(x) is saved for backward; b = neg(a) dies with the loss; the gradient is
// made of a. Buffers by value: x 0, a 1, b 2, loss 3, gradient 4.
Program small_program() {
  Program program;
  program.arena_bytes = 4096;
  program.buffers = {{400, 0}, {800, 448}, {1200, 1280}, {4, 2496}, {800, 2560}};
  program.leaves = {{PlanLeaf::Kind::kInput, 0, "", 0}, {PlanLeaf::Kind::kTensor, 0, "w", 5}};
  program.slots = {in_arena(0, {100}), in_arena(1, {200}),
                   in_arena(2, {300}), in_arena(3, {}),
                   in_arena(4, {200}), {Slot::Where::kLeaf, 1, test_plan::type({200})}};
  Segment step;
  step.name = "step";
  step.calls = {call("aten::relu", "", {slots({0})}, {1}), call("aten::neg", "", {slots({1})}, {2}),
                call("aten::sum", "", {slots({2})}, {3}),
                backward(call("aten::neg", "", {slots({1})}, {4}))};
  program.segments = {step};
  program.outputs = {{3, {}}};
  program.gradients = {{1, 4}};
  program.instructions = {instruction(kLoad, 0), instruction(kRun, 0), test_plan::update({0})};
  return program;
}

TEST(MemoryProfile, TellsKindsAtThePeak) {
  const MemoryProfile profile = profile_memory(small_program());
  EXPECT_EQ(profile.bytes[MemoryKind::kBatch], 0) << "read for the last time by the first call";
  EXPECT_EQ(profile.bytes[MemoryKind::kSaved], 800);
  EXPECT_EQ(profile.bytes[MemoryKind::kTemporary], 1204);
  EXPECT_EQ(profile.bytes[MemoryKind::kGradients], 0);
  EXPECT_EQ(profile.bytes[MemoryKind::kFragmentation], 4096 - 2004);
  EXPECT_EQ(profile.peak_at, "aten::sum, forward of micro batch 0");
  EXPECT_EQ(profile.workspace_at, "");
}

TEST(MemoryProfile, AddsUpToTheArenaAndTheLargestWorkspace) {
  Program program = small_program();
  program.segments[0].calls[0] = with_workspace(program.segments[0].calls[0], 100);
  program.segments[0].calls[3] = with_workspace(program.segments[0].calls[3], 700);
  const MemoryProfile profile = profile_memory(program);
  EXPECT_EQ(profile.bytes[MemoryKind::kWorkspace], 700);
  EXPECT_EQ(profile.bytes.total(), 4096 + 700);
  EXPECT_EQ(profile.workspace_at, "aten::neg, backward of micro batch 0");
}

TEST(MemoryProfile, KeepsGradientsToTheEnd) {
  Program program = small_program();
  program.segments[0].calls[2].operands = {slots({1})};  // b dies at once
  program.buffers[2].bytes = 4;
  program.slots[2] = in_arena(2, {});
  const MemoryProfile profile = profile_memory(program);
  EXPECT_EQ(profile.bytes[MemoryKind::kSaved], 800);
  EXPECT_EQ(profile.bytes[MemoryKind::kGradients], 800);
  EXPECT_EQ(profile.peak_at, "aten::neg, backward of micro batch 0");
}

// What is written into a part of a buffer lies beside the rest of it.
TEST(MemoryProfile, KnowsThatAPartIsWrittenBesideTheRest) {
  Program program = small_program();
  program.slots.push_back(in_arena(1, {10}));
  const auto part = static_cast<SlotId>(program.slots.size() - 1);
  program.segments[0].calls[2].results = {part};
  program.outputs = {{kNoSlot, {}}};
  EXPECT_EQ(profile_memory(program).bytes[MemoryKind::kSaved], 800);
}

// A micro batch that is in flight while the next one is loaded lives as well.
TEST(MemoryProfile, CountsWhatStaysFromRunToRun) {
  Program program = small_program();
  program.buffers.insert(program.buffers.end(), {{400, 3392}, {200, 3840}});
  program.slots.push_back(in_arena(5, {100}));
  const auto received = static_cast<SlotId>(program.slots.size() - 1);
  Instruction receive = instruction(Instruction::Kind::kReceive, 1);
  receive.slots = {received};
  Segment late;
  late.name = "late";
  late.calls = {call("aten::neg", "", {slots({received})}, {kNoSlot})};
  program.segments.push_back(late);
  program.outputs.push_back({kNoSlot, {}});
  program.instructions = {instruction(kLoad, 0), receive, instruction(kRun, 0),
                          instruction(kRun, 1, 1), test_plan::update({0})};
  EXPECT_EQ(profile_memory(program).bytes[MemoryKind::kTemporary], 1204 + 400);
}

Instruction moves(Instruction::Kind kind, bool states) {
  Instruction made = instruction(kind, 0);
  made.leaves = {1};
  made.states = states;
  return made;
}

// A parameter of one page and two states rest in a file. When they are fetched for the update, what
// was stored behind the run may still be there.
TEST(MemoryProfile, HasWhatIsNearAndThePhasesOverTime) {
  Program program = small_program();
  program.leaves[1].states = 2;
  const auto fetch = Instruction::Kind::kFetch;
  const auto store = Instruction::Kind::kStore;
  program.instructions = {instruction(kLoad, 0),  moves(fetch, false), instruction(kRun, 0),
                          moves(store, false),    moves(fetch, false), moves(fetch, true),
                          test_plan::update({0}), moves(store, false), moves(store, true)};
  const MemoryProfile profile = profile_memory(program);
  std::vector<int64_t> near;
  for (const MemoryBytes& each : profile.over_time) near.push_back(each[MemoryKind::kWindows]);
  EXPECT_EQ(near, (std::vector<int64_t>{0, 0, 4096, 4096, 4096, 4096, 4 * 4096}));
  EXPECT_EQ(profile.over_time.back()[MemoryKind::kGradients], 800);
  EXPECT_EQ(profile.bytes[MemoryKind::kWindows], 0) << "counted once, for the worker";
  std::string phases;
  for (const auto& each : profile.phases) phases += concat(each.name, " ", each.begin, "\n");
  EXPECT_EQ(phases, "forward 0\nbackward 5\nupdate 6\n");
}

}  // namespace
}  // namespace epl

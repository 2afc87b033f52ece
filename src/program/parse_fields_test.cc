// No field of a Plan is lost in its text: each one that is changed changes the text, and comes back
// from it.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "program/parse.h"
#include "program/test_plan.h"
#include "program/text.h"

namespace epl {
namespace {

using namespace test_plan;

struct Change {
  const char* name;
  std::function<void(Plan&)> change;
};

std::function<void(Plan&)> of_program(void (*change)(Program&)) {
  return [change](Plan& plan) { change(plan.programs[1]); };
}
std::function<void(Plan&)> of_call(size_t index, void (*change)(Call&)) {
  return [=](Plan& plan) { change(plan.programs[1].segments[0].calls[index]); };
}
std::function<void(Plan&)> of_instruction(size_t index, void (*change)(Instruction&)) {
  return [=](Plan& plan) { change(plan.programs[1].instructions[index]); };
}
std::function<void(Plan&)> of_leaf(size_t index, void (*change)(PlanLeaf&)) {
  return [=](Plan& plan) { change(plan.programs[1].leaves[index]); };
}
std::function<void(Plan&)> of_slot(size_t index, void (*change)(Slot&)) {
  return [=](Plan& plan) { change(plan.programs[1].slots[index]); };
}
std::function<void(Plan&)> of_schedule(void (*change)(Schedule&)) {
  return [=](Plan& plan) { change(plan.schedule); };
}

// Where the good program has them.
enum Instructions : size_t { kFirstLoad, kFirstRun, kFirstUpdate, kSecondUpdate, kMove };
enum Calls : size_t { kMul, kSum, kCat, kRelu, kNeg, kToSparse, kSparseNeg, kRead };

const Change kChanges[] = {
    // The plan.
    {"Programs", [](Plan& p) { p.programs.push_back(p.programs[1]); }},
    {"Roles", [](Plan& p) { p.programs[1].roles = 3; }},
    {"Remarks", [](Plan& p) { p.remarks.pop_back(); }},
    {"RemarkOfSeveralLines", [](Plan& p) { p.remarks[0] = "a\n\"b\""; }},
    {"RemarkOfNothing", [](Plan& p) { p.remarks[0] = ""; }},
    {"MicroBatches", [](Plan& p) { p.micro_batches = 3; }},
    {"Replicas", [](Plan& p) { p.replicas = 1; }},
    {"Seed", [](Plan& p) { p.seed = 1.0 / 3; }},
    {"LossParts", [](Plan& p) { p.loss_parts = 2; }},
    {"LossRole", [](Plan& p) { p.loss.role = 0; }},
    {"LossDevices", [](Plan& p) { p.loss.devices = 2; }},
    {"LossOfDevicesAlike",
     [](Plan& p) {
       p.loss.devices = 2;
       p.loss.all_alike = true;
     }},
    {"LossMerge", [](Plan& p) { p.loss.merge = SliceMerge::kSum; }},
    {"NoMetrics", [](Plan& p) { p.metrics.clear(); }},
    {"OneMetricMore", [](Plan& p) { p.metrics.push_back(p.metrics[0]); }},
    {"MergedMetricName", [](Plan& p) { p.metrics[0].name = "a \"b\""; }},
    {"MergedMetricCollection", [](Plan& p) { p.metrics[0].collection = ""; }},
    {"MetricRole", [](Plan& p) { p.metrics[0].role = 1; }},
    {"MetricMerge",
     [](Plan& p) {
       p.metrics[0].merge = SliceMerge::kConcat;
       p.metrics[0].batch_dim = 1;
     }},
    {"TransferFrom", [](Plan& p) { p.transfers[0].from = 1; }},
    {"TransferTo", [](Plan& p) { p.transfers[0].to = 0; }},
    {"TransferName", [](Plan& p) { p.transfers[0].name = "weights 0 to forward 1"; }},
    {"TransferNameInQuotes", [](Plan& p) { p.transfers[0].name = "a, role \"0\""; }},
    {"TransferItems", [](Plan& p) { p.transfers[0].items.pop_back(); }},
    {"TransferBatchDim", [](Plan& p) { p.transfers[0].items[1].batch_dim = 0; }},
    {"TransferRows",
     [](Plan& p) {
       p.transfers[0].items[1].batch_dim = 1;
       p.transfers[0].items[1].rows = {{0, 1, 2, 3, 4}, {1, 0, 5, 6, 7}};
     }},
    {"NoTransfers",
     [](Plan& p) {
       p.transfers.clear();
       for (auto& program : p.programs) program.instructions.pop_back();
     }},
    {"TiedRole", [](Plan& p) { p.tied[0][0].role = 1; }},
    {"TiedGradient", [](Plan& p) { p.tied[0][1].gradient = 1; }},
    {"TiedNothing",
     [](Plan& p) {
       p.tied = {{}, {{0, 1}}};
     }},
    {"NothingTied", [](Plan& p) { p.tied.clear(); }},
    // The schedule.
    {"NoSchedule", [](Plan& p) { p.schedule = {}; }},
    {"Strategy", of_schedule([](Schedule& s) { s.strategy = "PreferForward"; })},
    {"StrategyInQuotes", of_schedule([](Schedule& s) { s.strategy = "program 0"; })},
    {"ScheduleMicroBatches", of_schedule([](Schedule& s) {
       s.micro_batches = 1;
       for (auto& tasks : s.stages) {
         const auto second = [](const Task& task) { return task.micro_batch == 1; };
         tasks.erase(std::remove_if(tasks.begin(), tasks.end(), second), tasks.end());
       }
     })},
    {"SplitsBackward", of_schedule([](Schedule& s) { s.splits_backward = true; })},
    {"StageOfChunk", of_schedule([](Schedule& s) {
       s.stage_of_chunk = {1, 0};
     })},
    {"MoreChunks", of_schedule([](Schedule& s) {
       const auto both = [&](Task::Kind kind, int chunk) {
         for (int i : {0, 1}) s.stages[chunk == 1 ? 1 : 0].push_back({kind, chunk, i});
       };
       s.stages.assign(2, {});
       for (int chunk : {0, 1, 2}) both(Task::Kind::kForward, chunk);
       for (int chunk : {2, 1, 0}) both(Task::Kind::kBackward, chunk);
       s.stage_of_chunk = {0, 1, 0};
     })},
    {"TaskKind", of_schedule([](Schedule& s) {
       s.stages[0].push_back({Task::Kind::kWeights, 0, 1});
     })},
    {"TaskChunk", of_schedule([](Schedule& s) { std::swap(s.stages[0], s.stages[1]); })},
    {"TaskOrder", of_schedule([](Schedule& s) { std::swap(s.stages[1][1], s.stages[1][2]); })},
    {"InFlight", of_schedule([](Schedule& s) { s.in_flight[1] = 2; })},
    // A program.
    {"WrittenLeaves", of_program([](Program& p) {
       p.written_leaves = {3, 2};
     })},
    {"HasGuards", of_program([](Program& p) { p.has_guards = !p.has_guards; })},
    {"GuardTolerance", of_program([](Program& p) { p.guard_tolerance = 1e-5; })},
    {"ArenaBytes", of_program([](Program& p) { p.arena_bytes = 257; })},
    {"Devices", of_program([](Program& p) { p.devices = 2; })},
    {"Stage", of_program([](Program& p) { p.stage = 0; })},
    {"PartsOfOneStage",
     [](Plan& p) {
       p.programs[0].stage = 1;
       p.programs[1].devices = 3;
     }},
    {"BufferBytes", of_program([](Program& p) { p.buffers[1].bytes = 17; })},
    {"BufferOffset", of_program([](Program& p) { p.buffers[0].offset = 8; })},
    {"OneBufferMore", of_program([](Program& p) {
       p.buffers.push_back({8, 16});
     })},
    {"GradientLeaf", of_program([](Program& p) { p.gradients[0].leaf = 3; })},
    {"GradientLeafOfAnothersName", of_program([](Program& p) {
       p.leaves[4].name = "w";
       p.gradients[0].leaf = 4;
     })},
    {"GradientSlot", of_program([](Program& p) { p.gradients[0].slot = 6; })},
    {"GradientStaysUntilSummed",
     of_program([](Program& p) { p.gradients[0].stays = PlanGradient::Stays::kUntilSummed; })},
    {"GradientStaysUntilUpdated",
     of_program([](Program& p) { p.gradients[0].stays = PlanGradient::Stays::kUntilUpdated; })},
    {"Loss", of_program([](Program& p) { p.outputs[0].loss = kNoSlot; })},
    {"MetricCollection", of_program([](Program& p) { p.outputs[0].metrics[0].collection = ""; })},
    {"MetricName", of_program([](Program& p) { p.outputs[0].metrics[0].name = "\"hits\""; })},
    {"MetricSlot", of_program([](Program& p) { p.outputs[0].metrics[0].slot = 4; })},
    {"SegmentName", of_program([](Program& p) { p.segments[0].name = "backward 2, first"; })},
    {"SegmentNameInQuotes", of_program([](Program& p) { p.segments[0].name = " a  b "; })},
    {"SegmentKind", of_program([](Program& p) { p.segments[0].kind = Task::Kind::kWeights; })},
    {"SegmentChunk", of_program([](Program& p) { p.segments[0].chunk = 1; })},
    {"SegmentOfTheSameName", of_program([](Program& p) {
       p.segments.push_back(p.segments[0]);
       p.outputs.push_back(p.outputs[0]);
       p.instructions[1].segment = 1;
     })},
    // A leaf.
    {"LeafKind", of_leaf(0, [](PlanLeaf& l) { l.kind = PlanLeaf::Kind::kSeed; })},
    {"LeafIndex", of_leaf(0, [](PlanLeaf& l) { l.index = 1; })},
    {"LeafIndexOfATensor", of_leaf(2, [](PlanLeaf& l) { l.index = 1; })},
    {"LeafName", of_leaf(2, [](PlanLeaf& l) { l.name = "v"; })},
    {"LeafNameOfAnInput", of_leaf(0, [](PlanLeaf& l) { l.name = "x"; })},
    {"LeafSlot", of_leaf(4, [](PlanLeaf& l) { l.slot = 3; })},
    {"LeafShardDim", of_leaf(2, [](PlanLeaf& l) { l.shard.dim = 0; })},
    {"LeafShardBegin", of_leaf(2, [](PlanLeaf& l) { l.shard.piece.begin = 4; })},
    {"LeafShardLength", of_leaf(2, [](PlanLeaf& l) { l.shard.piece.length = 4; })},
    {"LeafShardWhole", of_leaf(2, [](PlanLeaf& l) { l.shard.whole = 8; })},
    {"LeafOffloaded", of_leaf(2, [](PlanLeaf& l) { l.offloaded = true; })},
    {"LeafStates", of_leaf(2,
                           [](PlanLeaf& l) {
                             l.offloaded = true;
                             l.states = 2;
                           })},
    {"LeafOthers", of_leaf(2, [](PlanLeaf& l) { l.others = 64; })},
    {"LeafStatesAlone", of_leaf(2, [](PlanLeaf& l) { l.states = 1; })},
    // A slot.
    {"SlotOfALeafMadeByAnOperator", of_slot(2,
                                            [](Slot& s) {
                                              s = {Slot::Where::kMadeByOperator, 0, s.type};
                                            })},
    {"SlotOfALeafInAnother", of_slot(2, [](Slot& s) { s.index = 3; })},
    {"SlotOfALeafInTheArena", of_slot(2,
                                      [](Slot& s) {
                                        s = {Slot::Where::kArena, 1, s.type};
                                      })},
    {"SlotOfAResultInALeaf", of_slot(4,
                                     [](Slot& s) {
                                       s = {Slot::Where::kLeaf, 2, s.type};
                                     })},
    {"SlotOfAViewInAnotherLeaf", of_slot(10, [](Slot& s) { s.index = 3; })},
    {"SlotOfAViewMadeByAnOperator", of_slot(10,
                                            [](Slot& s) {
                                              s = {Slot::Where::kMadeByOperator, 2, s.type};
                                            })},
    {"SlotInAnotherBuffer", of_slot(11, [](Slot& s) { s.index = 3; })},
    {"SlotInTheSameBuffer", of_slot(6, [](Slot& s) { s.index = 1; })},
    {"SlotElementType", of_slot(4, [](Slot& s) { s.type.dtype = c10::ScalarType::Int; })},
    {"SlotLayout", of_slot(9, [](Slot& s) { s.type = type({4}); })},
    {"SlotSizes", of_slot(11, [](Slot& s) { s.type = type({3}); })},
    {"SlotStrides", of_slot(11, [](Slot& s) { s.type.strides = {2}; })},
    {"SlotByRole", of_slot(4, [](Slot& s) { s.by_role = 2; })},
    {"SlotOfALeafByRole", of_slot(2, [](Slot& s) { s.by_role = -1; })},
    {"SlotOffset", of_slot(11, [](Slot& s) { s.type.offset = 1; })},
    // A call.
    {"Operator", of_call(kRelu, [](Call& c) { c.op = call("aten::neg", "", {}, {}).op; })},
    {"ModeOut", of_call(kRelu, [](Call& c) { c.mode = Call::Mode::kOut; })},
    {"ModeInPlace", of_call(kRelu, [](Call& c) { c.mode = Call::Mode::kInPlace; })},
    {"ModeNothing", of_call(kRelu, [](Call& c) { c.mode = Call::Mode::kNothing; })},
    {"ModeResultOfAnOperatorInPlace", of_call(kRelu,
                                              [](Call& c) {
                                                c.op = call("aten::relu_", "", {}, {}).op;
                                                c.mode = Call::Mode::kResult;
                                              })},
    {"OperandKind", of_call(kCat, [](Call& c) { c.operands[0] = slots({0}); })},
    {"OperandSlot", of_call(kMul, [](Call& c) { c.operands[1].slots = {3}; })},
    {"OperandUndefined", of_call(kMul, [](Call& c) { c.operands[1].slots = {kNoSlot}; })},
    {"OperandOfNoTensors", of_call(kCat, [](Call& c) { c.operands[0].slots = {}; })},
    {"OperandConstant", of_call(kSum, [](Call& c) { c.operands[1] = constant(6); })},
    {"OperandByRole", of_call(kSum,
                              [](Call& c) {
                                c.operands[1] = constant(6);
                                c.operands[1].by_role = 2;
                              })},
    {"Operands", of_call(kSum, [](Call& c) { c.operands.pop_back(); })},
    {"Results", of_call(kRelu,
                        [](Call& c) {
                          c.results = {kNoSlot, 6};
                        })},
    {"Backward", of_call(kMul, [](Call& c) { c.backward = true; })},
    {"TaskGraph", of_call(kMul, [](Call& c) { c.taskgraph = 2; })},
    {"NoTaskGraph", of_call(kMul, [](Call& c) { c.taskgraph = -1; })},
    {"Expects", of_call(kRead, [](Call& c) { c.expects = c10::IValue(1); })},
    {"NothingExpected", of_call(kRead, [](Call& c) { c.expects.reset(); })},
    {"Frees", of_call(kRead,
                      [](Call& c) {
                        c.frees = {9, 8};
                      })},
    {"OrderOfCalls",
     of_program([](Program& p) { std::swap(p.segments[0].calls[4], p.segments[0].calls[5]); })},
    // An instruction, also where its kind does not speak of the field.
    {"InstructionKind",
     of_instruction(kMove, [](Instruction& i) { i.kind = Instruction::Kind::kSend; })},
    {"LoadMicroBatch", of_instruction(kFirstLoad, [](Instruction& i) { i.micro_batch = 1; })},
    {"LoadSegment", of_instruction(kFirstLoad, [](Instruction& i) { i.segment = 7; })},
    {"LoadGradients", of_instruction(kFirstLoad, [](Instruction& i) { i.gradients = {1}; })},
    {"LoadFirstCall", of_instruction(kFirstLoad, [](Instruction& i) { i.first_call = 1; })},
    {"LoadEndCall", of_instruction(kFirstLoad, [](Instruction& i) { i.end_call = 2; })},
    {"LoadGroup", of_instruction(kFirstLoad, [](Instruction& i) { i.group = 1; })},
    {"LoadTransfer", of_instruction(kFirstLoad, [](Instruction& i) { i.transfer = 4; })},
    {"LoadSlots", of_instruction(kFirstLoad,
                                 [](Instruction& i) {
                                   i.slots = {0, 1, -1, -1, -1};
                                 })},
    {"LoadSlotsOfNone",
     of_instruction(kFirstLoad, [](Instruction& i) { i.slots.assign(5, kNoSlot); })},
    {"LoadSlotsOfSomeLeaves", of_instruction(kFirstLoad,
                                             [](Instruction& i) {
                                               i.slots = {0, -1};
                                             })},
    {"RunMicroBatch", of_instruction(kFirstRun, [](Instruction& i) { i.micro_batch = 1; })},
    {"RunFirstCall", of_instruction(kFirstRun, [](Instruction& i) { i.first_call = 2; })},
    {"RunEndCall", of_instruction(kFirstRun, [](Instruction& i) { i.end_call = 7; })},
    {"RunEndCallIsTheLast", of_instruction(kFirstRun, [](Instruction& i) { i.end_call = 8; })},
    {"RunEndCallBehindTheLast", of_instruction(kFirstRun, [](Instruction& i) { i.end_call = 9; })},
    {"RunGradients", of_instruction(kFirstRun,
                                    [](Instruction& i) {
                                      i.gradients = {0, 1};
                                    })},
    {"RunGroup", of_instruction(kFirstRun, [](Instruction& i) { i.group = 1; })},
    {"RunTransfer", of_instruction(kFirstRun, [](Instruction& i) { i.transfer = 1; })},
    {"RunSlots", of_instruction(kFirstRun,
                                [](Instruction& i) {
                                  i.slots = {4, -1};
                                })},
    {"UpdateGradients", of_instruction(kFirstUpdate,
                                       [](Instruction& i) {
                                         i.gradients = {1, 0};
                                       })},
    {"UpdateNoGradients", of_instruction(kFirstUpdate, [](Instruction& i) { i.gradients = {}; })},
    {"UpdateTheSameGradients",
     of_instruction(kSecondUpdate, [](Instruction& i) { i.gradients = {0}; })},
    {"UpdateMicroBatch", of_instruction(kFirstUpdate, [](Instruction& i) { i.micro_batch = 1; })},
    {"UpdateGroup", of_instruction(kFirstUpdate, [](Instruction& i) { i.group = 1; })},
    {"UpdateSlots", of_instruction(kFirstUpdate, [](Instruction& i) { i.slots = {0}; })},
    {"ReduceGroup", of_instruction(kFirstUpdate,
                                   [](Instruction& i) {
                                     i.kind = Instruction::Kind::kReduce;
                                     i.group = 3;
                                   })},
    {"ReduceOfAMicroBatch", of_instruction(kFirstUpdate,
                                           [](Instruction& i) {
                                             i.kind = Instruction::Kind::kReduce;
                                             i.group = 3;
                                             i.micro_batch = 1;
                                             i.slots = {4};
                                           })},
    {"UpdateEarly", of_instruction(kFirstUpdate,
                                   [](Instruction& i) {
                                     i.kind = Instruction::Kind::kUpdateEarly;
                                     i.group = 2;
                                     i.slots = {4};
                                   })},
    {"AwaitGroup", of_instruction(kFirstUpdate,
                                  [](Instruction& i) {
                                    i.kind = Instruction::Kind::kAwaitGroup;
                                    i.group = 2;
                                    i.gradients = {1};
                                    i.slots = {4};
                                    i.micro_batch = 1;
                                  })},
    {"ReduceOverRoles", of_instruction(kFirstUpdate,
                                       [](Instruction& i) {
                                         i.kind = Instruction::Kind::kReduce;
                                         i.over = Instruction::Over::kRoles;
                                       })},
    {"ClipEachReplica", of_instruction(kFirstUpdate,
                                       [](Instruction& i) {
                                         i.kind = Instruction::Kind::kClip;
                                         i.over = Instruction::Over::kReplica;
                                         i.gradients = {0, 1};
                                       })},
    {"ClipAll", of_instruction(kFirstUpdate,
                               [](Instruction& i) {
                                 i.kind = Instruction::Kind::kClip;
                                 i.over = Instruction::Over::kAll;
                                 i.gradients = {1};
                               })},
    {"Report", of_instruction(kFirstUpdate,
                              [](Instruction& i) {
                                i = {};
                                i.kind = Instruction::Kind::kReport;
                              })},
    {"Await", of_instruction(kFirstUpdate,
                             [](Instruction& i) {
                               i = {};
                               i.kind = Instruction::Kind::kAwait;
                             })},
    {"Check", of_instruction(kFirstUpdate,
                             [](Instruction& i) {
                               i = {};
                               i.kind = Instruction::Kind::kCheck;
                             })},
    {"Finite", of_instruction(kFirstUpdate,
                              [](Instruction& i) {
                                i = {};
                                i.kind = Instruction::Kind::kFinite;
                                i.gradients = {0, 1};
                              })},
    {"FiniteOfSome", of_instruction(kFirstUpdate,
                                    [](Instruction& i) {
                                      i = {};
                                      i.kind = Instruction::Kind::kFinite;
                                      i.gradients = {1};
                                    })},
    {"MergeOfWhatIsWritten", of_program([](Program& p) {
       p.written_leaves = {3, 2};
       p.instructions[2] = {};
       p.instructions[2].kind = Instruction::Kind::kMerge;
       p.instructions[2].leaves = {3, 2};
     })},
    {"MergeOfOthers", of_program([](Program& p) {
       p.instructions[2] = {};
       p.instructions[2].kind = Instruction::Kind::kMerge;
       p.instructions[2].leaves = {2};
     })},
    {"Gather", of_instruction(kFirstUpdate,
                              [](Instruction& i) {
                                i = {};
                                i.kind = Instruction::Kind::kGather;
                                i.leaves = {2, 3, 4};
                              })},
    {"GatherNothing", of_instruction(kFirstUpdate,
                                     [](Instruction& i) {
                                       i = {};
                                       i.kind = Instruction::Kind::kGather;
                                     })},
    {"LoadOver",
     of_instruction(kFirstLoad, [](Instruction& i) { i.over = Instruction::Over::kAll; })},
    {"Fetch", of_instruction(kFirstUpdate,
                             [](Instruction& i) {
                               i = instruction(Instruction::Kind::kFetch, 0);
                               i.leaves = {2, 3};
                             })},
    {"FetchNothing",
     of_instruction(kFirstUpdate,
                    [](Instruction& i) { i = instruction(Instruction::Kind::kFetch, 1); })},
    {"WaitForStates", of_instruction(kFirstUpdate,
                                     [](Instruction& i) {
                                       i = instruction(Instruction::Kind::kWait, 0);
                                       i.leaves = {2};
                                       i.states = true;
                                     })},
    {"Store", of_instruction(kFirstUpdate,
                             [](Instruction& i) {
                               i = instruction(Instruction::Kind::kStore, 0);
                               i.leaves = {3, 2};
                             })},
    {"RunStates", of_instruction(kFirstRun, [](Instruction& i) { i.states = true; })},
    {"LoadLeaves", of_instruction(kFirstLoad, [](Instruction& i) { i.leaves = {1}; })},
    {"UpdateOver",
     of_instruction(kFirstUpdate, [](Instruction& i) { i.over = Instruction::Over::kRoles; })},
    {"UpdateLeaves", of_instruction(kFirstUpdate,
                                    [](Instruction& i) {
                                      i.leaves = {0, 2};
                                    })},
    {"MoveMicroBatch", of_instruction(kMove, [](Instruction& i) { i.micro_batch = 1; })},
    {"MoveSlots", of_instruction(kMove,
                                 [](Instruction& i) {
                                   i.slots = {7, 4};
                                 })},
    {"MoveNoSlots", of_instruction(kMove, [](Instruction& i) { i.slots = {}; })},
    {"MoveSegment", of_instruction(kMove, [](Instruction& i) { i.segment = 1; })},
    {"MoveGradients", of_instruction(kMove, [](Instruction& i) { i.gradients = {0}; })},
    {"BytesOfALoad", of_instruction(kFirstLoad, [](Instruction& i) { i.cost.bytes = 17; })},
    {"SecondsOfARun", of_instruction(kFirstRun, [](Instruction& i) { i.cost.seconds = 1.0 / 3; })},
    {"CostOfARun", of_instruction(kFirstRun,
                                  [](Instruction& i) {
                                    i.cost = {1 << 30, 0.000012345};
                                  })},
    {"UsualBytesOfAnUpdate", of_instruction(kFirstUpdate,
                                            [](Instruction& i) {
                                              i.cost = {16, 2e-6};
                                            })},
    {"OtherBytesOfAnUpdate", of_instruction(kFirstUpdate,
                                            [](Instruction& i) {
                                              i.cost = {17, 2e-6};
                                            })},
    {"NoBytesOfAnUpdate", of_instruction(kFirstUpdate, [](Instruction& i) { i.cost.seconds = 1; })},
    {"BytesOfAnUpdateThatTakesNoTime",
     of_instruction(kFirstUpdate, [](Instruction& i) { i.cost.bytes = 16; })},
    {"CostOfAMove", of_instruction(kMove,
                                   [](Instruction& i) {
                                     i.cost = {32, 0.5};
                                   })},
    {"OrderOfInstructions",
     of_program([](Program& p) { std::swap(p.instructions[0], p.instructions[1]); })},
};

class PlanField : public testing::TestWithParam<Change> {};

TEST_P(PlanField, IsInTheText) {
  Plan plan = pipeline_plan();
  GetParam().change(plan);
  const std::string text = print_plan(plan);
  EXPECT_NE(text, print_plan(pipeline_plan()));
  EXPECT_NE(describe(plan), describe(pipeline_plan())) << "nothing is changed";
  const Plan parsed = parse_plan(text);
  EXPECT_EQ(print_plan(parsed), text);
  EXPECT_EQ(describe(parsed), describe(plan)) << text;
}

INSTANTIATE_TEST_SUITE_P(Of, PlanField, testing::ValuesIn(kChanges),
                         [](const auto& change) { return change.param.name; });

// With one program the devices stand in the plan's first line.
TEST(PlanField, DevicesOfTheOnlyProgramAreInTheText) {
  for (int devices : {1, 2, 0}) {
    for (int replicas : {1, 2}) {
      Plan plan = good_plan();
      plan.replicas = replicas;
      plan.programs[0].devices = devices;
      const Plan parsed = parse_plan(print_plan(plan));
      EXPECT_EQ(describe(parsed), describe(plan)) << print_plan(plan);
    }
  }
}

}  // namespace
}  // namespace epl

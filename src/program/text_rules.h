// What the text of a Program leaves out because it follows from the rest.
//
// The printer writes what is not as these rules say, the parser fills in what is not written: both
// ask the same functions, so that nothing is lost, and a plan as the planner makes it stays short.
//
//   s4 f32[4] @64 = aten::mul.out(s0, s2)     a new buffer, for a call that writes its result there
//   s6 f32[4] @64 = aten::relu_(s4)           in place: the same buffer
//   s8 sparse f32[4] = aten::to_sparse(s3)    wherever the operator makes it
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "program/program.h"

namespace epl {

// Who brings a slot into the text: the first of these that names it.
struct SlotMaker {
  enum class Kind : uint8_t {
    kNobody,  // nothing names it: it is not in the text
    kLeaf,
    kCall,
    kView,  // named by readers only
  };

  Kind kind = Kind::kNobody;
  int leaf = -1;               // kLeaf
  const Call* call = nullptr;  // kCall
  bool filled = false;         // a load or a receive writes it
};

// One a slot. Leaves, calls, outputs, gradients and instructions of the program must be there.
std::vector<SlotMaker> slot_makers(const Program& program);

// How a call's results come into their slots, by its operator and the number of its operands.
Call::Mode usual_mode(const Call& call);

// Where a slot lies that has no place in the arena: what `index` and `where` are mostly.
Slot usual_place(const Program& program, SlotId id, const SlotMaker& maker);

// In which buffer a slot lies that has the place `offset` in the arena. Ask and tell for each slot
// in the arena, in the order of their numbers.
class BufferGuess {
 public:
  BufferGuess(const Program& program, const std::vector<SlotMaker>& makers);

  int guess(SlotId id, int64_t offset) const;
  void tell(SlotId id, int64_t offset, int buffer);

 private:
  const std::vector<SlotMaker>& makers_;
  std::set<SlotId> gradients_;
  std::map<SlotId, std::pair<int64_t, int>> known_;  // offset and buffer
  std::map<int64_t, int> latest_;                    // by offset
  std::set<int> of_gradients_;                       // buffers
  int next_ = 0;
};

// What slots need of each buffer; kNoBytes for those that no slot of the text lies in.
inline constexpr int64_t kNoBytes = -1;
std::vector<int64_t> usual_bytes(const Program& program, const std::vector<SlotMaker>& makers);

int64_t usual_arena(const Program& program);  // up to the end of the last buffer
bool usual_guards(const Program& program);    // a call expects something
// That has the number of the program's first role.
int usual_stage(const Plan& plan, int program);

struct SegmentTask {
  Task::Kind kind = Task::Kind::kForward;
  int chunk = 0;
};
SegmentTask usual_task(const std::string& segment);  // "backward 2, first": backward of chunk 2

// The first of that name, which is the one that a text means; -1: none.
int leaf_named(const Program& program, const std::string& name);
int segment_named(const Program& program, const std::string& name);

// So many gradients, behind those of the last of the instructions [0, end) that is of this kind;
// where they are clipped the first ones.
std::vector<int> usual_gradients(const std::vector<Instruction>& instructions, size_t end,
                                 Instruction::Kind kind, size_t count);

// What is merged is what the program writes, the first so many of it; what is gathered has to be
// named.
std::vector<int> usual_leaves(const Program& program, Instruction::Kind kind, size_t count);

// Of a schedule: chunk c on stage c % stages; split where a task is of that kind.
std::vector<int> usual_stages_of_chunks(size_t stages, size_t chunks);
bool usually_splits(const Schedule& schedule);

}  // namespace epl

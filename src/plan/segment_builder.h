// Builds segments of a Program: the calls of some nodes in order, and the lifetimes of their
// buffers.
//
// A step without a pipeline has one part. A chunk of a pipeline has several (forward, backward,
// weights), which run at different times with other segments in between: values that only one
// segment touches lie in memory that all segments share, the others in an activation slot of the
// micro batch.
//
//   SegmentBuilder builder(graph, {part}, gradients, program, backend);
//   builder.mark();
//   const int first = builder.build(part, Accumulation::kFirst);
//   builder.rewind();
//   const int next = builder.build(part, Accumulation::kNext);
//   const Regions regions = builder.find_regions();
//   put(regions, shared, activations, program);
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "ir/graph.h"
#include "plan/memory.h"
#include "program/program.h"
#include "program/schedule.h"

namespace epl {

enum class Accumulation : uint8_t {
  kNone,   // one micro batch: a gradient is what its node makes
  kFirst,  // the node's result is kept for the micro batches that follow
  kNext,   // the node's result is added to what is kept
};

// What one segment is made of.
struct SegmentPart {
  std::string name;
  std::vector<const Node*> nodes;
  std::vector<ValueId> given;  // lie in their slots when it starts: inputs, what other stages sent
  std::vector<ValueId> taken;  // are read when it has ended: what is sent
  std::vector<ValueId> going;  // gradients that are read as soon as they are made: see extend()
  ValueId loss = kNoValue;     // these two are read then as well
  std::vector<Metric> metrics;
  Task::Kind kind = Task::Kind::kForward;
  int chunk = 0;
};

// Buffers that lie together, and their places from its begin on.
struct Region {
  std::vector<int> buffers;
  BufferPlaces places;
};

// Where the buffers lie that a builder has made.
struct Regions {
  std::vector<Region> shared;  // by segment: what it alone touches. One of them runs at a time
  Region activations;          // what several segments touch

  int64_t shared_bytes() const;
};
void put(const Regions& regions, int64_t shared, int64_t activations, Program& program);

class SegmentBuilder {
 public:
  // For the nodes of the parts that will be built. Leaves and kept gradients of `program` have
  // their slots, up to inputs that lie where each micro batch has them. `gradients`: value -> index
  // of Program::gradients.
  SegmentBuilder(const Graph& graph, const std::vector<SegmentPart>& parts,
                 std::map<ValueId, size_t> gradients, Program& program, c10::DispatchKey backend);

  // Appends the segment of one part, and its outputs, to the program; parts come in the order in
  // which they run. Returns its number.
  int build(const SegmentPart& part, Accumulation accumulation);

  // Parts built after mark() can be built again after rewind(), with another accumulation.
  void mark();
  void rewind();

  SlotId slot_of(ValueId id);
  // What lies in a slot lives at least until the call of this number, of the segment built last.
  void extend(SlotId slot, int call);

  // When all is built.
  Regions find_regions() const;

 private:
  Region region_of(const std::function<bool(const Lifetime&)>& wanted) const;
  bool in_one_segment(const Lifetime& lifetime) const;
  void find_extents(const std::set<ValueId>& used);
  int now() const { return first_position_ + static_cast<int>(segment_.calls.size()); }
  void find_dynamic();
  void find_kept();
  void lower_node(const Node& node);
  void note_written_leaves(const Node& node);
  void add_call(Call call);
  bool needs_no_call(const Node& node) const;
  bool returns_what_it_writes(const Node& node) const;
  bool lies_in_arena(const Node& node) const;
  void choose_mode(const Node& node, Call& call) const;
  void find_last_uses();
  bool can_lie_on(const Node& node, ValueId input, ValueId result) const;
  bool share_place(const Node& node, Call& call);
  bool change_in_place(const Node& node, ValueId result, Call& call);
  int buffer_of(ValueId root);
  int64_t storage_bytes(ValueId root) const;
  Operand operand(const Argument& argument);
  void find_read_in_others(const std::vector<SegmentPart>& parts);
  void accumulate(ValueId id);
  void touch(SlotId slot);
  void add_frees();

  const Graph& graph_;
  Program& program_;
  const c10::DispatchKey backend_;
  Accumulation accumulation_ = Accumulation::kNone;
  const size_t first_buffer_;
  const bool has_one_part_;
  std::vector<const Node*> nodes_;

  Segment segment_;
  int first_position_ = 0;    // of the segment, in the row of all calls built so far
  std::vector<int> borders_;  // the first positions of all segments
  struct Mark {
    std::map<ValueId, SlotId> slots;
    std::map<ValueId, int> buffers;
  } mark_;
  std::map<ValueId, SlotId> slots_;
  std::map<ValueId, int> buffers_;               // by root
  std::map<ValueId, int64_t> extents_;           // by root
  std::set<ValueId> dynamic_;                    // values made by operators
  std::set<ValueId> to_the_end_;                 // roots that live until the last segment ends
  std::set<ValueId> outlives_;                   // roots that are read when a segment has ended
  std::set<ValueId> read_in_others_;             // roots that another part reads than makes them
  const std::map<ValueId, size_t> gradient_of_;  // value -> index of gradient
  std::map<ValueId, size_t> kept_root_;          // kFirst: root -> index of gradient
  std::map<int, Lifetime> lifetimes_;            // by buffer
  std::map<ValueId, const Node*> last_node_;     // by root: the last that reads or writes it
  std::map<SlotId, size_t> last_use_;            // of slots made by operators, in this segment
};

}  // namespace epl

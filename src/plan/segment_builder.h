// Builds one segment of a Plan: the calls of all nodes in order, and the lifetimes of their
// buffers.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "ir/graph.h"
#include "plan/memory.h"
#include "program/program.h"

namespace epl {

enum class Accumulation : uint8_t {
  kNone,   // one micro batch: a gradient is what its node makes
  kFirst,  // the node's result is kept for the micro batches that follow
  kNext,   // the node's result is added to what is kept
};

class SegmentBuilder {
 public:
  // Leaves and kept gradients of `program` must have their slots.
  SegmentBuilder(const Graph& graph, Program& program, c10::DispatchKey backend,
                 Accumulation accumulation);

  // Appends segment and outputs to the program. The places of new buffers are from 0 on.
  void build(const std::string& name);

  SlotId slot_of(ValueId id);

  // Bytes that the new buffers take.
  int64_t place_new_buffers(int64_t base);

 private:
  void find_dynamic();
  void find_kept();
  void lower_node(const Node& node);
  void note_written_leaves(const Node& node);
  void add_call(Call call);
  bool is_view(const Node& node) const;
  bool returns_what_it_writes(const Node& node) const;
  bool lies_in_arena(const Node& node) const;
  void choose_mode(const Node& node, Call& call) const;
  void find_last_uses();
  bool can_lie_on(const Node& node, ValueId input, ValueId result) const;
  bool share_place(const Node& node, Call& call);
  int buffer_of(ValueId root);
  int64_t storage_bytes(ValueId root) const;
  Operand operand(const Argument& argument);
  void accumulate(ValueId id);
  void touch(SlotId slot);
  void add_frees();

  const Graph& graph_;
  Program& program_;
  const c10::DispatchKey backend_;
  const Accumulation accumulation_;
  const size_t first_buffer_;

  Segment segment_;
  std::map<ValueId, SlotId> slots_;
  std::map<ValueId, int> buffers_;            // by root
  std::map<ValueId, int64_t> extents_;        // by root
  std::set<ValueId> dynamic_;                 // values made by operators
  std::set<ValueId> to_the_end_;              // roots that live until the segment ends
  std::map<ValueId, size_t> gradient_of_;     // value -> index of gradient
  std::map<ValueId, size_t> kept_root_;       // kFirst: root -> index of gradient
  std::map<int, Lifetime> lifetimes_;         // by buffer
  std::map<ValueId, const Node*> last_node_;  // by root: the last that reads or writes it
  std::map<SlotId, size_t> last_use_;         // of slots made by operators
};

}  // namespace epl

#include "plan/segment_builder.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "ops/facts.h"

namespace epl {
namespace {

c10::OperatorHandle op_named(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

Operand slot_operand(SlotId slot) {
  Operand operand;
  operand.kind = Operand::Kind::kSlot;
  operand.slots = {slot};
  return operand;
}

Operand constant_operand(c10::IValue constant) {
  Operand operand;
  operand.constant = std::move(constant);
  return operand;
}

void put_region(const Region& region, int64_t base, Program& program) {
  for (size_t i = 0; i < region.buffers.size(); ++i) {
    const auto buffer = static_cast<size_t>(region.buffers[i]);
    program.buffers[buffer].offset = base + region.places.offsets[i];
  }
}

}  // namespace

int64_t Regions::shared_bytes() const {
  int64_t most = 0;
  for (const auto& region : shared) most = std::max(most, region.places.total);
  return most;
}

void put(const Regions& regions, int64_t shared, int64_t activations, Program& program) {
  for (const auto& region : regions.shared) put_region(region, shared, program);
  put_region(regions.activations, activations, program);
}

SegmentBuilder::SegmentBuilder(const Graph& graph, const std::vector<SegmentPart>& parts,
                               std::map<ValueId, size_t> gradients, Program& program,
                               c10::DispatchKey backend)
    : graph_(graph),
      program_(program),
      backend_(backend),
      first_buffer_(program.buffers.size()),
      has_one_part_(parts.size() == 1),
      gradient_of_(std::move(gradients)) {
  for (size_t i = 0; i < graph.leaves.size(); ++i) {
    const SlotId slot = program.leaves[i].slot;
    if (slot != kNoSlot) slots_[graph.leaves[i].value] = slot;
  }
  std::set<ValueId> used;
  const auto read_at_end = [&](ValueId id) {
    if (id == kNoValue) return;
    used.insert(id);
    outlives_.insert(graph_.value(id).storage);
  };
  for (const auto& part : parts) {
    used.insert(part.given.begin(), part.given.end());
    for (ValueId id : part.taken) read_at_end(id);
    for (ValueId id : part.going) read_at_end(id);
    for (const auto& metric : part.metrics) read_at_end(metric.value);
    read_at_end(part.loss);
    for (const Node* node : part.nodes) {
      nodes_.push_back(node);
      for_each_input(*node, [&](ValueId id) { used.insert(id); });
      for_each_output(*node, [&](ValueId id) { used.insert(id); });
    }
  }
  find_read_in_others(parts);
  find_extents(used);
  find_dynamic();
  find_last_uses();
}

void SegmentBuilder::find_read_in_others(const std::vector<SegmentPart>& parts) {
  std::map<ValueId, const SegmentPart*> makers;
  for (const auto& part : parts) {
    for (const Node* node : part.nodes) {
      for_each_input(*node, [&](ValueId id) {
        const ValueId root = graph_.value(id).storage;
        const auto maker = makers.find(root);
        if (maker != makers.end() && maker->second != &part) read_in_others_.insert(root);
      });
      for_each_output(*node, [&](ValueId id) { makers.emplace(graph_.value(id).storage, &part); });
    }
  }
}

void SegmentBuilder::find_extents(const std::set<ValueId>& used) {
  for (ValueId id : used) {
    const Value& value = graph_.value(id);
    if (value.type.layout != c10::kStrided || value.storage == kNoValue) continue;
    int64_t& extent = extents_[value.storage];
    extent = std::max(extent, value.type.extent_bytes());
  }
}

// Sparse tensors are made by operators, and so is what is made of them. A sparse tensor points into
// the dense ones it was made from, which therefore stay until the segment ends.
void SegmentBuilder::find_dynamic() {
  for (const auto& leaf : graph_.leaves) {
    if (graph_.value(leaf.value).type.layout != c10::kStrided) dynamic_.insert(leaf.value);
  }
  for (const Node* node : nodes_) {
    bool dynamic = false;
    for_each_input(*node, [&](ValueId id) { dynamic |= dynamic_.count(id) != 0; });
    bool sparse = false;
    for_each_output(*node,
                    [&](ValueId id) { sparse |= graph_.value(id).type.layout != c10::kStrided; });
    if (!dynamic && !sparse) continue;
    for_each_output(*node, [&](ValueId id) { dynamic_.insert(id); });
    for_each_input(*node, [&](ValueId id) {
      if (dynamic_.count(id) == 0) to_the_end_.insert(graph_.value(id).storage);
    });
  }
}

// The roots of gradients that lie where their sum is kept, while the first micro batch is built.
// Not what another task reads: until then the next micro batch may have been added to the sum.
void SegmentBuilder::find_kept() {
  kept_root_.clear();
  if (accumulation_ != Accumulation::kFirst) return;
  for (const auto& [id, gradient] : gradient_of_) {
    const ValueId root = graph_.value(id).storage;
    if (dynamic_.count(id) == 0 && read_in_others_.count(root) == 0) kept_root_[root] = gradient;
  }
}

int64_t SegmentBuilder::storage_bytes(ValueId root) const { return extents_.at(root); }

int SegmentBuilder::buffer_of(ValueId root) {
  const auto found = buffers_.find(root);
  if (found != buffers_.end()) return found->second;
  const auto kept = kept_root_.find(root);
  int buffer = 0;
  if (kept != kept_root_.end()) {
    const SlotId slot = program_.gradients[kept->second].slot;
    buffer = program_.slots[static_cast<size_t>(slot)].index;
  } else {
    buffer = static_cast<int>(program_.buffers.size());
    program_.buffers.push_back({storage_bytes(root), 0});
  }
  return buffers_[root] = buffer;
}

SlotId SegmentBuilder::slot_of(ValueId id) {
  if (id == kNoValue) return kNoSlot;
  const auto found = slots_.find(id);
  if (found != slots_.end()) return found->second;
  Slot slot;
  slot.type = graph_.value(id).type;
  const ValueId root = graph_.value(id).storage;
  const auto whole = slots_.find(root);
  if (dynamic_.count(id) != 0) {
    slot.where = Slot::Where::kMadeByOperator;
  } else if (whole != slots_.end()) {
    slot.where = program_.slots[static_cast<size_t>(whole->second)].where;
    slot.index = program_.slots[static_cast<size_t>(whole->second)].index;
  } else {
    slot.where = Slot::Where::kArena;
    slot.index = buffer_of(root);
  }
  const auto made = static_cast<SlotId>(program_.slots.size());
  program_.slots.push_back(std::move(slot));
  return slots_[id] = made;
}

void SegmentBuilder::touch(SlotId id) {
  if (id == kNoSlot) return;
  const Slot& slot = program_.slots[static_cast<size_t>(id)];
  if (slot.where == Slot::Where::kMadeByOperator) last_use_[id] = segment_.calls.size();
  if (slot.where != Slot::Where::kArena) return;
  auto [entry, fresh] = lifetimes_.try_emplace(slot.index);
  if (fresh) entry->second.first = now();
  entry->second.last = now();
  entry->second.bytes = program_.buffers[static_cast<size_t>(slot.index)].bytes;
}

Operand SegmentBuilder::operand(const Argument& argument) {
  Operand result;
  if (argument.kind == Argument::Kind::kConstant) {
    result.constant = argument.constant;
    return result;
  }
  result.kind =
      argument.kind == Argument::Kind::kList ? Operand::Kind::kList : Operand::Kind::kSlot;
  for (ValueId id : argument.values) result.slots.push_back(slot_of(id));
  return result;
}

// A view of a tensor that an operator puts wherever it likes is made anew in each step.
bool SegmentBuilder::needs_no_call(const Node& node) const {
  bool in_place = true;
  for_each_output(node, [&](ValueId id) { in_place &= dynamic_.count(id) == 0; });
  return in_place && is_view(graph_, node);
}

void SegmentBuilder::find_last_uses() {
  for (const Node* node : nodes_) {
    const auto note = [&](ValueId id) { last_node_[graph_.value(id).storage] = node; };
    for_each_input(*node, note);
    for_each_output(*node, note);
  }
}

// Whether the node may write `result` over `input`: nobody reads the input after it, and the node
// reads nothing else of that memory.
bool SegmentBuilder::can_lie_on(const Node& node, ValueId input, ValueId result) const {
  const ValueId root = graph_.value(input).storage;
  const TensorType& place = graph_.value(result).type;
  const bool ends_here = last_node_.at(root) == &node && to_the_end_.count(root) == 0 &&
                         outlives_.count(root) == 0 && kept_root_.count(root) == 0 &&
                         dynamic_.count(input) == 0;
  if (!ends_here || buffers_.count(root) == 0 || kept_root_.count(result) != 0) return false;
  if (graph_.value(result).storage != result || storage_bytes(root) != storage_bytes(result)) {
    return false;
  }
  bool same = graph_.value(input).type.same_place(place);
  for_each_input(node, [&](ValueId other) {
    if (graph_.value(other).storage == root) same &= graph_.value(other).type.same_place(place);
  });
  return same;
}

// Element by element, a result may lie where an argument lay that dies here: half the memory
// traffic, and one buffer less.
bool SegmentBuilder::share_place(const Node& node, Call& call) {
  if (node.results.size() != 1 || node.results[0].values.size() != 1) return false;
  const ValueId result = node.results[0].values[0];
  if (result == kNoValue || dynamic_.count(result) != 0) return false;
  if (changes_some(node.op)) return change_in_place(node, result, call);
  if (!is_pointwise(node.op)) return false;
  const auto in_place = in_place_variant(node.op);
  const auto out = out_variant(node.op, backend_);
  for (const auto& argument : node.arguments) {
    if (argument.kind != Argument::Kind::kValue || argument.values[0] == kNoValue) continue;
    const bool first = &argument == &node.arguments.front();
    if (!(out || (in_place && first)) || !can_lie_on(node, argument.values[0], result)) continue;
    buffers_[result] = buffers_.at(graph_.value(argument.values[0]).storage);
    call.mode = out ? Call::Mode::kOut : Call::Mode::kInPlace;
    call.op = out ? *out : *in_place;
    return true;
  }
  return false;
}

// The elements that stay need not be copied where the first argument dies here. It is the only one
// that may lie there: what is read of the others is read while some is written already.
bool SegmentBuilder::change_in_place(const Node& node, ValueId result, Call& call) {
  const auto in_place = in_place_variant(node.op);
  const ValueId changed = node.arguments.front().values.at(0);
  if (!in_place || !can_lie_on(node, changed, result)) return false;
  const ValueId root = graph_.value(changed).storage;
  int reads = 0;
  for_each_input(node, [&](ValueId id) { reads += graph_.value(id).storage == root ? 1 : 0; });
  if (reads != 1) return false;
  buffers_[result] = buffers_.at(root);
  call.mode = Call::Mode::kInPlace;
  call.op = *in_place;
  return true;
}

bool SegmentBuilder::returns_what_it_writes(const Node& node) const {
  std::set<ValueId> written;
  for (size_t i : written_arguments(node)) {
    for (ValueId id : node.arguments[i].values) {
      if (id != kNoValue) written.insert(graph_.value(id).storage);
    }
  }
  bool all = !written.empty();
  for_each_output(node, [&](ValueId id) { all &= written.count(graph_.value(id).storage) != 0; });
  return all;
}

void SegmentBuilder::lower_node(const Node& node) {
  if (needs_no_call(node)) {
    for_each_output(node, [&](ValueId id) {
      slot_of(id);
      accumulate(id);
    });
    return;
  }
  Call call{node.op,        Call::Mode::kResult, {}, {}, node.phase == Phase::kBackward,
            node.taskgraph, node.expects,        {}};
  program_.has_guards |= node.expects || !values_that_decide_shape(graph_, node).empty();
  call.workspace = workspace_of(graph_, node);
  note_written_leaves(node);
  for (const auto& argument : node.arguments) call.operands.push_back(operand(argument));
  if (!share_place(node, call)) choose_mode(node, call);
  for (const auto& result : node.results) {
    for (ValueId id : result.values) call.results.push_back(slot_of(id));
  }
  add_call(std::move(call));
  for_each_output(node, [&](ValueId id) { accumulate(id); });
}

void SegmentBuilder::choose_mode(const Node& node, Call& call) const {
  const auto out = out_variant(node.op, backend_);
  if (makes_uninitialized(node.op)) {
    call.mode = Call::Mode::kNothing;
  } else if (returns_what_it_writes(node)) {
    call.mode = Call::Mode::kInPlace;
  } else if (out && lies_in_arena(node) && values_that_decide_shape(graph_, node).empty()) {
    call.mode = Call::Mode::kOut;
    call.op = *out;
  }
}

// Whether each return of the node is one tensor that the plan gives a place.
bool SegmentBuilder::lies_in_arena(const Node& node) const {
  return std::all_of(node.results.begin(), node.results.end(), [&](const Result& result) {
    return !result.is_list && result.values.size() == 1 && result.values[0] != kNoValue &&
           dynamic_.count(result.values[0]) == 0;
  });
}

void SegmentBuilder::note_written_leaves(const Node& node) {
  for (size_t i : written_arguments(node)) {
    for (ValueId id : node.arguments[i].values) {
      if (id == kNoValue) continue;
      const Slot& slot = program_.slots[static_cast<size_t>(slot_of(id))];
      if (slot.where != Slot::Where::kLeaf) continue;
      auto& leaves = program_.written_leaves;
      if (std::find(leaves.begin(), leaves.end(), slot.index) == leaves.end()) {
        leaves.push_back(slot.index);
      }
    }
  }
}

void SegmentBuilder::add_call(Call call) {
  for_each_operand(call, [&](SlotId slot) { touch(slot); });
  for_each_result(call, [&](SlotId slot) { touch(slot); });
  segment_.calls.push_back(std::move(call));
}

void SegmentBuilder::accumulate(ValueId id) {
  const auto found = gradient_of_.find(id);
  if (found == gradient_of_.end() || accumulation_ == Accumulation::kNone) return;
  const SlotId kept = program_.gradients[found->second].slot;
  const SlotId made = slot_of(id);
  const bool dynamic = dynamic_.count(id) != 0;
  if (accumulation_ == Accumulation::kNext) {
    Call add{dynamic ? op_named("aten::add", "Tensor") : op_named("aten::add_", "Tensor"),
             dynamic ? Call::Mode::kResult : Call::Mode::kInPlace,
             {slot_operand(kept), slot_operand(made), constant_operand(1)},
             {kept},
             true,
             -1,
             {},
             {}};
    add_call(std::move(add));
  } else if (dynamic || read_in_others_.count(graph_.value(id).storage) != 0) {
    // It points into the arena, which the next micro batch writes again, or is read again.
    Call copy{op_named("aten::clone", ""),
              Call::Mode::kResult,
              {slot_operand(made), constant_operand({})},
              {kept},
              true,
              -1,
              {},
              {}};
    add_call(std::move(copy));
  }
}

// Of several parts another one may read it: there it stays until it is made anew.
void SegmentBuilder::add_frees() {
  std::set<SlotId> stay;
  for (const auto& gradient : program_.gradients) stay.insert(gradient.slot);
  for_each_returned(graph_, [&](ValueId id) { stay.insert(slot_of(id)); });
  for (const auto& [slot, call] : last_use_) {
    if (stay.count(slot) == 0) segment_.calls[call].frees.push_back(slot);
  }
}

int SegmentBuilder::build(const SegmentPart& part, Accumulation accumulation) {
  accumulation_ = accumulation;
  find_kept();
  segment_ = Segment();
  segment_.name = part.name;
  segment_.kind = part.kind;
  segment_.chunk = part.chunk;
  borders_.push_back(first_position_);
  last_use_.clear();
  for (ValueId id : part.given) touch(slot_of(id));
  for (const Node* node : part.nodes) lower_node(*node);
  SegmentOutputs outputs;
  outputs.loss = slot_of(part.loss);
  touch(outputs.loss);
  for (const auto& metric : part.metrics) {
    outputs.metrics.push_back({metric.collection, metric.name, slot_of(metric.value)});
    touch(outputs.metrics.back().slot);
  }
  for (ValueId id : part.taken) touch(slot_of(id));
  if (has_one_part_) add_frees();
  for (ValueId root : to_the_end_) {
    const auto buffer = buffers_.find(root);
    if (buffer != buffers_.end() && lifetimes_.count(buffer->second) != 0) {
      lifetimes_[buffer->second].last = now();
    }
  }
  first_position_ = now() + 1;
  program_.segments.push_back(std::move(segment_));
  program_.outputs.push_back(std::move(outputs));
  return static_cast<int>(program_.segments.size() - 1);
}

void SegmentBuilder::extend(SlotId slot, int call) {
  const Slot& place = program_.slots[static_cast<size_t>(slot)];
  if (place.where != Slot::Where::kArena) return;
  Lifetime& lifetime = lifetimes_.at(place.index);
  lifetime.last = std::max(lifetime.last, borders_.back() + call);
}

void SegmentBuilder::mark() { mark_ = {slots_, buffers_}; }

void SegmentBuilder::rewind() {
  slots_ = mark_.slots;
  buffers_ = mark_.buffers;
}

bool SegmentBuilder::in_one_segment(const Lifetime& lifetime) const {
  const auto next = std::upper_bound(borders_.begin(), borders_.end(), lifetime.first);
  return next == borders_.end() || lifetime.last < *next;
}

Region SegmentBuilder::region_of(const std::function<bool(const Lifetime&)>& wanted) const {
  Region region;
  std::vector<Lifetime> lifetimes;
  for (const auto& [buffer, lifetime] : lifetimes_) {
    if (static_cast<size_t>(buffer) < first_buffer_ || !wanted(lifetime)) continue;
    region.buffers.push_back(buffer);
    lifetimes.push_back(lifetime);
  }
  region.places = place_buffers(lifetimes);
  return region;
}

Regions SegmentBuilder::find_regions() const {
  Regions regions;
  for (size_t i = 0; i < borders_.size(); ++i) {
    const int begin = borders_[i];
    const int end = i + 1 < borders_.size() ? borders_[i + 1] : std::numeric_limits<int>::max();
    regions.shared.push_back(region_of([&](const Lifetime& lifetime) {
      return in_one_segment(lifetime) && lifetime.first >= begin && lifetime.first < end;
    }));
  }
  regions.activations =
      region_of([&](const Lifetime& lifetime) { return !in_one_segment(lifetime); });
  return regions;
}

}  // namespace epl

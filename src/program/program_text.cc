#include "program/program_text.h"

#include <algorithm>
#include <cctype>
#include <iomanip>
#include <map>

#include "base/text.h"
#include "layout/constant_text.h"
#include "layout/shard.h"
#include "program/text_rules.h"

namespace epl {
namespace {

std::string print_growth(int64_t by_role) {
  return by_role == 0 ? "" : concat(" by role ", by_role);
}

std::string print_operand(const Operand& operand) {
  if (operand.kind == Operand::Kind::kConstant) {
    return print_constant(operand.constant) + print_growth(operand.by_role);
  }
  std::vector<std::string> names;
  for (SlotId id : operand.slots) names.push_back(print_slot_name(id));
  const std::string list = join(names, ", ");
  return operand.kind == Operand::Kind::kList ? "[" + list + "]" : list;
}

std::string print_mode(const Call& call) {
  if (call.mode == usual_mode(call)) return "";
  const char* const names[] = {"  out", "  result", "  in place", "  nothing"};
  return names[static_cast<size_t>(call.mode)];
}

std::string print_kind(const PlanLeaf& leaf) {
  if (leaf.kind == PlanLeaf::Kind::kInput) return concat("input ", leaf.index);
  return leaf.kind == PlanLeaf::Kind::kSeed ? "seed" : quoted(leaf.name);
}

std::string print_stays(PlanGradient::Stays stays) {
  const char* const texts[] = {"", " until summed", " until updated"};
  return texts[static_cast<size_t>(stays)];
}

// Writes slots with their types and places. What a place cannot be read from stands behind it where
// the slot comes first: the leaf that it is a view of, or a buffer.
class ProgramPrinter {
 public:
  ProgramPrinter(const Program& program, CostText costs, std::ostream& out)
      : program_(program), costs_(costs), out_(out), makers_(slot_makers(program)) {
    find_unusual_buffers();
  }

  void print() {
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      out_ << std::setw(4) << i << "  " << print_instruction(program_, i);
      if (costs_ == CostText::kPrinted) out_ << print_cost(program_, program_.instructions[i]);
      out_ << "\n";
    }
    out_ << "leaves\n";
    for (const auto& leaf : program_.leaves) out_ << "    " << print_leaf(leaf) << "\n";
    print_views();
    print_buffers();
    for (size_t i = 0; i < program_.segments.size(); ++i) print_segment(i);
    out_ << "gradients\n";
    for (const auto& gradient : program_.gradients) {
      out_ << "    " << print_slot_name(gradient.slot) << " of "
           << print_leaf_name(program_, gradient.leaf) << print_owners(gradient.owners)
           << print_stays(gradient.stays) << "\n";
    }
  }

 private:
  const Slot& slot(SlotId id) const { return program_.slots[static_cast<size_t>(id)]; }
  int64_t offset_of(const Slot& slot) const {
    return program_.buffers[static_cast<size_t>(slot.index)].offset;
  }

  void find_unusual_buffers() {
    BufferGuess buffers(program_, makers_);
    for (size_t i = 0; i < makers_.size(); ++i) {
      const auto id = static_cast<SlotId>(i);
      const bool in_text = makers_[i].kind != SlotMaker::Kind::kNobody;
      if (!in_text || slot(id).where != Slot::Where::kArena) continue;
      const int64_t offset = offset_of(slot(id));
      if (buffers.guess(id, offset) != slot(id).index) unusual_buffers_.insert(id);
      buffers.tell(id, offset, slot(id).index);
    }
  }

  std::string print_slot(SlotId id) {
    if (id == kNoSlot) return "_";
    const Slot& shown = slot(id);
    const bool first = shown_.insert(id).second;
    std::string text =
        print_slot_name(id) + " " + print_type(shown.type) + print_growth(shown.by_role);
    if (shown.where == Slot::Where::kArena) {
      text += concat(" @", offset_of(shown));
      const bool unusual = first && unusual_buffers_.count(id) != 0;
      return unusual ? text + concat(" in buffer ", shown.index) : text;
    }
    return first ? text + print_place(id) : text;
  }

  std::string print_place(SlotId id) const {
    const Slot& shown = slot(id);
    const Slot usual = usual_place(program_, id, makers_[static_cast<size_t>(id)]);
    if (usual.where == shown.where && usual.index == shown.index) return "";
    if (shown.where == Slot::Where::kLeaf) return " of " + print_leaf_name(program_, shown.index);
    return concat(" made", shown.index == 0 ? "" : concat(" ", shown.index));
  }

  std::string print_leaf(const PlanLeaf& leaf) {
    const bool is_input = leaf.kind == PlanLeaf::Kind::kInput;
    const bool has_name = leaf.kind == PlanLeaf::Kind::kTensor;
    std::string text = leaf.slot == kNoSlot ? "no slot" : print_slot(leaf.slot);
    text += " = " + print_kind(leaf) + print_shard(leaf.shard);
    if (!is_input && leaf.index != 0) text += concat(" index ", leaf.index);
    if (!has_name && !leaf.name.empty()) text += " named " + quoted(leaf.name);
    if (leaf.offloaded) text += " offloaded";
    if (leaf.states != 0) text += concat(" with ", leaf.states, " states");
    if (leaf.others != 0) text += concat(" spread ", leaf.others);
    return text;
  }

  // Slots that no call makes and that are no leaves: other views of a buffer or of a leaf, and what
  // instructions fill.
  void print_views() {
    bool any = false;
    for (size_t i = 0; i < makers_.size(); ++i) {
      if (makers_[i].kind != SlotMaker::Kind::kView) continue;
      if (!any) out_ << "views\n";
      any = true;
      out_ << "    " << print_slot(static_cast<SlotId>(i)) << "\n";
    }
  }

  // Those that are larger than what is known to lie in them, or of which nothing is known.
  void print_buffers() {
    const std::vector<int64_t> usual = usual_bytes(program_, makers_);
    bool any = false;
    for (size_t i = 0; i < usual.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      if (buffer.bytes == usual[i]) continue;
      if (!any) out_ << "buffers\n";
      any = true;
      out_ << "    " << i << ": " << buffer.bytes << " bytes @" << buffer.offset << "\n";
    }
  }

  std::string print_call(const Call& call) {
    std::vector<std::string> results;
    for (SlotId id : call.results) results.push_back(print_slot(id));
    std::vector<std::string> operands;
    for (const auto& operand : call.operands) operands.push_back(print_operand(operand));
    std::string text = results.empty() ? "" : join(results, ", ") + " = ";
    text += c10::toString(call.op.operator_name()) + "(" + join(operands, ", ") + ")  ";
    text += call.backward ? "backward" : "forward";
    if (call.taskgraph != -1) text += concat(" ", call.taskgraph);
    text += print_mode(call);
    if (call.expects) text += "  expects " + print_constant(*call.expects);
    for (SlotId id : call.frees) text += "  free " + print_slot_name(id);
    return text;
  }

  void print_segment(size_t index) {
    const Segment& segment = program_.segments[index];
    const SegmentTask usual = usual_task(segment.name);
    out_ << "segment " << print_words(segment.name);
    if (usual.kind != segment.kind || usual.chunk != segment.chunk) {
      const char* const kinds[] = {"forward", "backward", "weights"};
      out_ << "  " << kinds[static_cast<size_t>(segment.kind)] << " of chunk " << segment.chunk;
    }
    out_ << "\n";
    for (const auto& call : segment.calls) out_ << "    " << print_call(call) << "\n";
    const SegmentOutputs& outputs = program_.outputs[index];
    out_ << "    return loss " << print_slot_name(outputs.loss);
    for (const auto& metric : outputs.metrics) {
      out_ << ", " << word_or_quoted(metric.collection) << " " << quoted(metric.name) << " "
           << print_slot_name(metric.slot);
    }
    out_ << "\n";
  }

  const Program& program_;
  const CostText costs_;
  std::ostream& out_;
  const std::vector<SlotMaker> makers_;
  std::set<SlotId> unusual_buffers_;
  std::set<SlotId> shown_;
};

void print_unusual(const Program& program, int usual_stage, std::ostream& out) {
  if (program.stage != usual_stage) out << "stage     " << program.stage << "\n";
  if (program.has_guards != usual_guards(program)) {
    out << "guards    " << (program.has_guards ? "yes" : "no") << "\n";
  }
  if (program.guard_tolerance != 0) {
    out << "tolerance " << print_constant(program.guard_tolerance) << "\n";
  }
  if (program.arena_bytes != usual_arena(program)) {
    out << "arena     " << program.arena_bytes << " bytes\n";
  }
  std::vector<std::string> written;
  for (int leaf : program.written_leaves) written.push_back(print_leaf_name(program, leaf));
  if (!written.empty()) out << "writes    " << join(written, ", ") << "\n";
}

}  // namespace

std::string print_slot_name(SlotId id) { return id == kNoSlot ? "_" : concat("s", id); }

std::string print_leaf_name(const Program& program, int leaf) {
  const std::string& name = program.leaves[static_cast<size_t>(leaf)].name;
  return leaf_named(program, name) == leaf ? quoted(name) : concat("leaf ", leaf);
}

std::string print_words(const std::string& name) {
  const auto belongs = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == ' ' || c == ',';
  };
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), belongs) &&
                     name.front() != ' ' && name.back() != ' ' &&
                     name.find("  ") == std::string::npos &&
                     name.find(", role") == std::string::npos;
  return plain ? name : quoted(name);
}

void print_program(const Program& program, int usual_stage, CostText costs, std::ostream& out) {
  print_unusual(program, usual_stage, out);
  ProgramPrinter(program, costs, out).print();
}

}  // namespace epl

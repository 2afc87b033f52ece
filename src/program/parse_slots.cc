#include "program/parse_slots.h"

#include "base/text.h"

namespace epl {
namespace {

constexpr int64_t kMostArenaBytes = int64_t{1} << 46;  // places can be counted

int64_t parse_place(TextLine& line) {
  const int64_t place = line.integer();
  if (place < -kMostArenaBytes || place > kMostArenaBytes) line.fail("a place behind any arena");
  return place;
}

}  // namespace

int parse_leaf_name(TextLine& line, const Program& program) {
  if (line.take("leaf")) return line.index(program.leaves.size());
  const std::string name = line.string();
  const int leaf = leaf_named(program, name);
  if (leaf < 0) line.fail("no leaf is named \"" + name + "\"");
  return leaf;
}

SlotId SlotParser::parse_name(TextLine& line) const {
  line.expect("s");
  return static_cast<SlotId>(line.index(most_));
}

SlotId SlotParser::parse_use(TextLine& line) {
  if (line.take("_")) return kNoSlot;
  const SlotId id = parse_name(line);
  if (written_.count(id) == 0) wanted_.emplace(id, line);
  return id;
}

SlotId SlotParser::parse_definition(TextLine& line) {
  if (line.take("_")) return kNoSlot;
  const SlotId id = parse_name(line);
  Written written{parse_type(line), line, {}, {}, {}, {}, 0};
  if (line.take("by role")) written.by_role = line.integer();
  if (line.take("@")) {
    written.offset = parse_place(line);
    if (written.type.layout != c10::kStrided) line.fail("only dense tensors lie in the arena");
    if (line.take("in buffer")) written.buffer = line.index(most_);
  } else if (line.take("of")) {
    written.leaf = line;
    if (line.take("leaf")) {
      line.integer();
    } else {
      line.string();
    }
  } else if (line.take("made")) {
    written.made = line.looking_at_digit() || line.looking_at("-") ? line.small_integer() : 0;
  }
  written.line = line;
  check_again(line, id, written);
  written_.emplace(id, std::move(written));
  return id;
}

// What comes again has the same type and place; only the first says more of it.
void SlotParser::check_again(const TextLine& line, SlotId id, const Written& again) const {
  const auto found = written_.find(id);
  if (found == written_.end()) return;
  const bool same =
      found->second.type.same_place(again.type) && found->second.by_role == again.by_role &&
      found->second.offset == again.offset && !again.buffer && !again.made && !again.leaf;
  if (!same) line.fail(concat("s", id, " was something else before"));
}

void SlotParser::parse_buffer(TextLine& line) {
  const int index = line.index(most_);
  line.expect(":");
  Buffer buffer;
  buffer.bytes = parse_place(line);
  line.expect("bytes @");
  buffer.offset = parse_place(line);
  if (!buffers_.emplace(index, WrittenBuffer{buffer, line}).second) {
    line.fail(concat("buffer ", index, " comes twice"));
  }
}

void SlotParser::place_all(Program& program) {
  for (const auto& [id, line] : wanted_) {
    if (written_.count(id) == 0) line.fail(concat("s", id, " is not defined"));
  }
  Slot nothing;
  nothing.where = Slot::Where::kMadeByOperator;
  const SlotId end = written_.empty() ? 0 : written_.rbegin()->first + 1;
  program.slots.assign(static_cast<size_t>(end), nothing);
  const std::vector<SlotMaker> makers = slot_makers(program);
  place_slots(program, makers);
  place_buffers(program, makers);
}

void SlotParser::place_slots(Program& program, const std::vector<SlotMaker>& makers) {
  BufferGuess buffers(program, makers);
  for (auto& [id, written] : written_) {
    Slot& slot = program.slots[static_cast<size_t>(id)];
    const SlotMaker& maker = makers[static_cast<size_t>(id)];
    if (maker.kind == SlotMaker::Kind::kNobody) {
      written.line.fail(concat("nobody reads or writes s", id));
    }
    if (written.offset) {
      slot.where = Slot::Where::kArena;
      slot.index = place_in_arena(id, written, buffers);
    } else if (written.leaf) {
      slot.where = Slot::Where::kLeaf;
      slot.index = parse_leaf_name(*written.leaf, program);
    } else if (written.made) {
      slot.index = *written.made;
    } else {
      slot = usual_place(program, id, maker);
    }
    slot.type = written.type;
    slot.by_role = written.by_role;
  }
}

int SlotParser::place_in_arena(SlotId id, const Written& written, BufferGuess& buffers) {
  const int64_t offset = *written.offset;
  const int buffer = written.buffer.value_or(buffers.guess(id, offset));
  buffers.tell(id, offset, buffer);
  const int64_t known = offsets_.emplace(buffer, offset).first->second;
  if (known != offset) written.line.fail(concat("buffer ", buffer, " lies @", known));
  return buffer;
}

const TextLine& SlotParser::last_line() const {
  return buffers_.empty() ? written_.rbegin()->second.line : buffers_.rbegin()->second.line;
}

void SlotParser::place_buffers(Program& program, const std::vector<SlotMaker>& makers) {
  const int of_slots = offsets_.empty() ? 0 : offsets_.rbegin()->first + 1;
  const int of_lines = buffers_.empty() ? 0 : buffers_.rbegin()->first + 1;
  program.buffers.resize(static_cast<size_t>(std::max(of_slots, of_lines)));
  for (const auto& [index, offset] : offsets_) {
    program.buffers[static_cast<size_t>(index)].offset = offset;
  }
  const std::vector<int64_t> usual = usual_bytes(program, makers);
  for (size_t i = 0; i < usual.size(); ++i) {
    const bool known = usual[i] != kNoBytes || buffers_.count(static_cast<int>(i)) != 0;
    if (!known) last_line().fail(concat("buffer ", i, " is not defined"));
    program.buffers[i].bytes = usual[i];
  }
  for (const auto& [index, written] : buffers_) {
    const auto known = offsets_.find(index);
    const bool elsewhere = known != offsets_.end() && known->second != written.buffer.offset;
    if (elsewhere) written.line.fail(concat("buffer ", index, " lies @", known->second));
    program.buffers[static_cast<size_t>(index)] = written.buffer;
  }
}

}  // namespace epl

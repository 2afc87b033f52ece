// Slots of a Program's text: defined in one place, used in others, and placed when all is known.
// For program/parse_program.cc alone.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/text_line.h"
#include "program/program.h"
#include "program/text_rules.h"

namespace epl {

// The number of the leaf that is named, or that stands there as "leaf 3".
int parse_leaf_name(TextLine& line, const Program& program);

class SlotParser {
 public:
  // Numbers of slots are below `most`, so that a fault in a text does not fill the memory.
  explicit SlotParser(size_t most) : most_(most) {}

  size_t most() const { return most_; }

  SlotId parse_definition(TextLine& line);  // "s4 f32[4] @64", or "_"
  SlotId parse_use(TextLine& line);         // "s4", or "_"
  void parse_buffer(TextLine& line);        // "3: 64 bytes @128"

  // Makes slots and buffers of the program, all else of which is there. Throws where a slot is used
  // that nobody defines.
  void place_all(Program& program);

 private:
  struct Written {
    TensorType type;
    TextLine line;                  // behind the definition
    std::optional<int64_t> offset;  // in the arena
    std::optional<int> buffer;
    std::optional<int> made;       // by an operator, with that index
    std::optional<TextLine> leaf;  // at the name of the leaf that it is a view of
    int64_t by_role = 0;
  };
  struct WrittenBuffer {
    Buffer buffer;
    TextLine line;
  };

  SlotId parse_name(TextLine& line) const;
  void check_again(const TextLine& line, SlotId id, const Written& again) const;
  void place_slots(Program& program, const std::vector<SlotMaker>& makers);
  int place_in_arena(SlotId id, const Written& written, BufferGuess& buffers);
  const TextLine& last_line() const;
  void place_buffers(Program& program, const std::vector<SlotMaker>& makers);

  size_t most_;
  std::map<SlotId, Written> written_;
  std::map<SlotId, TextLine> wanted_;  // used where nobody had defined them yet
  std::map<int, WrittenBuffer> buffers_;
  std::map<int, int64_t> offsets_;  // of buffers
};

}  // namespace epl

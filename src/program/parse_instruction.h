// One instruction of a Program's text. For program/parse_program.cc alone.
#pragma once

#include "base/text_line.h"
#include "program/parse_slots.h"
#include "program/program.h"

namespace epl {

// Of a cost that does not say its bytes: they are known once slots have their types.
inline constexpr int64_t kBytesThatItMoves = -1;

// The one behind those that the program has; all else of the program but its slots must be there.
Instruction parse_instruction(TextLine& line, const Program& program, size_t transfers,
                              SlotParser& slots);

}  // namespace epl

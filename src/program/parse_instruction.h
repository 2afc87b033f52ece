// One instruction of a Program's text. For program/parse_program.cc alone.
#pragma once

#include "base/text_line.h"
#include "program/parse_slots.h"
#include "program/program.h"

namespace epl {

// The one behind those that the program has; all else of the program but its slots must be there.
Instruction parse_instruction(TextLine& line, const Program& program, size_t transfers,
                              SlotParser& slots);

}  // namespace epl

// The parts of a Plan's text. For program/parse.cc alone.
#pragma once

#include <string>

#include "base/text_line.h"
#include "program/program.h"

namespace epl {

// Title, drawing, and what the drawing does not show.
Schedule parse_schedule(TextLines& lines);

// What a program's text is read with.
struct ProgramContext {
  int stage = 0;         // where the text names none
  size_t transfers = 0;  // of the plan
  size_t most_slots = 0;
};

// All lines of a program but the one that opens it.
Program parse_program(TextLines& lines, const ProgramContext& context);

// "forward 0" or "\"in quotes\"", up to the mark.
std::string parse_words(TextLine& line, const std::string& mark);

// "1.5 MiB" follows from the rest.
void skip_bytes(TextLine& line);

std::vector<int> parse_numbers(TextLine& line);  // "0, 1, 1"; may be none

}  // namespace epl

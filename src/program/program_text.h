// The text of one Program of a Plan, and of the names in it.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "program/program.h"
#include "program/text.h"

namespace epl {

// All but the line that opens it.
void print_program(const Program& program, int usual_stage, CostText costs, std::ostream& out);

// "   3  run     step  micro batch 0", without the number.
std::string print_instruction(const Program& program, size_t index);
// "  [48 B, 2.005 us]", or nothing where there is no cost.
std::string print_cost(const Program& program, const Instruction& instruction);

std::string print_slot_name(SlotId id);  // "s3", or "_" where there is none
// The leaf's name, or its number where another one before it has that name.
std::string print_leaf_name(const Program& program, int leaf);
// A name of several words as it is, any other in quotes.
std::string print_words(const std::string& name);

// What the drawing of a schedule does not show, where it is not as program/text_rules.h says.
std::string print_unusual_schedule(const Schedule& schedule);

}  // namespace epl

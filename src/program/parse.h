// From the text form of a Plan back to the Plan.
//
//   const Plan plan = parse_plan(print_plan(planned));
//
// print_plan(parse_plan(text)) is the text again, but for blanks, and the Plan has all that the
// printed one had (program/text.h says what a text does not hold). What can be read from the rest,
// such as sizes in bytes and the times of a schedule, must be as print_plan writes it. A Plan that
// was parsed is not yet one that runs: verify_plan() looks at that.
#pragma once

#include <string>

#include "program/program.h"

namespace epl {

// Throws epl::Error that names the line and what was expected there.
Plan parse_plan(const std::string& text);

}  // namespace epl

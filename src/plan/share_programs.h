// Roles of a stage whose operators are cut alike have the same Program but for the pieces that they
// have: it becomes one (Program::roles), in which `by_role` says what differs.
//
// Two Programs are the same where the text of one, moved to the other's role, is the text of the
// other: the text holds all of a Program, so that nothing which differs can be overlooked. Of a
// stage mostly two are left: that of the first device, which has the gradients of parameters that
// all of them have, and adds what must be added once; and that of all others. Uneven pieces leave
// more.
#pragma once

#include "program/program.h"

namespace epl {

// Of a plan with a Program for each role.
void share_programs(Plan& plan);

}  // namespace epl

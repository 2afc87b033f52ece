// What holds in every Plan, checked once before it runs:
//   - every slot is written before it is read, and a tensor made by an operator is freed once;
//   - no two values that live at the same time share bytes of the arena;
//   - every place lies inside the arena; every micro batch is loaded before it is run;
//   - every gradient is updated exactly once, after the last micro batch;
//   - a collective runs along an axis of its mesh, with as many pieces as that has devices, and all
//     programs of a stage call the same ones in the same order.
#pragma once

#include "program/program.h"

namespace epl {

// Throws InternalError naming the call or instruction that is wrong.
void verify_plan(const Plan& plan);

}  // namespace epl

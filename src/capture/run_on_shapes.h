// An operator whose arguments may be ghosts: what it would make, without making it.
//
// Where no argument is a ghost and what it makes is small, or lies in memory that is there already,
// its kernel runs. Views run their kernel too, which looks at no contents. An operator that writes
// gives back what it wrote. All others are asked for shapes: a row (ops/shape.h), else LibTorch's
// Meta device, by tensors that stand for the arguments. A composite operator that neither of them
// knows runs in parts, which come here one by one. What nobody knows is refused by name.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "capture/ghost_answers.h"

namespace epl {

// `stack` holds the arguments before and the results after.
void run_on_shapes(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                   torch::jit::Stack* stack, const CallPlace* place);

bool reads_ghosts(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

// Whether this thread is inside of it: what runs then is part of an operator.
bool is_running_on_shapes();

}  // namespace epl

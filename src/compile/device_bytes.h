// What a device holds while it runs its Program, in bytes: what memory.limit is about.
#pragma once

#include "compile/compile.h"

namespace epl {

// The arena, with gradients in it; the parameters, state and constants that the role's graph reads;
// and the optimizer's states for the gradients that it makes. What devices of a worker share counts
// whole for each of them. Not counted: what kernels allocate for themselves, and messages.
int64_t bytes_of_device(const Graph& graph, const Plan& plan, size_t role,
                        const CompileOptions& options);

}  // namespace epl

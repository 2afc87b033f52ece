// What a device holds while it runs its Program, in bytes: what memory.limit is about.
#pragma once

#include "compile/compile.h"
#include "plan/zero.h"

namespace epl {

// The arena, with gradients in it; the parameters, state and constants that the role's graph reads;
// and the optimizer's states for the gradients that it makes: where workers keep shares of them, on
// the worker that keeps most; of what is offloaded, as much as is near at once. What devices of a
// worker share counts whole for each of them. Not counted: what kernels allocate for themselves,
// and messages.
int64_t bytes_of_device(const Graph& graph, const Plan& plan, size_t role,
                        const CompileOptions& options, const ZeroOptions& zero);

// Of the role whose devices hold most, as the step is planned.
int64_t most_bytes_of_device(const CompiledStep& step, const CompileOptions& options,
                             const ZeroOptions& zero);

}  // namespace epl

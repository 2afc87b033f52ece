// Gradient checkpointing: what each role of a step keeps for backward, and what it makes again.
//
//   step.plan = lower_within_memory(step, config, options, lowering, lower);
//
// All is kept where nobody asks. With gradient_checkpoint.type = "collection" what the program
// marked is kept, with "auto" as little as one recomputation of each value allows. With
// memory.limit it is the cheapest choice whose Plan, as it is lowered, stays within the limit on
// every device. "auto" and a limit that can just be kept are the same choice. In a pipeline values
// are made again while the gradient of the next stage is on its way, as far as that takes no more
// memory. Roles of a stage that run the same nodes, such as the parts of one that is split,
// choose together; a choice never crosses chunks. By estimated costs: all workers choose alike.
#pragma once

#include <epl/config.h>

#include "compile/choice_lowering.h"
#include "compile/compile.h"
#include "plan/lower.h"

namespace epl {

// Rewrites the graphs of the step and gives their Plan. Throws epl::Error where no choice keeps the
// limit: it says the least number of bytes that was found.
Plan lower_within_memory(CompiledStep& step, const Config& config, const CompileOptions& options,
                         const LowerOptions& lowering, const LowerStep& lower);

}  // namespace epl

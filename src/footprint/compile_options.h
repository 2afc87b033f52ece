// What compile is told of a trainer's model: what its optimizers keep, what earlier steps have left
// where, what rests elsewhere and what workers may keep parts of.
#pragma once

#include <epl/config.h>

#include <optional>
#include <set>
#include <string>

#include "compile/compile.h"
#include "footprint/step_memory.h"
#include "runtime/clip.h"

namespace epl {

// `alone`: parameters whose memory the program alone held when the step began; none before a step.
CompileOptions compile_options(const MemorySubject& subject, const ClipOptions& clipping,
                               const Graph& recorded, const Placement& placement,
                               const std::optional<std::set<std::string>>& alone);

}  // namespace epl

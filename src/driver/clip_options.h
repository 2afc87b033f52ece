// What a user asks for by TrainerOptions, checked.
#pragma once

#include <epl/trainer.h>

#include "runtime/clip.h"

namespace epl {

// Throws epl::Error where it cannot be.
ClipOptions clip_options(const TrainerOptions& options);

}  // namespace epl

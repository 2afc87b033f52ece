// Targets that a loss ignores, on a part of the rows.
#pragma once

#include <cstdint>

namespace epl {

// How often epl_rows::note_ignored has met a target that its loss ignores, in this process.
int64_t ignored_targets_seen();

}  // namespace epl

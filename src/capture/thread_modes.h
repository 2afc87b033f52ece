// What LibTorch keeps for each thread, or for all, and by which the same code calls other
// operators: autocast and its type, the default type, inference mode. A recording is right only
// under the modes that it was made in.
#pragma once

#include <cstdint>
#include <vector>

namespace epl {

void append_thread_modes(std::vector<int64_t>& key);

}  // namespace epl

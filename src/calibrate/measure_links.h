// What devices do together: copying side by side, and collectives of EPL's transports.
#pragma once

#include <string>
#include <vector>

#include "calibrate/timing.h"
#include "cost/collective_cost.h"
#include "cost/cost_table.h"
#include "runtime/cores.h"

namespace epl {

// Of copies that `threads` threads make at once, each on a core of its own: all of them together.
CopySpeed measure_copies(int threads, const std::vector<CoreShare>& cores, const Timing& timing);

// Times of some collectives among `members` threads, each on a core of its own. kThreads,
// kSharedMemory or kDirect, the last over loopback. The algorithms are those of processes as well.
std::vector<CollectiveTime> measure_collectives(LinkAlgorithm algorithm, int members,
                                                const std::vector<int64_t>& bytes,
                                                const std::vector<CoreShare>& cores,
                                                const Timing& timing);

}  // namespace epl

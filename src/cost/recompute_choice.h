// Which operations run again in backward, so that what they made need not be kept.
//
//   const RecomputeChoice choice = cheapest_within(model, Again(), limit);
//   if (!choice.fits) ...                 // choice.outcome.peak is the least that was found
//
// Two views are joined, since neither is enough alone (docs/memory.md). A minimum cut gives, for a
// price of time in bytes, the exact optimum of bytes kept plus seconds spent, for the whole step at
// once; but it minimises sums, not the peak. The exact profile of memory then changes single
// operations, those that lie at the peak, until the limit is kept, and takes back whatever turns
// out not to be needed.
#pragma once

#include <vector>

#include "cost/recompute_model.h"

namespace epl {

struct RecomputeChoice {
  Again again;
  RecomputeOutcome outcome;
  bool fits = false;
};

// The least seconds with a peak of at most `limit` bytes, as far as the search finds it. Where it
// finds none that fits: the least peak.
RecomputeChoice cheapest_within(const RecomputeModel& model, int64_t limit);

// The least peak, and the least seconds for it.
RecomputeChoice least_memory(const RecomputeModel& model);

// All that is repeatable runs again, up to what can be kept without a higher peak.
RecomputeChoice all_again(const RecomputeModel& model);

// The optimum of kept bytes and seconds for some prices, from all kept to least kept.
std::vector<Again> cut_frontier(const RecomputeModel& model);

}  // namespace epl

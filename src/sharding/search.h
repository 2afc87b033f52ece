// The search for the cheapest layouts: those with the least seconds, and with the weight of
// matrices that stay uncut (units.h).
//
// Units are decided one after another. What the rest of them can see of the decisions made so far
// is how the values lie that are still to be read or made: of all ways to the same view the
// cheapest one is kept. So the result is the best there is, unless more views than kMostViews are
// open at once (then the dearest are dropped). A view is dropped, too, where another one is so much
// cheaper that all values could be brought from its layouts into these for the difference.
#pragma once

#include "sharding/units.h"

namespace epl {

struct Decision {
  std::vector<size_t> options;  // by unit
  std::vector<Layout> values;   // by ValueId
  double seconds = 0;           // of all that runs and moves
  int uncut_matrices = 0;       // parameters that stay whole though they could be cut
  bool complete = true;         // no view had to be dropped for want of room

  double weighed() const { return seconds + kWeightOfUncutMatrix * uncut_matrices; }
};

constexpr size_t kMostViews = 250;

// Impossible where no assignment is legal: seconds >= kImpossible then.
Decision search_layouts(const ShardingRequest& request, const Units& units);

}  // namespace epl

// Which operations run again in backward, so that what they made need not be kept.
//
//   RecomputeChooser chooser(model);
//   const RecomputeChoice choice = chooser.cheapest_within(limit);
//   if (!choice.fits) ...                 // choice.outcome.peak is the least that was found
//
// Two views are joined, since neither is enough alone (docs/memory.md). A minimum cut gives, for a
// price of time in bytes, the exact optimum of bytes kept plus seconds spent, for the whole step at
// once; but it minimises sums, not the peak. The exact profile of memory then changes single
// operations, those that lie at the peak, until the limit is kept, and takes back whatever turns
// out not to be needed.
#pragma once

#include <optional>
#include <vector>

#include "cost/recompute_model.h"

namespace epl {

struct RecomputeChoice {
  Again again;
  RecomputeOutcome outcome;
  bool fits = false;
};

// The searches on one model, which share where they begin.
class RecomputeChooser {
 public:
  explicit RecomputeChooser(const RecomputeModel& model) : model_(model) {}

  // The least seconds with a peak of at most `limit` bytes, as far as the search finds it. Where it
  // finds none that fits: the least peak.
  RecomputeChoice cheapest_within(int64_t limit);

  // The least peak, and the least seconds for it.
  const RecomputeChoice& least_memory();

  // All that is repeatable runs again, up to what can be kept without a higher peak.
  RecomputeChoice all_again() const;

 private:
  RecomputeChoice find_least();
  const std::vector<Again>& starts();

  const RecomputeModel& model_;
  std::vector<Again> starts_;
  std::optional<RecomputeChoice> least_;
};

// For one question.
RecomputeChoice cheapest_within(const RecomputeModel& model, int64_t limit);
RecomputeChoice least_memory(const RecomputeModel& model);
RecomputeChoice all_again(const RecomputeModel& model);

}  // namespace epl

// Targets that a loss ignores, on a part of the rows.
#pragma once

#include <cstdint>

namespace epl {

// How often a mean over targets has met one that it ignores, in this process: in replayed steps by
// epl_rows::note_ignored, elsewhere by whoever has an IgnoredTargetsWatch.
int64_t ignored_targets_seen();

// While it stands, losses that this thread computes by LibTorch's own operators are looked at.
class IgnoredTargetsWatch {
 public:
  IgnoredTargetsWatch();
  ~IgnoredTargetsWatch();
  IgnoredTargetsWatch(const IgnoredTargetsWatch&) = delete;
  IgnoredTargetsWatch& operator=(const IgnoredTargetsWatch&) = delete;

 private:
  uint64_t callback_;
};

}  // namespace epl

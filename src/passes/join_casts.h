// One cast a value and type, where mixed precision made several (capture/amp_scope.h): the query,
// the key and the value of an attention read the same input; a layer that is used twice casts its
// weight for each use. What was widened and is narrowed again is the value that it was at first.
//
// Needs   Purify: no storage is written between two casts. In a pipeline AssignChunks.
// Leaves  for each value, type and chunk one aten::_to_copy, where the first one stood; DeadCode
//         removes what nobody reads any longer.
// Keeps   all numbers to the bit, and the order of the nodes. Chunks of a pipeline keep casts of
//         their own, and so do forward and backward: a value would have to be sent, or kept, that
//         one call makes again.
#pragma once

#include "ir/pass.h"

namespace epl {

class JoinCasts final : public Pass {
 public:
  std::string name() const override { return "JoinCasts"; }
  bool run(Graph& graph) override;
};

}  // namespace epl

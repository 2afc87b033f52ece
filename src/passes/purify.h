// Replaces operators that write in place by operators that make a new value, so that later passes
// may move, copy and recompute nodes.
//
//   %1: f32[4] = aten::mul(%0, %0)                 %1: f32[4] = aten::mul(%0, %0)
//   %2: f32[4] @%1 = aten::relu_(%1)        ->     %3: f32[4] = aten::relu(%1)
//   ... reads %1 or %2 ...                         ... reads %3 ...
//
// A value that shares memory with one that was written is read from what was written last. Where
// the write covered it only in part (x[0] = y, then x is read), the whole is put together by
// aten::as_strided_scatter and seen through aten::as_strided.
//
// Needs   nothing.
// Leaves  in place: writes to state that outlives the step (parameters, buffers, closed-over
//         tensors), and to storages that some operator writes for which LibTorch has no pure
//         variant.
// Keeps   what every node computes; the order of nodes.
#pragma once

#include "ir/pass.h"

namespace epl {

class Purify final : public Pass {
 public:
  std::string name() const override { return "Purify"; }
  bool run(Graph& graph) override;
};

// Whether two places of one storage may share an element. Exact for places of the same shape, such
// as the chunks of one tensor; else it errs on the side of yes.
bool may_overlap(const TensorType& a, const TensorType& b);

}  // namespace epl

// Lets forward read masks as they were drawn, after it is chosen which of them are kept as truth
// values (passes/pack_masks.h).
//
//   %8: b8[4] = aten::_to_copy(%3, bool)              %8: b8[4] = aten::_to_copy(%3, bool)
//   %9: f32[4] = aten::_to_copy(%8, float)      ->    %4: f32[4] = aten::div.Scalar(%3, 0.9)
//   %4: f32[4] = aten::div.Scalar(%9, 0.9)            ...
//   ...                                               %10: f32[4] = aten::_to_copy(%8, float)
//   {backward} %10: f32[4] = aten::_to_copy(%8, float) {backward}
//
// Needs   PackMasks, and Recompute where something runs again.
// Leaves  no forward node that unpacks a mask, and no truth values of one that nobody reads. Where
//         nothing runs again the graph is what it was before PackMasks.
// Keeps   all numbers to the bit; backward; the order of the nodes.
#pragma once

#include "ir/pass.h"

namespace epl {

class UnpackMasks final : public Pass {
 public:
  std::string name() const override { return "UnpackMasks"; }
  bool run(Graph& graph) override;
};

}  // namespace epl

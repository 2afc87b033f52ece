// Random masks can be kept small: what a dropout drew is 0 or 1, and a truth value holds as much in
// a quarter of the bytes.
//
//   %3: f32[4] = aten::bernoulli.p(%2, 0.9, none)     %3: f32[4] = aten::bernoulli.p(%2, 0.9, none)
//   %4: f32[4] = aten::div.Scalar(%3, 0.9)      ->    %8: b8[4] = aten::_to_copy(%3, bool)
//                                                     %9: f32[4] = aten::_to_copy(%8, float)
//                                                     %4: f32[4] = aten::div.Scalar(%9, 0.9)
//
// Nothing is kept by that. It is what the chooser of gradient checkpointing has to choose from
// (cost/recompute_choice.h): %9 and %4 may run again, at their cost, and then %8 is what is kept;
// or %4 is. UnpackMasks (passes/unpack_masks.h) then lets forward read what was drawn again.
//
// Needs   Purify. In a pipeline chunks.
// Leaves  a mask that backward reads, itself or in what is made of it alone, is read by way of a
//         tensor of truth values; by readers of its own chunk.
// Keeps   all numbers to the bit: only what operators give that draw 0 or 1 is packed. What is
//         returned, and the order of all other nodes.
#pragma once

#include "ir/pass.h"

namespace epl {

class PackMasks final : public Pass {
 public:
  std::string name() const override { return "PackMasks"; }
  bool run(Graph& graph) override;
};

}  // namespace epl

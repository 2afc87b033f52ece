// Gives each gradient memory of its own.
//
// Autograd hands one tensor to two parameters where their gradients are equal (a + b), a broadcast
// view where they are constant (sum), or the gradient of the loss itself. Clipping, accumulation
// and updates write gradients in place, so each must stand alone.
//
// Needs   nothing.
// Leaves  gradients that are dense or sparse, share their storage with no other returned value and
//         are no leaves; an aten::clone where that was not so.
// Keeps   all values.
#pragma once

#include "ir/pass.h"

namespace epl {

class OwnGradients final : public Pass {
 public:
  std::string name() const override { return "OwnGradients"; }
  bool run(Graph& graph) override;
};

}  // namespace epl

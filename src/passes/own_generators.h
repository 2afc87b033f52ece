// Gives every random operator an argument for its generator, so that each device draws from a
// stream of its own.
//
// torch::randn_like, torch::rand and their kin have overloads without one: those always draw from
// the generator of the process, which the devices of a worker would share in an order that nobody
// knows.
//
// Needs   nothing.
// Leaves  no random operator without a generator argument. Throws epl::Error where LibTorch has no
//         other form of an operator.
// Keeps   all values: the forms draw the same numbers from the same generator.
#pragma once

#include "ir/pass.h"

namespace epl {

class OwnGenerators final : public Pass {
 public:
  std::string name() const override { return "OwnGenerators"; }
  bool run(Graph& graph) override;
};

}  // namespace epl

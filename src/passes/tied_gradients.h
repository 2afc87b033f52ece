// TiedGradients: a parameter that several chunks of a pipeline use gets a gradient in each of them.
//
// Autograd sums the gradients of all uses at once. Their sum over micro batches and devices is the
// same in any grouping, so each chunk keeps the sum of its own uses, and only the sums over all
// micro batches are added, by the update. Otherwise every micro batch would carry the gradient of a
// whole embedding table from stage to stage.
#pragma once

#include "ir/pass.h"

namespace epl {

// After AssignChunks, before OwnGradients. Leaves sums without a reader to DeadCode.
class TiedGradients : public Pass {
 public:
  std::string name() const override { return "tied gradients"; }
  bool run(Graph& graph) override;
};

}  // namespace epl

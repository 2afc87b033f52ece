// Gives a parameter that several chunks of a pipeline use a gradient in each of them.
//
//   %7 = aten::mul(%6, %3)      chunk 1
//   %9 = aten::mul(%8, %0)      chunk 0
//   %10 = aten::add(%7, %9)     chunk 0
//   gradient "w" %10                            ->    gradient "w" %9, gradient "w" %7
//
// Autograd sums the gradients of all uses at once. Their sum over micro batches and devices is the
// same in any grouping, so each chunk keeps the sum of its own uses, and only the sums over all
// micro batches are added, by the update. Otherwise every micro batch would carry the gradient of a
// whole embedding table from stage to stage.
//
// Needs   AssignChunks.
// Leaves  gradients whose terms, where plain sums of several chunks made them, lie in one chunk
//         each: as many of a parameter as chunks use it. Sums that nobody reads any more are for
//         DeadCode.
// Keeps   the sum of a parameter's gradients; all other nodes.
#pragma once

#include "ir/pass.h"

namespace epl {

class TiedGradients final : public Pass {
 public:
  std::string name() const override { return "TiedGradients"; }
  bool run(Graph& graph) override;
};

}  // namespace epl

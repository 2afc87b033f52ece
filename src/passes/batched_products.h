// Gives batched products back the dimensions that torch::matmul merged.
//
// matmul of [rows, heads, m, k] and [rows, heads, k, n] arrives as a product of [rows * heads, m,
// k] and [rows * heads, k, n], with reshapes around it. Heads are no piece of the merged dimension
// then, so that attention could not be cut over them. Afterwards it is one aten::matmul of four
// dimensions, forward and backward.
//
// Needs   Purify.
// Leaves  aten::matmul in place of an aten::bmm whose operands were merged alike.
// Keeps   all other nodes; reshapes that nobody reads any more are for DeadCode.
#pragma once

#include "ir/pass.h"

namespace epl {

class BatchedProducts final : public Pass {
 public:
  std::string name() const override { return "BatchedProducts"; }
  bool run(Graph& graph) override;
};

}  // namespace epl

// Makes sparse gradients dense before they are reduced (communication.sparse_as_dense).
//
// A dense sum costs the whole parameter's bytes but no gathering of indices: better where most rows
// are touched in every step.
//
// Needs   nothing.
// Leaves  no sparse gradient: an aten::to_dense behind each one that was.
// Keeps   all values.
#pragma once

#include "ir/pass.h"

namespace epl {

class DenseGradients final : public Pass {
 public:
  std::string name() const override { return "DenseGradients"; }
  bool run(Graph& graph) override;
};

}  // namespace epl

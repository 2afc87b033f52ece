// Lets backward make values of the forward pass once more, in the place of keeping them.
//
//   Recompute({3, 5}).run(graph);     // nodes 3 and 5 run again (cost/recompute_choice.h)
//
// A clone of each node stands in the backward phase, right before the first backward node that
// reads something of it, behind the clones that it reads itself. All of backward then reads the
// clone, and clones of views of it; what forward made ends with its last reader there.
//
// Needs   purity: what the nodes read is as it was when they ran (cost/recompute_units.h asks). In
//         a pipeline: chunks.
// Leaves  clones of the phase, TaskGraph and chunk of backward; without what forward made for
//         backward alone.
// Keeps   all that is returned, and the order of all other nodes. Of a value that crosses chunks
//         the readers of its own chunk alone take the clone.
#pragma once

#include <vector>

#include "ir/pass.h"

namespace epl {

class Recompute final : public Pass {
 public:
  // Indices of graph.nodes. Those that backward does not read are left alone.
  explicit Recompute(std::vector<size_t> nodes) : nodes_(std::move(nodes)) {}

  std::string name() const override { return "Recompute"; }
  bool run(Graph& graph) override;

 private:
  std::vector<size_t> nodes_;
};

}  // namespace epl

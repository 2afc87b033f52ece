// Lets a stage of a pipeline make values again while it waits for the gradient of the next one.
//
//   BringForward({7, 9}).run(graph);     // nodes 7 and 9, which backward of their chunk can begin
//   with
//
// Needs   nodes of backward that read nothing but leaves, what forward made, and each other: what
//         Recompute has cloned.
// Leaves  them in front of all other nodes of backward of their chunk, in their order.
// plan/lower.cc
//         receives what such a segment is sent behind all calls that do not need it.
// Keeps   all numbers, and the order of all other nodes. What is made earlier lives longer: whoever
//         chooses the nodes has looked what that takes.
#pragma once

#include <vector>

#include "ir/pass.h"

namespace epl {

class BringForward final : public Pass {
 public:
  // Indices of graph.nodes.
  explicit BringForward(std::vector<size_t> nodes) : nodes_(std::move(nodes)) {}

  std::string name() const override { return "BringForward"; }
  bool run(Graph& graph) override;

 private:
  std::vector<size_t> nodes_;
};

}  // namespace epl

// A Pass rewrites a Graph. compile/compile.cc holds the list of passes and their reasons.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace epl {

class Pass {
 public:
  virtual ~Pass() = default;
  virtual std::string name() const = 0;
  virtual bool run(Graph& graph) = 0;  // whether it changed anything
};

using PassList = std::vector<std::unique_ptr<Pass>>;

// Runs the passes in order and verifies the graph after each.
void run_passes(Graph& graph, const PassList& passes);

}  // namespace epl

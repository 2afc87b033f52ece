// What was recorded of a step: all that compile() knows of the user's program.
#pragma once

#include <epl/strategy.h>

#include <map>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace epl {

// By the value of a leaf: the split scope that the parameter was made in. Most were made in none.
using MadeUnder = std::map<ValueId, Strategy>;

struct StepRecording {
  StepRecording() = default;
  // A step that is recorded once, with all rows of a micro batch.
  StepRecording(Graph whole) { graphs.emplace(1, std::move(whole)); }  // NOLINT: it is one

  // By the number of devices that share the rows of a micro batch: the step with those that one of
  // them sees. 1: with all of them, which is always there.
  std::map<int, Graph> graphs;
  MadeUnder made_under = {};
  // The forward operators before which EPL itself cuts the step into stages
  // (passes/assign_taskgraphs.h). Empty where the step has its own scopes, or one stage.
  std::vector<int> cuts = {};
  bool users_backward = false;  // see Capture

  const Graph& whole() const { return graphs.at(1); }
};

}  // namespace epl

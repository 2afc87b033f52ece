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
  StepRecording(Graph graph) : whole(std::move(graph)) {}  // NOLINT: a step without scopes is one

  Graph whole;  // recorded with all rows of a micro batch
  MadeUnder made_under = {};
  // The forward operators before which EPL itself cuts the step into stages
  // (passes/assign_taskgraphs.h). Empty where the step has its own scopes, or one stage.
  std::vector<int> cuts = {};
};

}  // namespace epl

// From a captured step to what runs: the list of passes and the plan.
#pragma once

#include <epl/config.h>

#include "ir/pass.h"
#include "program/program.h"

namespace epl {

// THE list of passes, in order.
PassList standard_passes();

struct CompiledStep {
  Graph graph;  // after all passes
  Plan plan;
};

CompiledStep compile(Graph graph, const Config& config, c10::Device device);

}  // namespace epl

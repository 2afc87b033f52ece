// From a captured step to what runs: the list of passes and the plan.
#pragma once

#include <epl/config.h>

#include "ir/pass.h"
#include "program/program.h"

namespace epl {

struct CompileOptions {
  c10::Device device = c10::kCPU;
  int replicas = 1;
  int slices = 1;
  bool clips_locally = false;  // gradients are clipped before they are reduced
};

// THE list of passes, in order.
PassList standard_passes(const Config& config, const CompileOptions& options);

struct CompiledStep {
  Graph graph;  // after all passes
  Plan plan;
};

CompiledStep compile(Graph graph, const Config& config, const CompileOptions& options);

}  // namespace epl

// From a captured step to what runs: the list of passes and the plan.
#pragma once

#include <epl/config.h>

#include <map>

#include "ir/pass.h"
#include "program/placement.h"
#include "program/program.h"

namespace epl {

struct CompileOptions {
  c10::Device device = c10::kCPU;
  Placement placement = {};
  bool clips_locally = false;  // gradients are clipped before they are reduced
};

// THE list of passes, in order.
PassList standard_passes(const Config& config, const CompileOptions& options);

// Graphs are those after all passes.
struct CompiledStep {
  Graph graph;                 // of the first stage, or of all there is
  std::map<int, Graph> other;  // of stages with another number of devices, by that number
  Plan plan;

  const Graph& graph_of(size_t stage) const {
    const int devices = plan.programs[stage].devices;
    return devices == plan.programs[0].devices ? graph : other.at(devices);
  }
};

// The step as recorded with the rows that a device of the first stage sees; `other`: with the rows
// of stages that have another number of devices, by that number.
CompiledStep compile(Graph graph, const Config& config, const CompileOptions& options,
                     std::map<int, Graph> other = {});

}  // namespace epl

// From a captured step to what runs: the list of passes and the plan.
#pragma once

#include <epl/config.h>

#include <map>

#include "capture/two_sizes.h"
#include "ir/pass.h"
#include "layout/layout.h"
#include "plan/lower.h"
#include "program/placement.h"
#include "program/program.h"

namespace epl {

struct CompileOptions {
  c10::Device device = c10::kCPU;
  Placement placement = {};
  ClusterShape cluster = {};  // for what costs
  StepEndOptions end = {};
  // How parameters lie that an earlier step has cut, or left whole.
  std::map<const c10::TensorImpl*, Layout> homes = {};
};

// THE list of passes, in order.
PassList standard_passes(const Config& config, const CompileOptions& options);

// Graphs are those after all passes.
struct CompiledStep {
  Graph graph;  // of the first stage, or of all there is; with whole sizes where parts are cut
  // Where operators are cut over devices: what each program runs; empty for the others.
  std::vector<Graph> parts;
  // Of parts: each has the loss, or a metric, of its rows; else all have that of all rows.
  TwoSizes sizes;  // how what slices have is merged
  bool loss_of_slices = false;
  std::vector<bool> metrics_of_slices;
  std::vector<std::string> remarks;  // how stages of a pipeline are cut
  std::map<int, Graph> other;        // of stages with another number of devices, by that number
  Plan plan;

  // The graph with the rows that one of so many devices sees.
  const Graph& recorded_for(int devices) const {
    const auto found = other.find(devices);
    return found == other.end() ? graph : found->second;
  }

  const Graph& graph_of(size_t stage) const {
    if (stage < parts.size() && !parts[stage].leaves.empty()) return parts[stage];
    const int devices = plan.programs[stage].devices;
    return devices == plan.programs[0].devices ? graph : other.at(devices);
  }
};

// The step as recorded with the rows that a device of the first stage sees; `other`: with the rows
// of stages that have another number of devices, by that number.
CompiledStep compile(Graph graph, const Config& config, const CompileOptions& options,
                     std::map<int, Graph> other = {});

// The list of passes for what one device runs of a step whose operators are cut.
PassList local_passes(const Config& config);

// Whether several micro batches or replicas make up a step.
bool has_parts(const Config& config, const CompileOptions& options);

LowerOptions lower_options(const Config& config, const CompileOptions& options);

}  // namespace epl

// For tests: plans of graphs that are not cut.
#pragma once

#include <algorithm>
#include <vector>

#include "plan/lower.h"
#include "plan/schedules.h"

namespace epl {

// Without a pipeline; replicas of one device.
inline Plan lower(const Graph& graph, const LowerOptions& options) {
  return lower(graph, {{&graph}}, {}, options);
}

// A pipeline whose chunks are the TaskGraphs of the graph, with one device a stage.
inline Plan lower_stages(Graph graph, ScheduleRequest asked, const LowerOptions& options) {
  int chunks = 1;
  for (auto& node : graph.nodes) {
    node.chunk = node.taskgraph;
    chunks = std::max(chunks, node.chunk + 1);
  }
  asked.chunks_per_stage = chunks / asked.stages;
  asked.micro_batches = options.micro_batches;
  std::vector<Role> roles;
  for (int i = 0; i < asked.stages; ++i) roles.push_back({&graph, 1, "", i});
  return lower(graph, roles, make_schedule(asked), options);
}

}  // namespace epl

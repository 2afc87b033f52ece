// This machine as a cluster of one host, measured: a description and a table of costs.
//
//   const Calibration found = calibrate(options);
//   std::cout << print_cluster(found.cluster) << print_cost_table(found.costs);
//
// A device is one core, as EPL has it where a process has as many devices as cores.
#pragma once

#include "calibrate/measure_operators.h"
#include "config/cluster_map.h"
#include "cost/cost_table.h"
#include "ir/graph.h"

namespace epl {

struct CalibrateOptions {
  bool quick = false;            // a few seconds, and rough
  const Graph* graph = nullptr;  // its operators are timed as well
  CalibrateProgress progress = [](const std::string&) {};
};

struct Calibration {
  ClusterDescription cluster;
  CostTable costs;  // of its one kind
};

Calibration calibrate(const CalibrateOptions& options);

}  // namespace epl

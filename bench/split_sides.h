// The sides of bench_split: how their processes are started.
#pragma once

#include <string>
#include <vector>

#include "bench/crew.h"
#include "bench/split_process.h"

namespace epl::bench {

// `mode` is --serve or --check. The environment is what epl-launch sets.
inline std::vector<Start> starts_of(const SplitCase& asked, const std::string& side, int steps,
                                    const std::string& mode) {
  const int workers = asked.has_workers() ? asked.devices : 1;
  const std::string master = "127.0.0.1:" + free_port();
  std::vector<Start> starts;
  for (int i = 0; i < workers; ++i) {
    Start& start = starts.emplace_back();
    start.arguments = {mode,          side,
                       "--cases",     asked.name,
                       "--placement", asked.placement,
                       "--devices",   std::to_string(asked.devices),
                       "--steps",     std::to_string(steps),
                       "--rows",      std::to_string(asked.rows),
                       "--size",      asked.tiny ? "tiny" : "full"};
    start.environment = {{"EPL_DEVICES", std::to_string(asked.devices / workers)},
                         {"OMP_NUM_THREADS", "1"},
                         {"OPENBLAS_NUM_THREADS", "1"}};
    if (!asked.has_workers()) continue;
    start.environment["EPL_WORKER_NUM"] = std::to_string(workers);
    start.environment["EPL_WORKER_INDEX"] = std::to_string(i);
    start.environment["EPL_MASTER"] = master;
  }
  return starts;
}

}  // namespace epl::bench

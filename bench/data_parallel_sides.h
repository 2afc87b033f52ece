// The sides of bench_data_parallel: how their processes are started.
#pragma once

#include <string>
#include <vector>

#include "bench/crew.h"
#include "bench/data_parallel_process.h"

namespace epl::bench {

inline bool is_of_torch(const std::string& side) { return side.compare(0, 3, "ddp") == 0; }

// Whether its processes are the workers of one job.
inline bool is_job(const std::string& side) {
  return side == "two_workers" || side == "zero" || side == "spread";
}

inline Start start_of_torch(const std::string& side, const Workload& workload, int steps) {
  Start start = start_of_peer("ddp.py", {{"--model", workload.name},
                                         {"--rows", std::to_string(workload.rows)},
                                         {"--steps", std::to_string(steps)},
                                         {"--rate", std::to_string(kRate)},
                                         {"--momentum", std::to_string(kMomentum)}});
  start.environment["WORLD_SIZE"] = side == "ddp_limit" ? "1" : std::to_string(kDevices);
  if (workload.adam) start.arguments.insert(start.arguments.end(), {"--optimizer", "adamw"});
  if (side == "ddp_zero") start.arguments.emplace_back("--zero");
  return start;
}

// What epl-launch sets where the processes are the workers of one job.
inline Start start_of_epl(const std::string& side, const Workload& workload, int steps,
                          const std::string& mode) {
  Start start;
  start.arguments = {mode, side, "--models", workload.name, "--steps", std::to_string(steps)};
  start.environment["EPL_DEVICES"] = side == "one_worker" ? std::to_string(kDevices) : "1";
  if (is_job(side)) start.environment["EPL_WORKER_NUM"] = std::to_string(kDevices);
  if (side == "zero") start.environment["EPL_ZERO_LEVEL"] = "v0";
  if (side == "spread") start.environment["EPL_ZERO_LEVEL"] = "v2";
  return start;
}

// `mode` is --serve or --check.
inline std::vector<Start> starts_of(const std::string& side, const Workload& workload, int steps,
                                    const std::string& mode) {
  const std::string port = free_port();
  std::vector<Start> starts;
  for (int i = 0; i < (side == "one_worker" ? 1 : kDevices); ++i) {
    starts.push_back(is_of_torch(side) ? start_of_torch(side, workload, steps)
                                       : start_of_epl(side, workload, steps, mode));
    auto& environment = starts.back().environment;
    environment["OMP_NUM_THREADS"] = environment["OPENBLAS_NUM_THREADS"] = "1";
    environment["EPL_BENCH_PROCESS"] = std::to_string(i);
    if (side == "ddp" || side == "ddp_zero") {
      environment["RANK"] = std::to_string(i);
      environment["MASTER_PORT"] = port;
    }
    if (is_job(side)) {
      environment["EPL_WORKER_INDEX"] = std::to_string(i);
      environment["EPL_MASTER"] = "127.0.0.1:" + port;
    }
  }
  return starts;
}

}  // namespace epl::bench

// The sides of bench_pipeline: how their processes are started.
#pragma once

#include <string>
#include <vector>

#include "bench/crew.h"
#include "bench/pipeline_process.h"

namespace epl::bench {

inline bool is_of_torch(const std::string& side) { return side == "pipe" || side == "hand_1f1b"; }

inline int processes_of(const std::string& side) {
  return side == "hand_1f1b" || side == "two_at_once" ? kStages : 1;
}

inline Start start_of_torch(const std::string& side, const Case& asked, int steps) {
  return start_of_peer("pipeline.py", {{"--side", side},
                                       {"--model", asked.workload.name},
                                       {"--cut", std::to_string(asked.workload.cut)},
                                       {"--rows", std::to_string(kRows)},
                                       {"--micro-batches", std::to_string(asked.micro_batches)},
                                       {"--steps", std::to_string(steps)},
                                       {"--rate", std::to_string(kRate)},
                                       {"--momentum", std::to_string(kMomentum)}});
}

inline Start start_of_epl(const std::string& side, const Case& asked, int steps,
                          const std::string& mode) {
  Start start;
  start.arguments = {mode,
                     side,
                     "--models",
                     asked.workload.name,
                     "--micro-batches",
                     std::to_string(asked.micro_batches),
                     "--cut",
                     std::to_string(asked.workload.cut),
                     "--steps",
                     std::to_string(steps)};
  start.environment["EPL_DEVICES"] = is_pipeline(side) ? std::to_string(kStages) : "1";
  return start;
}

// `mode` is --serve or --check.
inline std::vector<Start> starts_of(const std::string& side, const Case& asked, int steps,
                                    const std::string& mode) {
  const std::string port = free_port();
  std::vector<Start> starts;
  for (int i = 0; i < processes_of(side); ++i) {
    starts.push_back(is_of_torch(side) ? start_of_torch(side, asked, steps)
                                       : start_of_epl(side, asked, steps, mode));
    auto& environment = starts.back().environment;
    environment["OMP_NUM_THREADS"] = environment["OPENBLAS_NUM_THREADS"] = "1";
    if (!is_of_torch(side)) continue;
    environment["RANK"] = std::to_string(i);
    environment["WORLD_SIZE"] = std::to_string(processes_of(side));
    environment["MASTER_PORT"] = port;
  }
  return starts;
}

}  // namespace epl::bench

// A process of EPL in bench_data_parallel: what it trains, the check of two steps against the plain
// loop, and the turns that it takes.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "bench/plain_loop.h"
#include "bench/programs.h"
#include "bench/turns.h"

namespace epl::bench {

constexpr double kRate = 1e-4, kMomentum = 0.9;
constexpr double kCheckedRate = 1e-2;  // at kRate rounding of the parameters hides what happens
constexpr int kDevices = 2;

struct Workload {
  std::string name;
  int64_t rows;  // per device
  int chunk;     // steps in a turn
  // Of max |plain - epl| in the largest change of a parameter by two steps.
  double tolerance;
  Model (*make)(int64_t rows);
  bool adam = false;  // AdamW instead of SGD with momentum
};

inline const std::vector<Workload>& workloads() {
  static const std::vector<Workload> all = {
      {"mlp", 32, 100, 1e-3, [](int64_t rows) { return mlp(64, 65, rows); }},
      {"bert_base", 2, 2, 1e-3, [](int64_t rows) { return bert_base(rows); }},
      {"gpt", 4, 3, 1e-3, [](int64_t rows) { return gpt(rows); }},
      {"resnet50", 8, 4, 1e-2, resnet50},
  };
  return all;
}

// With the rows of all devices in its batch, the same in every process.
inline Program fresh(const Workload& workload, double rate) {
  torch::manual_seed(0);
  if (workload.adam) {
    return with_optimizer<torch::optim::AdamW>(workload.make(kDevices * workload.rows),
                                               torch::optim::AdamWOptions(rate));
  }
  return with_optimizer<torch::optim::SGD>(workload.make(kDevices * workload.rows),
                                           torch::optim::SGDOptions(rate).momentum(kMomentum));
}

// Which device's rows are this process's own; all of them where it has both devices.
inline std::optional<int> own_device(const std::string& side) {
  if (side == "one_worker") return std::nullopt;
  const char* index = getenv("EPL_BENCH_PROCESS");
  return index == nullptr ? 0 : std::atoi(index);
}

inline Stepper epl_stepper(const std::string& side, Program program) {
  if (const auto device = own_device(side)) {
    program.batch = part_of(program.batch, *device, kDevices);
  }
  return epl_stepper(program);
}

// Where workers keep parts of them, whichever trainer it was that had them do so.
inline void gather_parameters_of(const Program& program) {
  trainer_of(program)->gather_parameters();
}

// Prints how far two steps are from the plain loop's, and what tells workers apart that differ.
inline void check_process(const Workload& workload, const std::string& side) {
  const Program start = fresh(workload, kCheckedRate);
  const Program plain = fresh(workload, kCheckedRate), epl = fresh(workload, kCheckedRate);
  const std::vector<int> devices =
      side == "limit" ? std::vector<int>{*own_device(side)} : std::vector<int>{0, 1};
  const Stepper step = epl_stepper(side, epl);
  for (int i = 0; i < 2; ++i) {
    plain_step(plain, devices, kDevices);
    step();
  }
  if (side == "spread") gather_parameters_of(epl);
  std::printf("%.17g %.17g\n", worst_difference(start, plain, epl, workload.tolerance),
              sum_of_parameters(epl));
  std::fflush(stdout);
}

inline void serve_process(const Workload& workload, const std::string& side, int steps) {
  const Program program = fresh(workload, kRate);
  const Stepper step = epl_stepper(side, program);
  seconds_of_each(5, step);  // as many as ddp.py warms up with
  serve(number_of_parameters(program), [&] { return seconds_of_each(steps, step); });
}

}  // namespace epl::bench

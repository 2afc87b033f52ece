// A process of EPL in bench_pipeline: what it trains, the check of two steps against the plain
// loop, and the turns that it takes.
#pragma once

#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "bench/pipeline_costs.h"
#include "bench/plain_loop.h"
#include "bench/programs.h"
#include "bench/turns.h"

namespace epl::bench {

constexpr double kRate = 1e-4, kMomentum = 0.9;
constexpr double kCheckedRate = 1e-2;  // at kRate rounding of the parameters hides what happens
constexpr int kStages = 2;
constexpr double kTolerance = 1e-3;  // of the largest change of a parameter by two steps
constexpr int64_t kRows = 8;         // of a step

struct PipelineWorkload {
  std::string name;
  int64_t cut;  // the block with which stage 1 begins
  int chunk;    // steps in a turn
  Model (*make)(int64_t rows, std::vector<int64_t> stage_starts);
};

// The cuts are those with the stages closest to each other in the processor time of a step. gpt in
// front of block 4: 1.13 times as much on stage 0 as on stage 1; in front of block 3 it would be
// 0.65 times. bert_base in front of block 6: 1.03 times. tiny_gpt is for trying the benchmark out.
inline const std::vector<PipelineWorkload>& workloads() {
  static const std::vector<PipelineWorkload> all = {
      {"gpt", 4, 2, gpt}, {"bert_base", 6, 1, bert_base}, {"tiny_gpt", 2, 20, tiny_gpt}};
  return all;
}

// A comparison: a network, cut into micro batches.
struct Case {
  PipelineWorkload workload;
  int micro_batches;

  std::string title() const {
    return workload.name + ", " + std::to_string(micro_batches) + " micro batches";
  }
};

inline bool is_pipeline(const std::string& side) {
  return side == "pipeline" || side == "zero_bubble";
}

inline const char* strategy_of(const std::string& side) {
  return side == "zero_bubble" ? "ZeroBubble" : "PreferBackward";
}

inline Program fresh(const Case& asked, bool staged, double rate) {
  torch::manual_seed(0);
  const std::vector<int64_t> starts =
      staged ? std::vector<int64_t>{asked.workload.cut} : std::vector<int64_t>{};
  return with_optimizer<torch::optim::SGD>(asked.workload.make(kRows, starts),
                                           torch::optim::SGDOptions(rate).momentum(kMomentum));
}

// Prints how far two steps are from the plain loop's.
inline void check_process(const Case& asked, const std::string& side) {
  const Program start = fresh(asked, false, kCheckedRate);
  const Program plain = fresh(asked, false, kCheckedRate);
  const Program epl = fresh(asked, is_pipeline(side), kCheckedRate);
  const Stepper step = epl_stepper(epl);
  std::vector<int> all(static_cast<size_t>(asked.micro_batches));
  std::iota(all.begin(), all.end(), 0);
  for (int i = 0; i < 2; ++i) {
    plain_step(plain, all, asked.micro_batches);
    step();
  }
  std::printf("%.17g\n", worst_difference(start, plain, epl, kTolerance));
  std::fflush(stdout);
}

// A pipeline says in which order its stages work, and with each turn what their tasks cost.
inline void serve_process(const Case& asked, const std::string& side, int steps) {
  const Program program = fresh(asked, is_pipeline(side), kRate);
  auto net = program.net;
  Trainer trainer(net, *program.optimizer, program.step);
  const Stepper step = [&] { trainer.step(program.batch); };
  seconds_of_each(3, step);  // as many as pipeline.py warms up with
  std::vector<double> first{number_of_parameters(program)};
  if (is_pipeline(side)) {
    const auto order = order_of(trainer.timeline());
    first.insert(first.end(), order.begin(), order.end());
  }
  serve(first, [&] {
    std::vector<double> said;
    std::vector<std::vector<double>> costs;
    for (int i = 0; i < steps; ++i) {
      said.push_back(seconds(step));
      if (is_pipeline(side)) costs.push_back(costs_of(trainer.timeline(), said.back()));
    }
    if (!is_pipeline(side)) return said;
    const auto mean = mean_of(costs);
    said.insert(said.end(), mean.begin(), mean.end());
    return said;
  });
}

}  // namespace epl::bench

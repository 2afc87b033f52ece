// A process of bench_split: what it trains, the check of two steps against the plain loop, and the
// turns that it takes.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/plain_loop.h"
#include "bench/split_by_hand.h"
#include "bench/split_plan.h"
#include "bench/split_programs.h"
#include "bench/turns.h"
#include "config/libtorch.h"

namespace epl::bench {

constexpr double kRate = 1e-4, kMomentum = 0.9;
constexpr double kCheckedRate = 1e-2;  // at kRate rounding of the parameters hides what happens
// Of the classifier's inputs. Without it all scores are close to 0 and no class is more likely than
// another, so that the softmax hardly shows in the gradients beside the labels: that the largest
// score of a row is one of all devices went unnoticed.
constexpr double kCheckedScale = 20;
// Of max |plain - epl| in the largest change of a parameter by two steps.
constexpr double kTolerance = 1e-3;

inline const std::vector<std::string> kCases = {"classifier", "gpt_block", "moe"};
inline const std::vector<std::string> kPlacements = {"workers", "devices"};

// How a case may lie on its devices; the first one goes without saying. The devices of gpt_block's
// other side are threads.
inline std::vector<std::string> placements_of(const std::string& name) {
  if (name == "classifier") return {"workers", "devices"};
  if (name == "gpt_block") return {"devices"};
  return {"devices", "workers"};
}

struct SplitCase {
  std::string name;
  std::string placement;  // "workers": a process a device; "devices": all of one process
  int devices = 2;
  bool tiny = false;
  int64_t rows = 0;  // of the classifier in a step, on all devices; 0: as the sizes say

  bool has_workers() const { return placement == "workers"; }
  std::string title() const {
    return name + " on " + std::to_string(devices) +
           (has_workers() ? " workers" : " devices of one worker");
  }
  SplitSizes sizes() const {
    SplitSizes sizes = tiny ? tiny_sizes() : SplitSizes();
    if (rows > 0) sizes.classified_rows = rows;
    return sizes;
  }

  // What is cut stands first, and what it is compared with behind it.
  std::pair<std::string, std::string> sides() const {
    if (name == "classifier") return {"split", "data_parallel"};
    if (name == "gpt_block") return {"split", "by_hand"};
    return {"experts_cut", "experts_whole"};
  }
  // Steps in a turn.
  int chunk() const { return tiny || name != "classifier" ? 10 : 3; }
};

// The program of a side, or the plain one, from the same numbers.
inline Program fresh(const SplitCase& asked, const std::string& side, double rate) {
  torch::manual_seed(0);
  const bool cut = side == asked.sides().first;
  const auto make = [&] {
    if (asked.name == "classifier") return many_classes(asked.sizes(), cut ? asked.devices : 0);
    if (asked.name == "gpt_block") return gpt_block(asked.sizes(), cut ? asked.devices : 0);
    return mixture(asked.sizes(), asked.devices, cut);
  };
  return with_optimizer<torch::optim::SGD>(make(),
                                           torch::optim::SGDOptions(rate).momentum(kMomentum));
}

inline std::unique_ptr<SplitByHand> by_hand(const SplitCase& asked, const Program& program,
                                            double rate) {
  return std::make_unique<SplitByHand>(dynamic_cast<const SplitBlocks&>(*program.net),
                                       program.batch, asked.devices,
                                       torch::optim::SGDOptions(rate).momentum(kMomentum));
}

// A worker hands in the rows of its own device.
inline Batch own_rows(const Batch& batch) {
  const Cluster& cluster = Env::get().cluster;
  return part_of(batch, cluster.worker_index, cluster.worker_num);
}

// Prints how far two steps are from the plain loop's, and what tells workers apart that differ.
inline void check_process(const SplitCase& asked, const std::string& side) {
  const auto program_of = [&](const std::string& which) {
    const Program program = fresh(asked, which, kCheckedRate);
    if (asked.name == "classifier") program.batch[0].mul_(kCheckedScale);
    return program;
  };
  const Program start = program_of("plain"), plain = program_of("plain");
  const Program checked = program_of(side);
  for (int i = 0; i < 2; ++i) plain_step(plain, {0}, 1);
  if (side == "by_hand") {
    const auto hand = by_hand(asked, checked, kCheckedRate);
    hand->run(2);
    hand->write_back();
  } else {
    auto net = checked.net;
    Trainer trainer(net, *checked.optimizer, checked.step);
    for (int i = 0; i < 2; ++i) trainer.step(own_rows(checked.batch));
    trainer.gather_parameters();
  }
  std::printf("%.17g %.17g\n", worst_difference(start, plain, checked, kTolerance),
              sum_of_parameters(checked));
  std::fflush(stdout);
}

// What a side says of its plan before its turns: bytes of the device that has most.
struct SideFacts {
  double parameters = 0;  // elements of the whole network
  double moved = 0;       // by a device in a step
  double all_to_all = 0;  // of these, by all_to_all
  double held = 0;        // parameters and their optimizer's state on a device
  double whole = 0;       // the same of the whole network

  std::vector<double> numbers() const { return {parameters, moved, all_to_all, held, whole}; }
  static SideFacts from(const std::vector<double>& numbers) {
    return {numbers.at(0), numbers.at(1), numbers.at(2), numbers.at(3), numbers.at(4)};
  }
};

inline double momentum_bytes(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  const auto& states = optimizer.state();
  const auto found = states.find(epl::state_key(parameter));
  if (found == states.end()) throw std::runtime_error("a parameter has no momentum after a step");
  const auto& state = static_cast<const torch::optim::SGDParamState&>(*found->second);
  return static_cast<double>(state.momentum_buffer().nbytes());
}

inline SideFacts facts_of(const Program& program, const Trainer& trainer, int devices) {
  const PlanFacts plan = read_plan(trainer.plan(), devices);
  SideFacts facts;
  facts.parameters = number_of_parameters(program);
  facts.moved = plan.moved();
  facts.all_to_all = plan.sent("all_to_all");
  for (const auto& parameter : program.net->named_parameters()) {
    const double bytes = static_cast<double>(parameter.value().nbytes()) +
                         momentum_bytes(*program.optimizer, parameter.value());
    facts.held += plan.share_held(parameter.key()) * bytes;
    facts.whole += bytes;
  }
  return facts;
}

inline void serve_process(const SplitCase& asked, const std::string& side, int steps) {
  const Program program = fresh(asked, side, kRate);
  if (side == "by_hand") {
    const auto hand = by_hand(asked, program, kRate);
    hand->run(3);
    SideFacts facts;
    facts.parameters = number_of_parameters(program);
    serve(facts.numbers(), [&] { return hand->run(steps); });
    return;
  }
  auto net = program.net;
  Trainer trainer(net, *program.optimizer, program.step);
  const Batch batch = own_rows(program.batch);
  const Stepper step = [&] { trainer.step(batch); };
  seconds_of_each(3, step);
  serve(facts_of(program, trainer, asked.devices).numbers(),
        [&] { return seconds_of_each(steps, step); });
}

}  // namespace epl::bench

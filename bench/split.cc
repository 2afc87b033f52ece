// What does it cost, and what does it save, to cut operators and parameters over devices?
//
//   bench_split [--cases classifier,gpt_block,moe] [--placement workers,devices] [--devices 2,4]
//               [--rounds 7] [--steps 0] [--rows 32] [--size full|tiny]
//
// SGD with momentum, a thread a device. Each case has two sides:
//
//   classifier   100,000 classes, --rows rows a step on all devices together. Both sides do the
//                same products, whose share grows with the rows; what differs is how often the
//                weights are read and how many gradients are written and summed.
//     split          features under replicate(k), classes and loss under split(k), colocated
//     data_parallel  the same network, whole on each device
//   gpt_block    one block of a GPT
//     split          under split(k)
//     by_hand        Megatron's cut, written with LibTorch and the same communicator, a thread a
//                    device (split_by_hand.h)
//   moe          two layers of experts, top-2 gating
//     experts_cut    rows of their own on each device, the experts cut over them
//     experts_whole  the same with all experts on each device
//
// and lies on its devices in one or both of two ways, which are those of --placement:
//
//   workers      a worker (process) a device, as epl-launch starts them: what devices exchange goes
//                through shared memory, the gradients of data parallelism too. Workers do not fetch
//                pieces that no step of theirs needs (pipeline.gather_parameters = false). A step
//                takes as long as the slowest worker's.
//   devices      all devices are threads of one worker: here data parallelism moves nothing, since
//                the update reads the gradients of all devices where they lie.
//
// Without --placement the classifier is measured in both ways, the others on devices.
//
// Before a side is timed its parameters after two steps are compared with those of the plain loop,
// on every worker. The sides take turns, chunk by chunk (--steps steps), in processes of their own;
// a side whose turn it is not waits in a read. They are compared round by round, and the median of
// the ratios is reported. Rounds in which somebody else used the machine are repeated, up to three
// times as many; the calmest ones count, and what others used even in those is printed ("foreign").
//
// Bytes come from the plan that ran (split_plan.h), nobody counts them on their way: `moved` is
// what a device sends in a step where everybody sends as little as possible, the sum of gradients
// included as all_reduce; `held` is a device's pieces of parameters and optimizer state. Memory is
// measured, and is that of the process that holds most, pages of libraries and shared memory
// included: `peak` since its start, with the first step, which computes all of it once; `resident`
// after the last step. Tokens of the experts must move as many bytes as the formula says, or the
// run fails.
//
// The last line is one JSON object: `classifier` (workers) and `classifier_in_one_worker` (devices)
// with `time_vs_data_parallel`, `bytes_vs_data_parallel`, `parameter_bytes_vs_whole`,
// `memory_vs_data_parallel` (peaks), `resident_vs_data_parallel`; `gpt_block` with `time_vs_hand`;
// `moe` (workers: `moe_over_workers`) with `tokens_per_second`, `tokens_per_second_vs_whole`,
// `all_to_all_bytes`, `bytes_vs_whole`, `parameter_bytes_vs_whole`, `memory_vs_whole`. With another
// number of devices than 2 the name has the number behind it: `classifier_on_4`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/split_report.h"
#include "bench/split_sides.h"

namespace epl::bench {
namespace {

struct Arguments {
  std::vector<std::string> cases = kCases;
  std::vector<std::string> placements;  // none: as the case says
  std::vector<int> devices = {2};
  bool tiny = false;
  int64_t rows = 0;  // of the classifier; 0: as the sizes say
  int rounds = 7;
  int steps = 0;      // in a turn; 0: as the case says
  std::string serve;  // this process is one of a side
  std::string check;
};

void check_side(const SplitCase& asked, const std::string& side) {
  Crew checked(side, starts_of(asked, side, 1, "--check"), 1);
  const auto answers = checked.answers();
  checked.end();
  double worst = 0;
  for (const auto& answer : answers) {
    if (answer.size() != 2 || !(answer[0] <= kTolerance)) {
      throw std::runtime_error(asked.title() + ", " + side + ": after 2 steps a parameter is " +
                               std::to_string(answer.empty() ? NAN : answer[0]) +
                               " of its change away from the plain loop's; allowed is " +
                               std::to_string(kTolerance));
    }
    if (answer[1] != answers[0][1]) {
      throw std::runtime_error(asked.title() + ", " + side +
                               ": the workers have different parameters");
    }
    worst = std::max(worst, answer[0]);
  }
  std::fprintf(stderr, "%s: %s is right (largest difference %.1e of a parameter's change)\n",
               asked.title().c_str(), side.c_str(), worst);
}

// Tokens go to their experts and back, and nothing else is exchanged so.
void check_formula(const SplitResult& result) {
  const double expected = all_to_all_bytes(result.asked.sizes(), result.asked.devices);
  const double found = result.facts.at("experts_cut").all_to_all;
  if (found == expected) return;
  throw std::runtime_error(result.asked.title() + ": a device sends " + std::to_string(found) +
                           " bytes by all_to_all; by the formula these are " +
                           std::to_string(expected));
}

SplitResult run(const SplitCase& asked, const Arguments& arguments) {
  SplitResult result;
  result.asked = asked;
  result.steps = arguments.steps > 0 ? arguments.steps : asked.chunk();
  const std::vector<std::string> sides = {result.cut(), result.other()};
  for (const auto& side : sides) check_side(asked, side);
  Crews running;
  for (const auto& side : sides) {
    auto& started = running[side] =
        std::make_unique<Crew>(side, starts_of(asked, side, result.steps, "--serve"), result.steps);
    const auto answers = started->answers();
    for (const auto& answer : answers) {
      if (answer != answers[0]) {
        throw std::runtime_error(asked.title() + ", " + side + ": the workers' plans differ");
      }
    }
    result.facts[side] = SideFacts::from(answers[0]);
    if (result.facts.at(side).parameters != result.facts.at(sides[0]).parameters) {
      throw std::runtime_error(asked.title() + ": " + side + " has another number of parameters");
    }
    started->turn();  // warms up
  }
  if (asked.name == "moe") check_formula(result);
  result.rounds = take_turns(asked.title(), sides, running, arguments.rounds, result.steps);
  for (const auto& [side, started] : running) {
    result.memory[side] = started->largest_memory();
    started->end();
  }
  return result;
}

// --- processes
// ------------------------------------------------------------------------------------

[[noreturn]] void explain() {
  throw std::runtime_error(
      "usage: bench_split [--cases classifier,gpt_block,moe] [--placement workers,devices] "
      "[--devices 2,4] [--rounds N] [--steps N] [--rows N] [--size full|tiny]");
}

void take(const std::string& key, const std::string& value, Arguments& arguments) {
  if (value.empty()) explain();
  if (key == "--cases") {
    arguments.cases = parts(value);
  } else if (key == "--placement") {
    arguments.placements = parts(value);
  } else if (key == "--devices") {
    arguments.devices.clear();
    for (const auto& count : parts(value)) arguments.devices.push_back(std::stoi(count));
  } else if (key == "--rounds") {
    arguments.rounds = std::max(1, std::stoi(value));
  } else if (key == "--steps") {
    arguments.steps = std::max(0, std::stoi(value));
  } else if (key == "--rows") {
    arguments.rows = std::max(0, std::stoi(value));
  } else if (key == "--size") {
    check_known({value}, {"full", "tiny"});
    arguments.tiny = value == "tiny";
  } else if (key == "--serve") {
    arguments.serve = value;
  } else if (key == "--check") {
    arguments.check = value;
  } else {
    explain();
  }
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) take(argv[i], i + 1 < argc ? argv[i + 1] : "", arguments);
  check_known(arguments.cases, kCases);
  check_known(arguments.placements, kPlacements);
  return arguments;
}

int run_process(const Arguments& arguments) {
  use_one_thread();
  const SplitCase asked = {arguments.cases.at(0), arguments.placements.at(0),
                           arguments.devices.at(0), arguments.tiny, arguments.rows};
  epl::init(epl::Config{{"cluster.colocate_split_and_replicate", true},
                        {"pipeline.gather_parameters", false}});
  if (!arguments.check.empty()) {
    check_process(asked, arguments.check);
  } else {
    serve_process(asked, arguments.serve, arguments.steps);
  }
  return 0;
}

std::vector<std::string> placements_asked_for(const std::string& name, const Arguments& arguments) {
  const std::vector<std::string> known = placements_of(name);
  if (arguments.placements.empty()) {
    return name == "classifier" ? known : std::vector<std::string>{known[0]};
  }
  std::vector<std::string> placements;
  for (const auto& placement : arguments.placements) {
    if (std::find(known.begin(), known.end(), placement) != known.end()) {
      placements.push_back(placement);
    } else {
      std::fprintf(stderr, "%s is not measured on %s\n", name.c_str(), placement.c_str());
    }
  }
  return placements;
}

int run_all(const Arguments& arguments) {
  end_sides_when_interrupted();
  std::vector<SplitResult> results;
  for (const auto& name : arguments.cases) {
    for (const auto& placement : placements_asked_for(name, arguments)) {
      for (int devices : arguments.devices) {
        const SplitCase asked = {name, placement, devices, arguments.tiny, arguments.rows};
        results.push_back(run(asked, arguments));
      }
    }
  }
  if (results.empty()) throw std::runtime_error("there is nothing to measure");
  print_table(results);
  print_json(results);
  return 0;
}

}  // namespace
}  // namespace epl::bench

int main(int argc, char** argv) {
  try {
    const auto arguments = epl::bench::parse(argc, argv);
    const bool serves = !arguments.serve.empty() || !arguments.check.empty();
    return serves ? epl::bench::run_process(arguments) : epl::bench::run_all(arguments);
  } catch (const std::exception& error) {
    std::cerr << "bench_split: " << error.what() << "\n";
    return 1;
  }
}

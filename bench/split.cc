// What does it cost, and what does it save, to cut operators and parameters over devices?
//
//   bench_split [--cases classifier,gpt_block,moe] [--devices 2,4] [--rounds 7] [--steps 0]
//               [--rows 32] [--size full|tiny]
//
// All devices are those of one process, one thread each; SGD with momentum. Each case has two
// sides:
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
// Before a side is timed its parameters after two steps are compared with those of the plain loop.
// The sides take turns, chunk by chunk (--steps steps), in processes of their own; a side whose
// turn it is not waits in a read. They are compared round by round, and the median of the ratios is
// reported. Rounds in which somebody else used the machine are repeated, up to three times as many;
// the calmest ones count, and what others used even in those is printed ("foreign").
//
// Bytes come from the plan that ran (split_plan.h): `moved` is what a device sends in a step where
// everybody sends as little as possible, the sum of gradients included as all_reduce; `held` is a
// device's pieces of parameters and optimizer state. Peak memory is that of the process with all of
// its devices. Tokens of the experts must move as many bytes as the formula says, or the run fails.
//
// The last line is one JSON object: `classifier` with `time_vs_data_parallel`,
// `bytes_vs_data_parallel`, `parameter_bytes_vs_whole`, `memory_vs_data_parallel`; `gpt_block` with
// `time_vs_hand`; `moe` with `tokens_per_second`, `tokens_per_second_vs_whole`, `all_to_all_bytes`,
// `bytes_vs_whole`, `parameter_bytes_vs_whole`. With another number of devices than 2 the name of a
// case has the number behind it: `classifier_on_4`.
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/rounds.h"
#include "bench/split_process.h"
#include "bench/words.h"

namespace epl::bench {
namespace {

const std::vector<std::string> kCases = {"classifier", "gpt_block", "moe"};

struct Arguments {
  std::vector<std::string> cases = kCases;
  std::vector<int> devices = {2};
  bool tiny = false;
  int64_t rows = 0;  // of the classifier; 0: as the sizes say
  int rounds = 7;
  int steps = 0;      // in a turn; 0: as the case says
  std::string serve;  // this process is one of a side
  std::string check;
};

struct Result {
  SplitCase asked;
  int steps = 0;
  Rounds rounds;
  std::map<std::string, SideFacts> facts;
  std::map<std::string, double> megabytes;

  std::string cut() const { return asked.sides().first; }
  std::string other() const { return asked.sides().second; }
  // The cut side in terms of the other one: the median over the rounds.
  double time() const { return rounds.faster(other(), cut()); }
  double moved() const { return facts.at(cut()).moved / facts.at(other()).moved; }
  double held() const { return facts.at(cut()).held / facts.at(cut()).whole; }
  double memory() const { return megabytes.at(cut()) / megabytes.at(other()); }
  double step_seconds(const std::string& side) const {
    return rounds.typical(side, &Turn::seconds) / steps;
  }
};

// `mode` is --serve or --check.
std::vector<Start> starts_of(const SplitCase& asked, const std::string& side, int steps,
                             const std::string& mode) {
  Start start;
  start.arguments = {mode,        side,
                     "--cases",   asked.name,
                     "--devices", std::to_string(asked.devices),
                     "--steps",   std::to_string(steps),
                     "--rows",    std::to_string(asked.rows),
                     "--size",    asked.tiny ? "tiny" : "full"};
  start.environment = {{"EPL_DEVICES", std::to_string(asked.devices)},
                       {"OMP_NUM_THREADS", "1"},
                       {"OPENBLAS_NUM_THREADS", "1"}};
  return {start};
}

void check_side(const SplitCase& asked, const std::string& side) {
  Crew checked(side, starts_of(asked, side, 1, "--check"), 1);
  const auto answer = checked.answers().at(0);
  checked.end();
  if (answer.size() != 1 || !(answer[0] <= kTolerance)) {
    throw std::runtime_error(asked.title() + ", " + side + ": after 2 steps a parameter is " +
                             std::to_string(answer.empty() ? NAN : answer[0]) +
                             " of its change away from the plain loop's; allowed is " +
                             std::to_string(kTolerance));
  }
  std::fprintf(stderr, "%s: %s is right (largest difference %.1e of a parameter's change)\n",
               asked.title().c_str(), side.c_str(), answer[0]);
}

// Tokens go to their experts and back, and nothing else is exchanged so.
void check_formula(const Result& result) {
  const double expected = all_to_all_bytes(result.asked.sizes(), result.asked.devices);
  const double found = result.facts.at("experts_cut").all_to_all;
  if (found == expected) return;
  throw std::runtime_error(result.asked.title() + ": a device sends " + std::to_string(found) +
                           " bytes by all_to_all; by the formula these are " +
                           std::to_string(expected));
}

Result run(const SplitCase& asked, const Arguments& arguments) {
  Result result;
  result.asked = asked;
  result.steps = arguments.steps > 0 ? arguments.steps : asked.chunk();
  const std::vector<std::string> sides = {result.cut(), result.other()};
  for (const auto& side : sides) check_side(asked, side);
  Crews running;
  for (const auto& side : sides) {
    auto& started = running[side] =
        std::make_unique<Crew>(side, starts_of(asked, side, result.steps, "--serve"), result.steps);
    result.facts[side] = SideFacts::from(started->answers().at(0));
    if (result.facts.at(side).parameters != result.facts.at(sides[0]).parameters) {
      throw std::runtime_error(asked.title() + ": " + side + " has another number of parameters");
    }
    started->turn();  // warms up
  }
  if (asked.name == "moe") check_formula(result);
  result.rounds = take_turns(asked.title(), sides, running, arguments.rounds, result.steps);
  for (const auto& [side, started] : running) {
    result.megabytes[side] = started->peak_megabytes();
    started->end();
  }
  return result;
}

// --- the report
// -----------------------------------------------------------------------------------

void print_table(const std::vector<Result>& results) {
  std::printf("%-12s %8s %-14s %12s %12s %12s %16s %14s %10s %8s\n", "case", "devices", "side",
              "ms a step", "ms of cores", "vs other", "moved a device", "held a device", "peak",
              "foreign");
  for (const auto& result : results) {
    for (const auto& side : {result.cut(), result.other()}) {
      const SideFacts& facts = result.facts.at(side);
      std::printf("%-12s %8d %-14s %12.3f %12.3f %12.4f %13.3f MB %11.2f MB %7.0f MB %6.0f %%\n",
                  result.asked.name.c_str(), result.asked.devices, side.c_str(),
                  1e3 * result.step_seconds(side),
                  1e3 * result.rounds.typical(side, &Turn::work) / result.steps,
                  side == result.cut() ? result.time() : 1.0, 1e-6 * facts.moved, 1e-6 * facts.held,
                  result.megabytes.at(side), 100 * result.rounds.foreign(side));
    }
  }
}

using Numbers = std::vector<std::pair<std::string, double>>;

Numbers numbers_of(const Result& result) {
  const SplitSizes sizes = result.asked.sizes();
  if (result.asked.name == "classifier") {
    return {{"time_vs_data_parallel", result.time()},
            {"bytes_vs_data_parallel", result.moved()},
            {"parameter_bytes_vs_whole", result.held()},
            {"memory_vs_data_parallel", result.memory()}};
  }
  if (result.asked.name == "gpt_block") return {{"time_vs_hand", result.time()}};
  const auto tokens = static_cast<double>(sizes.moe_rows * sizes.moe_tokens);
  return {{"tokens_per_second", tokens / result.step_seconds(result.cut())},
          {"tokens_per_second_vs_whole", 1 / result.time()},
          {"all_to_all_bytes", result.facts.at(result.cut()).all_to_all},
          {"bytes_vs_whole", result.moved()},
          {"parameter_bytes_vs_whole", result.held()},
          {"memory_vs_whole", result.memory()}};
}

void print_json(const std::vector<Result>& results) {
  std::string json;
  for (const auto& result : results) {
    const int devices = result.asked.devices;
    const std::string behind = devices == 2 ? "" : "_on_" + std::to_string(devices);
    json += (json.empty() ? "\"" : ", \"") + result.asked.name + behind + "\": {";
    std::string inner;
    for (const auto& [key, number] : numbers_of(result)) {
      inner += (inner.empty() ? "\"" : ", \"") + key + "\": " + text(number, "null");
    }
    json += inner + "}";
  }
  std::printf("{%s}\n", json.c_str());
}

// --- processes
// ------------------------------------------------------------------------------------

[[noreturn]] void explain() {
  throw std::runtime_error(
      "usage: bench_split [--cases classifier,gpt_block,moe] [--devices 2,4] [--rounds N] "
      "[--steps N] [--rows N] [--size full|tiny]");
}

void take(const std::string& key, const std::string& value, Arguments& arguments) {
  if (value.empty()) explain();
  if (key == "--cases") {
    arguments.cases = parts(value);
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
  return arguments;
}

int run_process(const Arguments& arguments) {
  use_one_thread();
  const SplitCase asked = {arguments.cases.at(0), arguments.devices.at(0), arguments.tiny,
                           arguments.rows};
  epl::init(epl::Config{{"cluster.colocate_split_and_replicate", true}});
  if (!arguments.check.empty()) {
    check_process(asked, arguments.check);
  } else {
    serve_process(asked, arguments.serve, arguments.steps);
  }
  return 0;
}

int run_all(const Arguments& arguments) {
  end_sides_when_interrupted();
  std::vector<Result> results;
  for (const auto& name : arguments.cases) {
    for (int devices : arguments.devices) {
      results.push_back(run({name, devices, arguments.tiny, arguments.rows}, arguments));
    }
  }
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

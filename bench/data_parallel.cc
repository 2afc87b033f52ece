// How well does data parallelism scale on this machine?
//
//   bench_data_parallel [--models mlp,bert_base,gpt,resnet50] [--rounds 7] [--steps 0]
//                       [--sides limit,one_worker,two_workers,zero,ddp,ddp_limit]
//
// The same network, optimizer and rows per device on two cores, one thread each:
//
//   one_worker   EPL, one process with two devices
//   two_workers  EPL, two processes with one device each, as epl-launch starts them
//   zero         the same with zero.level = "v0": each updates half of the parameters
//   limit        EPL, two processes with one device each that know nothing of each other
//   ddp          PyTorch's DistributedDataParallel over gloo, two processes (bench/peers/ddp.py)
//   ddp_limit    the same program without DistributedDataParallel; for information
//
// The sides take turns, chunk by chunk (--steps steps), in processes of their own; a side whose
// turn it is not waits in a read. Throughputs are compared round by round, and the median of the
// ratios is reported. Rounds in which somebody else used the machine are repeated, up to three
// times as many; the calmest ones count, and what others used even in those is printed ("foreign").
// Before a side is timed its parameters after two steps are compared with those of the plain loop.
// Memory is the sum of the processes' peaks, pages that they share counted once. The last line is
// one JSON object; where python3-torch is missing, what it would be compared with is null.
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/data_parallel_sides.h"
#include "bench/rounds.h"
#include "bench/words.h"

namespace epl::bench {
namespace {

struct Arguments {
  std::vector<std::string> models;
  std::vector<std::string> sides;
  int rounds = 7;
  int steps = 0;      // in a turn; 0: as the workload says
  std::string serve;  // this process is one of a side
  std::string check;
};

void check_side(const std::string& side, const Workload& workload) {
  if (is_of_torch(side)) return;  // ddp.py checks itself
  Crew checked(side, starts_of(side, workload, 1, "--check"), 1);
  const auto answers = checked.answers();
  checked.end();
  for (const auto& answer : answers) {
    if (answer.size() != 2 || !(answer[0] <= workload.tolerance)) {
      throw std::runtime_error(workload.name + ", " + side + ": after 2 steps a parameter is " +
                               std::to_string(answer.empty() ? NAN : answer[0]) +
                               " of its change away from the plain loop's; allowed is " +
                               std::to_string(workload.tolerance));
    }
    if (is_job(side) && answer[1] != answers[0][1]) {
      throw std::runtime_error(workload.name + ": the workers have different parameters");
    }
  }
  std::fprintf(stderr, "%s: %s is right (largest difference %.1e of a parameter's change)\n",
               workload.name.c_str(), side.c_str(), answers[0][0]);
}

// --- what is measured
// -----------------------------------------------------------------------------

struct Result {
  std::string model;
  double rows = 0;  // of all devices in a chunk
  int steps = 0;
  Rounds rounds;
  std::map<std::string, double> megabytes;

  bool has(const std::string& side) const { return megabytes.count(side) != 0; }

  // Of the throughputs: the median over the rounds.
  std::optional<double> faster(const std::string& side, const std::string& than) const {
    if (!has(side) || !has(than)) return std::nullopt;
    return rounds.faster(side, than);
  }

  std::optional<double> memory(const std::string& side, const std::string& than) const {
    if (!has(side) || !has(than)) return std::nullopt;
    return megabytes.at(side) / megabytes.at(than);
  }
};

Result run(const Workload& workload, const std::vector<std::string>& sides, int rounds, int steps) {
  Result result;
  result.model = workload.name;
  result.steps = steps > 0 ? steps : workload.chunk;
  result.rows = static_cast<double>(kDevices * workload.rows * result.steps);
  for (const auto& side : sides) check_side(side, workload);
  Crews running;
  std::optional<double> parameters;
  for (const auto& side : sides) {
    auto& started = running[side] = std::make_unique<Crew>(
        side, starts_of(side, workload, result.steps, "--serve"), result.steps);
    for (const auto& answer : started->answers()) {
      if (!parameters) parameters = answer.at(0);
      if (answer.at(0) == *parameters) continue;
      throw std::runtime_error(workload.name + ": " + side + " has another number of parameters");
    }
    started->turn();  // warms up
  }
  result.rounds = take_turns(workload.name, sides, running, rounds, result.steps);
  for (const auto& [side, started] : running) {
    result.megabytes[side] = started->peak_megabytes();
    started->end();
  }
  return result;
}

// --- the report
// -----------------------------------------------------------------------------------

void print_table(const std::vector<Result>& results, const std::vector<std::string>& sides) {
  std::printf("%-10s %-12s %12s %12s %13s %10s %10s %12s %10s %8s\n", "model", "side", "ms a step",
              "ms of cores", "rows a second", "vs limit", "vs ddp", "peak memory", "vs ddp",
              "foreign");
  for (const auto& result : results) {
    for (const auto& side : sides) {
      const double taken = result.rounds.typical(side, &Turn::seconds);
      std::printf("%-10s %-12s %12.3f %12.3f %13.1f %10s %10s %9.0f MB %10s %6.0f %%\n",
                  result.model.c_str(), side.c_str(), 1e3 * taken / result.steps,
                  1e3 * result.rounds.typical(side, &Turn::work) / result.steps,
                  result.rows / taken, text(result.faster(side, "limit"), "-").c_str(),
                  text(result.faster(side, "ddp"), "-").c_str(), result.megabytes.at(side),
                  text(result.memory(side, "ddp"), "-").c_str(), 100 * result.rounds.foreign(side));
    }
  }
}

void print_json(const std::vector<Result>& results) {
  std::string json;
  for (const auto& result : results) {
    json += (json.empty() ? "\"" : ", \"") + result.model +
            "\": {\"one_worker_vs_limit\": " + text(result.faster("one_worker", "limit"), "null") +
            ", \"one_worker_vs_ddp\": " + text(result.faster("one_worker", "ddp"), "null") +
            ", \"two_workers_vs_limit\": " + text(result.faster("two_workers", "limit"), "null") +
            ", \"two_workers_vs_ddp\": " + text(result.faster("two_workers", "ddp"), "null") +
            ", \"zero_vs_limit\": " + text(result.faster("zero", "limit"), "null") +
            ", \"zero_vs_ddp\": " + text(result.faster("zero", "ddp"), "null") +
            ", \"memory_vs_ddp\": " + text(result.memory("one_worker", "ddp"), "null") + "}";
  }
  std::printf("{%s}\n", json.c_str());
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  arguments.sides = {"limit", "one_worker", "two_workers", "zero", "ddp"};
  for (int i = 1; i < argc; i += 2) {
    const std::string key = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    if (key == "--models" && !value.empty()) {
      arguments.models = parts(value);
    } else if (key == "--sides" && !value.empty()) {
      arguments.sides = parts(value);
    } else if (key == "--rounds" && !value.empty()) {
      arguments.rounds = std::max(1, std::stoi(value));
    } else if (key == "--steps" && !value.empty()) {
      arguments.steps = std::max(0, std::stoi(value));
    } else if (key == "--serve" && !value.empty()) {
      arguments.serve = value;
    } else if (key == "--check" && !value.empty()) {
      arguments.check = value;
    } else {
      throw std::runtime_error(
          "usage: bench_data_parallel [--models mlp,bert_base,gpt,resnet50] [--rounds N] "
          "[--steps N] [--sides limit,one_worker,two_workers,zero,ddp,ddp_limit]");
    }
  }
  std::vector<std::string> known;
  for (const auto& workload : workloads()) known.push_back(workload.name);
  check_known(arguments.models, known);
  if (arguments.models.empty()) arguments.models = known;
  check_known(arguments.sides, {"limit", "one_worker", "two_workers", "zero", "ddp", "ddp_limit"});
  return arguments;
}

const Workload& workload_named(const std::string& name) {
  return *std::find_if(workloads().begin(), workloads().end(),
                       [&](const Workload& workload) { return workload.name == name; });
}

int run_process(const Arguments& arguments) {
  use_one_thread();
  epl::init();
  epl::set_default_strategy(epl::replicate(1));
  const Workload& workload = workload_named(arguments.models.at(0));
  if (arguments.serve.empty()) {
    check_process(workload, arguments.check);
  } else {
    serve_process(workload, arguments.serve, arguments.steps);
  }
  return 0;
}

int run_all(const Arguments& arguments) {
  end_sides_when_interrupted();
  std::vector<std::string> sides = arguments.sides;
  if (!torch_is_installed()) {
    std::fprintf(
        stderr,
        "%s has no torch (Debian: apt-get install python3-torch): nothing is compared with "
        "DistributedDataParallel\n",
        kPython);
    sides.erase(std::remove_if(sides.begin(), sides.end(), is_of_torch), sides.end());
  }
  std::vector<Result> results;
  for (const auto& name : arguments.models) {
    results.push_back(run(workload_named(name), sides, arguments.rounds, arguments.steps));
  }
  print_table(results, sides);
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
    std::cerr << "bench_data_parallel: " << error.what() << "\n";
    return 1;
  }
}

// What does ZeRO save, and what does it cost?
//
//   bench_zero [--models bert_base,gpt] [--rounds 5]
//              [--sides two_workers,zero,zero_v1,zero_v2,ddp_zero]
//
// The same network, AdamW and rows on two processes of one core each:
//
//   two_workers  EPL, data parallelism
//   zero         the same with zero.level = "v0": each process keeps the states of what it updates
//   zero_v1      and the sums of their gradients
//   zero_v2      and its range of the parameters: the others come around their use
//   ddp_zero     PyTorch's DistributedDataParallel with ZeroRedundancyOptimizer
//   (bench/peers/ddp.py)
//
// Sides take turns as in bench_data_parallel, and are checked as there: after two steps the
// parameters of zero are those of the plain loop, and the same on both workers. States are counted
// by the system: pages of theirs that are in memory. Memory is what the system says of the larger
// process. The last line is one JSON object, by model:
//
//   state_share      resident bytes of states, of all that data parallelism keeps; mean of both
//   evenness         of the larger process, over the mean
//   v0_time_vs_dp    of a step, zero over two_workers
//   v0_vs_peer       zero over ddp_zero
//   v0_rss_vs_dp     peak memory of the larger process but for libraries, in the steps that are
//                    timed; v1_... and v2_... likewise
//   v1_first_rss_vs_dp  likewise from its start on: the first steps are recorded, whole
//   v1_gradients     bytes of gradients in the trainer's own account of a device, over two_workers;
//                    of the larger process
//   v2_resident_parameters  bytes of parameters that the larger process holds at most while a step
//                    runs, of all: pages of those that it keeps, and what others keep and is near
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
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
#include "job/job.h"
#include "model/torch_optimizer.h"
#include "state/optimizer_states.h"

namespace epl::bench {
namespace {

struct Arguments {
  std::vector<std::string> models = {"bert_base", "gpt"};
  std::vector<std::string> sides = {"two_workers", "zero", "zero_v1", "zero_v2", "ddp_zero"};
  int rounds = 5;
  int steps = 0;
  std::string serve;
  std::string check;
};

Workload workload_named(const std::string& name) {
  for (Workload workload : workloads()) {
    if (workload.name != name) continue;
    workload.adam = true;
    // Adam makes whole steps of rounding where a gradient is almost 0.
    workload.tolerance = 0.05;
    return workload;
  }
  throw std::runtime_error("there is no \"" + name + "\"");
}

// --- a process of EPL ----------------------------------------------------------------------------

double resident_bytes(const at::Tensor& tensor) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(tensor.data_ptr()) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(tensor.data_ptr()) + tensor.nbytes();
  std::vector<unsigned char> pages((end - begin + page - 1) / page);
  if (mincore(reinterpret_cast<void*>(begin), end - begin, pages.data()) != 0) return NAN;
  double count = 0;
  for (unsigned char state : pages) count += state & 1;
  return std::min(count * static_cast<double>(page), static_cast<double>(tensor.nbytes()));
}

double state_bytes(const Program& program) {
  double bytes = 0;
  TorchOptimizer optimizer(*program.optimizer);
  for (size_t number = 0; number < optimizer.listed().size(); ++number) {
    for (const at::Tensor& tensor : state_tensors(optimizer, number)) {
      bytes += resident_bytes(tensor);
    }
  }
  return bytes;
}

// Bytes of the device's gradients where most of it lives.
double gradient_bytes(const Trainer& trainer) {
  const MemoryReport report = trainer.memory();
  for (const auto& worker : report.workers) {
    if (!worker.measured()) continue;
    return static_cast<double>(worker.devices.at(0).bytes[MemoryKind::kGradients]);
  }
  throw std::runtime_error("no worker has measured its memory");
}

double parameter_bytes(const Program& program) {
  SpreadParameters& spread = Job::current()->spread();
  double bytes = static_cast<double>(spread.account().most_near());
  for (const at::Tensor& parameter : program.net->parameters()) {
    const auto memory = spread.find(parameter);
    bytes += memory == nullptr ? static_cast<double>(parameter.nbytes())
                               : resident_bytes(memory->tensor());
  }
  return bytes;
}

int run_process(const Arguments& arguments) {
  use_one_thread();
  epl::init();
  epl::set_default_strategy(epl::replicate(1));
  const Workload workload = workload_named(arguments.models.at(0));
  if (arguments.serve.empty()) {
    check_process(workload, arguments.check);
    return 0;
  }
  Program program = fresh(workload, kRate);
  const double parameters = number_of_parameters(program);
  if (const auto device = own_device(arguments.serve)) {
    program.batch = part_of(program.batch, *device, kDevices);
  }
  const std::shared_ptr<Trainer> trainer = trainer_of(program);
  const Stepper step = [&] { trainer->step(program.batch); };
  seconds_of_each(5, step);  // as many as ddp.py warms up with
  serve({parameters, state_bytes(program), gradient_bytes(*trainer), parameter_bytes(program)},
        [&] { return seconds_of_each(arguments.steps, step); });
  return 0;
}

// --- the sides -----------------------------------------------------------------------------------

void check_side(const std::string& side, const Workload& workload) {
  if (is_of_torch(side)) return;  // ddp.py checks itself
  Crew checked(side, starts_of(side, workload, 1, "--check"), 1);
  const auto answers = checked.answers();
  checked.end();
  for (const auto& answer : answers) {
    if (answer.size() != 2 || !(answer[0] <= workload.tolerance) || answer[1] != answers[0][1]) {
      throw std::runtime_error(workload.name + ", " + side +
                               ": after 2 steps a parameter is not the plain loop's, or not the "
                               "same on both workers");
    }
  }
}

struct Result {
  std::string model;
  Rounds rounds;
  std::map<std::string, double> megabytes;  // of the larger process
  std::map<std::string, double> megabytes_at_first;
  std::map<std::string, std::vector<double>> states;  // bytes, by process
  std::map<std::string, double> gradients;            // bytes, of the larger process
  std::map<std::string, double> parameters;           // likewise

  bool has(const std::string& side) const { return megabytes.count(side) != 0; }
  std::optional<double> time(const std::string& side, const std::string& than) const {
    if (!has(side) || !has(than)) return std::nullopt;
    return 1 / rounds.faster(side, than);
  }
  std::optional<double> memory(const std::string& side, const std::string& than) const {
    if (!has(side) || !has(than)) return std::nullopt;
    return megabytes.at(side) / megabytes.at(than);
  }
  std::optional<double> memory_at_first(const std::string& side, const std::string& than) const {
    if (!has(side) || !has(than)) return std::nullopt;
    return megabytes_at_first.at(side) / megabytes_at_first.at(than);
  }
  using Bytes = std::map<std::string, double>;
  static std::optional<double> share(const Bytes& bytes, const std::string& side,
                                     const std::string& than) {
    if (bytes.count(side) == 0 || bytes.count(than) == 0) return std::nullopt;
    return bytes.at(side) / bytes.at(than);
  }
  double mean_state(const std::string& side) const {
    double sum = 0;
    for (double bytes : states.at(side)) sum += bytes;
    return sum / static_cast<double>(states.at(side).size());
  }
};

Result run(const Workload& workload, const Arguments& arguments,
           const std::vector<std::string>& sides) {
  Result result;
  result.model = workload.name;
  const int steps = arguments.steps > 0 ? arguments.steps : workload.chunk;
  for (const auto& side : sides) check_side(side, workload);
  Crews running;
  for (const auto& side : sides) {
    auto& started = running[side] =
        std::make_unique<Crew>(side, starts_of(side, workload, steps, "--serve"), steps);
    for (const auto& answer : started->answers()) {
      result.states[side].push_back(answer.at(1));
      if (answer.size() < 4) continue;  // of PyTorch
      result.gradients[side] = std::max(result.gradients[side], answer[2]);
      result.parameters[side] = std::max(result.parameters[side], answer[3]);
    }
    started->turn();  // warms up
    const Memory first = started->largest_memory();
    result.megabytes_at_first[side] = first.peak - first.files;
    started->forget_peaks();
  }
  result.rounds = take_turns(workload.name, sides, running, arguments.rounds, steps);
  for (const auto& [side, started] : running) {
    const Memory most = started->largest_memory();
    result.megabytes[side] = most.peak - most.files;
    started->end();
  }
  return result;
}

void print(const std::vector<Result>& results, const std::vector<std::string>& sides) {
  std::printf("%-10s %-12s %10s %14s %14s %12s\n", "model", "side", "time vs dp", "MB of states",
              "of the other", "peak memory");
  std::string json;
  for (const auto& result : results) {
    for (const auto& side : sides) {
      std::printf("%-10s %-12s %10s %14.1f %14.1f %9.0f MB\n", result.model.c_str(), side.c_str(),
                  text(result.time(side, "two_workers"), "-").c_str(),
                  result.states.at(side)[0] / (1 << 20), result.states.at(side)[1] / (1 << 20),
                  result.megabytes.at(side));
    }
    std::optional<double> share, evenness;
    if (result.has("zero") && result.has("two_workers")) {
      const auto& own = result.states.at("zero");
      share = result.mean_state("zero") / result.mean_state("two_workers");
      evenness = *std::max_element(own.begin(), own.end()) / result.mean_state("zero");
    }
    json += (json.empty() ? "\"" : ", \"") + result.model +
            "\": {\"state_share\": " + text(share, "null") +
            ", \"evenness\": " + text(evenness, "null") +
            ", \"v0_time_vs_dp\": " + text(result.time("zero", "two_workers"), "null") +
            ", \"v0_vs_peer\": " + text(result.time("zero", "ddp_zero"), "null") +
            ", \"v0_rss_vs_dp\": " + text(result.memory("zero", "two_workers"), "null") +
            ", \"v0_rss_vs_peer\": " + text(result.memory("zero", "ddp_zero"), "null");
    for (const std::string level : {"v1", "v2"}) {
      const std::string side = "zero_" + level;
      json += ", \"" + level + "_time_vs_dp\": " + text(result.time(side, "two_workers"), "null") +
              ", \"" + level + "_rss_vs_dp\": " + text(result.memory(side, "two_workers"), "null") +
              ", \"" + level +
              "_first_rss_vs_dp\": " + text(result.memory_at_first(side, "two_workers"), "null");
    }
    json += ", \"v1_gradients\": " +
            text(Result::share(result.gradients, "zero_v1", "two_workers"), "null") +
            ", \"v2_resident_parameters\": " +
            text(Result::share(result.parameters, "zero_v2", "two_workers"), "null") + "}";
  }
  std::printf("{%s}\n", json.c_str());
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
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
          "usage: bench_zero [--models bert_base,gpt,mlp,resnet50] [--rounds N] [--steps N] "
          "[--sides two_workers,zero,zero_v1,zero_v2,ddp_zero]");
    }
  }
  for (const auto& name : arguments.models) workload_named(name);
  check_known(arguments.sides, {"two_workers", "zero", "zero_v1", "zero_v2", "ddp_zero"});
  return arguments;
}

int run_all(const Arguments& arguments) {
  end_sides_when_interrupted();
  std::vector<std::string> sides = arguments.sides;
  if (!torch_is_installed()) {
    std::fprintf(stderr, "%s has no torch: nothing is compared with ZeroRedundancyOptimizer\n",
                 kPython);
    sides.erase(std::remove_if(sides.begin(), sides.end(), is_of_torch), sides.end());
  }
  std::vector<Result> results;
  for (const auto& name : arguments.models) {
    results.push_back(run(workload_named(name), arguments, sides));
  }
  print(results, sides);
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
    std::cerr << "bench_zero: " << error.what() << "\n";
    return 1;
  }
}

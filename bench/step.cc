// How fast is a step? EPL on one device with one thread against the plain LibTorch loop.
//
//   bench_step [--models mlp,bert_base,gpt,resnet50] [--rounds 7] [--profile epl|plain]
//              [--peers eager,compiled]
//
// The sides take turns, chunk by chunk, so that noise hits both alike, each in a process of its
// own, so that neither runs in a heap that the other has shaped. Before anything is timed, three
// steps of both must give the same parameters. Printed for each model: the medians of the step
// times and their ratio, the peak memory of both by EPL's account and by the system's (VmHWM of a
// side's process, less its libraries and what it held before the model was made), and what
// recording and planning cost, counted in plain steps; then what trainer.memory() forecasts for a
// step, the account of a step, and the system's figure of some steps after the first ones, which
// are recorded and looked at again. The last line is one JSON object: forecast_error is that of the
// forecast against the account, forecast_vs_system against the system, as parts of these; null
// where the system does not tell the peak of a part of a process's life.
//
// --peers lets PyTorch take turns as well, with the same networks, rows and optimizers in Python
// (bench/peers/single.py): the eager loop and torch.compile of it.
//
// --profile runs one side alone for some ten seconds a model: something to hold a profiler to.
#include <epl/epl.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/text.h"
#include "bench/crew.h"
#include "bench/programs.h"
#include "bench/turns.h"
#include "runtime/device_memory.h"

namespace epl {
namespace {

using bench::bytes_of_process;
using bench::epl_stepper;
using bench::held_bytes;
using bench::median;
using bench::Program;
using bench::seconds;
using bench::Stepper;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::SGD;
using torch::optim::SGDOptions;

struct Workload {
  std::string name;
  int chunk;         // steps before the other side takes its turn
  double tolerance;  // of max |plain - epl| / max |plain| of a parameter after three steps
  std::function<Program()> make;
};

const std::vector<Workload>& workloads() {
  // The same kernels run in the same order on both sides; only the fused update may round
  // otherwise. Adam turns the rounding of a gradient near zero into a step of its own size, and 50
  // layers of batch norm amplify it, hence the wider bounds of the big models.
  static const std::vector<Workload> all = {
      {"mlp", 100, 1e-6,
       [] { return bench::with_optimizer<SGD>(bench::mlp(32, 60, 32), SGDOptions(0.01)); }},
      {"bert_base", 2, 1e-4,
       [] { return bench::with_optimizer<AdamW>(bench::bert_base(2), AdamWOptions(1e-4)); }},
      {"gpt", 3, 1e-4,
       [] { return bench::with_optimizer<AdamW>(bench::gpt(4), AdamWOptions(1e-4)); }},
      {"resnet50", 4, 1e-4,
       [] {
         return bench::with_optimizer<SGD>(bench::resnet50(8), SGDOptions(1e-3).momentum(0.9));
       }},
  };
  return all;
}

// --- the two sides
// --------------------------------------------------------------------------------

Program fresh(const Workload& workload) {
  torch::manual_seed(0);
  return workload.make();
}

Stepper plain_stepper(const Program& program) {
  return [program] {
    program.optimizer->zero_grad();
    program.step(program.batch).loss.backward();
    program.optimizer->step();
  };
}

using MakeStepper = Stepper (*)(const Program&);

// --- what is measured
// -----------------------------------------------------------------------------

void check_same_parameters(const Workload& workload) {
  Program plain = fresh(workload), epl = fresh(workload);
  const Stepper step_plain = plain_stepper(plain), step_epl = epl_stepper(epl);
  for (int i = 0; i < 3; ++i) {
    step_plain();
    step_epl();
  }
  torch::NoGradGuard no_grad;
  const auto expected = plain.net->named_parameters();
  double worst = 0;
  std::string worst_name;
  for (const auto& item : epl.net->named_parameters()) {
    const auto& other = expected[item.key()];
    const double apart =
        ((item.value() - other).abs().max() / other.abs().max()).template item<double>();
    if (!(apart <= worst)) {
      worst = apart;
      worst_name = item.key();
    }
  }
  if (!(worst <= workload.tolerance)) {
    throw std::runtime_error(workload.name + ": after 3 steps `" + worst_name + "` differs by " +
                             std::to_string(worst) + " of its largest value; allowed is " +
                             std::to_string(workload.tolerance));
  }
}

// Most bytes that one side holds at once in its first three steps: the batch, parameters,
// gradients, optimizer state, activations.
int64_t peak_bytes(const Workload& workload, MakeStepper make) {
  DeviceMemory memory;
  DeviceMemory::Use use(memory);
  const Program program = fresh(workload);
  const Stepper step = make(program);
  for (int i = 0; i < 3; ++i) step();
  return memory.account().peak;
}

struct Measured {
  double plain = 0;  // median seconds of a step
  double epl = 0;
  double first = 0;        // EPL's first step, which records and plans
  double plain_bytes = 0;  // by the system
  double epl_bytes = 0;
  double forecast_bytes = 0;
  double account_bytes = 0;                   // of a step
  double step_bytes = 0;                      // the same by the system; 0 where it does not tell
  std::map<std::string, double> peers;        // median seconds of a step
  std::map<std::string, double> peers_first;  // of the first step
};

// One side in a process of its own: see bench/turns.h.
void serve_side(const Workload& workload, MakeStepper make) {
  const double before = bytes_of_process("RssAnon");
  const Stepper step = make(fresh(workload));
  const double first = seconds(step);
  bench::seconds_of_each(workload.chunk, step);  // warms up
  const double peak = held_bytes(before);
  bench::serve({first, peak}, [&] { return bench::seconds_of_each(workload.chunk, step); });
}

// Forecast, account and the system's figure of steps that are replayed.
void serve_forecast(const Workload& workload) {
  const torch::Tensor x = torch::ones({512, 512});
  // Libraries keep buffers of their own from here on.
  torch::conv2d(torch::mm(x, x).view({8, 32, 32, 32}), torch::ones({32, 32, 3, 3}));
  const double before = bytes_of_process("RssAnon");
  const Program program = fresh(workload);
  const std::shared_ptr<Trainer> trainer = bench::trainer_of(program);
  const auto step = [&] { trainer->step(program.batch); };
  bench::seconds_of_each(3, step);
  std::ofstream begin_anew("/proc/self/clear_refs");
  const bool tells = static_cast<bool>(begin_anew << "5" << std::flush);
  bench::seconds_of_each(2, step);
  const MemoryReport::Worker here = trainer->memory().workers.at(0);
  bench::serve({static_cast<double>(here.peak()), static_cast<double>(here.measured().value()),
                tells ? held_bytes(before) : 0},
               [] { return std::vector<double>(); });
}

bench::Start start_of_python(const Workload& workload, const std::string& mode) {
  bench::Start start = bench::start_of_peer(
      "single.py",
      {{"--model", workload.name}, {"--steps", std::to_string(workload.chunk)}, {"--mode", mode}});
  start.environment["OMP_NUM_THREADS"] = start.environment["OPENBLAS_NUM_THREADS"] = "1";
  return start;
}

void measure_forecast(const Workload& workload, Measured& measured) {
  bench::Side side("forecast", {{"--serve", "forecast", "--models", workload.name}});
  const std::vector<double> bytes = side.answer();
  side.end();
  measured.forecast_bytes = bytes.at(0);
  measured.account_bytes = bytes.at(1);
  measured.step_bytes = bytes.at(2);
}

Measured measure_sides(const Workload& workload, int rounds,
                       const std::vector<std::string>& peers) {
  Measured measured;
  bench::Side plain("plain", {{"--serve", "plain", "--models", workload.name}});
  measured.plain_bytes = plain.answer().at(1);  // the sides must not start up at the same time
  bench::Side epl("EPL", {{"--serve", "epl", "--models", workload.name}});
  const std::vector<double> of_first = epl.answer();
  measured.first = of_first.at(0);
  measured.epl_bytes = of_first.at(1);
  measure_forecast(workload, measured);
  std::map<std::string, std::unique_ptr<bench::Side>> of_python;
  for (const std::string& peer : peers) {
    of_python[peer] = std::make_unique<bench::Side>(peer, start_of_python(workload, peer));
    measured.peers_first[peer] = of_python[peer]->answer().at(0);
  }
  std::map<std::string, bench::Side*> sides = {{"plain", &plain}, {"EPL", &epl}};
  for (const auto& [name, side] : of_python) sides[name] = side.get();
  std::map<std::string, std::vector<double>> taken;
  for (int round = 0; round < rounds; ++round) {
    for (const auto& [name, side] : sides) {
      side->go();
      for (double seconds : side->answer()) taken[name].push_back(seconds);
    }
  }
  for (const auto& [name, side] : sides) side->end();
  measured.plain = median(taken["plain"]);
  measured.epl = median(taken["EPL"]);
  for (const std::string& peer : peers) measured.peers[peer] = median(taken[peer]);
  return measured;
}

void profile(const Workload& workload, MakeStepper make) {
  const Stepper step = make(fresh(workload));
  std::vector<double> taken;
  double sum = 0;
  step();
  while (sum < 10) {
    taken.push_back(seconds(step));
    sum += taken.back();
  }
  std::printf("%-10s %zu steps, median %.3f ms\n", workload.name.c_str(), taken.size(),
              1e3 * median(taken));
}

// --- the report
// -----------------------------------------------------------------------------------

struct Result {
  std::string name;
  double ratio, memory_ratio, system_memory_ratio, capture_in_eager_steps;
  double forecast_error, forecast_vs_system;
  std::map<std::string, double> over_peers = {};
};

void print_peers(const Workload& workload, const Measured& measured) {
  for (const auto& [peer, seconds] : measured.peers) {
    std::printf("%-10s PyTorch %s %9.3f ms  EPL / it %.3f | its first step %.1f s\n",
                workload.name.c_str(), peer.c_str(), 1e3 * seconds, measured.epl / seconds,
                measured.peers_first.at(peer));
  }
}

// How far a forecast is from what was found, as a part of it; not a number where nothing was.
double apart(double forecast, double found) {
  return found > 0 ? std::abs(forecast - found) / found : std::nan("");
}

Result run(const Workload& workload, int rounds, const std::vector<std::string>& peers) {
  check_same_parameters(workload);
  const int64_t plain_bytes = peak_bytes(workload, plain_stepper);
  const int64_t epl_bytes = peak_bytes(workload, epl_stepper);
  const Measured measured = measure_sides(workload, rounds, peers);
  Result result = {workload.name,
                   measured.epl / measured.plain,
                   static_cast<double>(epl_bytes) / static_cast<double>(plain_bytes),
                   measured.epl_bytes / measured.plain_bytes,
                   (measured.first - measured.epl) / measured.plain,
                   apart(measured.forecast_bytes, measured.account_bytes),
                   apart(measured.forecast_bytes, measured.step_bytes)};
  std::printf(
      "%-10s plain %9.3f ms  EPL %9.3f ms  ratio %.3f | peak memory %8.2f MB -> %8.2f MB, ratio "
      "%.3f; by the system %8.2f MB -> %8.2f MB, ratio %.3f | capture and planning %.2f eager "
      "steps\n",
      workload.name.c_str(), 1e3 * measured.plain, 1e3 * measured.epl, result.ratio,
      static_cast<double>(plain_bytes) / 1e6, static_cast<double>(epl_bytes) / 1e6,
      result.memory_ratio, measured.plain_bytes / 1e6, measured.epl_bytes / 1e6,
      result.system_memory_ratio, result.capture_in_eager_steps);
  std::printf(
      "%-10s a step by forecast %8.2f MB, by the account %8.2f MB, by the system %8.2f MB\n",
      workload.name.c_str(), measured.forecast_bytes / 1e6, measured.account_bytes / 1e6,
      measured.step_bytes / 1e6);
  print_peers(workload, measured);
  for (const auto& [peer, seconds] : measured.peers) {
    result.over_peers[peer] = measured.epl / seconds;
  }
  std::fflush(stdout);
  return result;
}

std::string json(const std::vector<Result>& results, double Result::*member) {
  std::string text;
  for (const Result& result : results) {
    char number[32] = "null";
    const double value = result.*member;
    if (!std::isnan(value)) std::snprintf(number, sizeof number, "%.4f", value);
    text += (text.empty() ? "\"" : ", \"") + result.name + "\": " + number;
  }
  return text;
}

// A part for each peer: ", \"over_compiled\": {...}".
std::string json_of_peers(const std::vector<Result>& results) {
  std::string text;
  for (const auto& named : results.at(0).over_peers) {
    std::string ratios;
    for (const Result& result : results) {
      ratios += concat(ratios.empty() ? "" : ", ", "\"", result.name,
                       "\": ", result.over_peers.at(named.first));
    }
    text += concat(", \"over_", named.first, "\": {", ratios, "}");
  }
  return text;
}

struct Arguments {
  std::vector<std::string> models;
  std::vector<std::string> peers;
  int rounds = 7;
  std::string profile;
  std::string serve;  // this process is one side of a measurement
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const std::string key = argv[i];
    if (i + 1 == argc) throw std::runtime_error(key + " needs a value");
    const std::string value = argv[i + 1];
    if (key == "--models" || key == "--peers") {
      auto& names = key == "--models" ? arguments.models : arguments.peers;
      std::stringstream list(value);
      for (std::string name; std::getline(list, name, ',');) names.push_back(name);
    } else if (key == "--rounds") {
      arguments.rounds = std::max(1, std::stoi(value));
    } else if (key == "--profile" && (value == "epl" || value == "plain")) {
      arguments.profile = value;
    } else if (key == "--serve" && (value == "epl" || value == "plain" || value == "forecast")) {
      arguments.serve = value;
    } else {
      throw std::runtime_error(
          "usage: bench_step [--models mlp,bert_base,gpt,resnet50] "
          "[--rounds N] [--profile epl|plain] [--peers eager,compiled]");
    }
  }
  for (const std::string& name : arguments.models) {
    const bool known = std::any_of(workloads().begin(), workloads().end(),
                                   [&](const Workload& workload) { return workload.name == name; });
    if (!known) throw std::runtime_error("there is no model \"" + name + "\"");
  }
  for (const std::string& peer : arguments.peers) {
    if (peer != "eager" && peer != "compiled") {
      throw std::runtime_error("there is no peer \"" + peer + "\"");
    }
  }
  if (!arguments.peers.empty() && !bench::torch_is_installed()) {
    throw std::runtime_error(std::string(bench::kPython) +
                             " has no torch (Debian: apt-get install python3-torch)");
  }
  return arguments;
}

int run_all(const Arguments& arguments) {
  bench::use_one_thread();
  epl::init();
  std::vector<Result> results;
  for (const Workload& workload : workloads()) {
    const auto& chosen = arguments.models;
    if (!chosen.empty() && std::find(chosen.begin(), chosen.end(), workload.name) == chosen.end()) {
      continue;
    }
    if (arguments.serve == "forecast") {
      serve_forecast(workload);
    } else if (!arguments.serve.empty()) {
      serve_side(workload, arguments.serve == "epl" ? epl_stepper : plain_stepper);
    } else if (arguments.profile.empty()) {
      results.push_back(run(workload, arguments.rounds, arguments.peers));
    } else {
      profile(workload, arguments.profile == "epl" ? epl_stepper : plain_stepper);
    }
  }
  if (!results.empty()) {
    std::printf(
        "{%s, \"memory\": {%s}, \"system_memory\": {%s}, \"forecast_error\": {%s}, "
        "\"forecast_vs_system\": {%s}, \"capture_in_eager_steps\": {%s}%s}\n",
        json(results, &Result::ratio).c_str(), json(results, &Result::memory_ratio).c_str(),
        json(results, &Result::system_memory_ratio).c_str(),
        json(results, &Result::forecast_error).c_str(),
        json(results, &Result::forecast_vs_system).c_str(),
        json(results, &Result::capture_in_eager_steps).c_str(), json_of_peers(results).c_str());
  }
  return 0;
}

}  // namespace
}  // namespace epl

int main(int argc, char** argv) {
  try {
    return epl::run_all(epl::parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "bench_step: " << error.what() << "\n";
    return 1;
  }
}

// What does it cost to keep less? EPL with memory.limit against EPL that keeps all, on one device
// with one thread.
//
//   bench_checkpoint [--models bert_base,gpt,gpt24,resnet50,tiny_gpt] [--rounds 5]
//
// A limit is set such that the values of a step (activations and temporary memory) take half, or a
// third, of what they take if all are kept; or the least that can be reached, where that is more.
// Before anything is timed, three steps under each limit must give the bits of those without one.
// The sides take turns, each in a process of its own. Printed for each model: the ratio of the
// medians of step times at each limit, the fraction that was reached, the seconds that recording
// and planning took more than without a limit, and how often the account of a side's memory was
// above its limit after its first steps. The last line is one JSON object.
#include <epl/epl.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/programs.h"
#include "bench/turns.h"
#include "runtime/device_memory.h"

namespace epl {
namespace {

using bench::Program;
using bench::Stepper;

struct Workload {
  std::string name;
  int chunk;  // steps of a turn
  std::function<Program()> make;
};

const std::vector<Workload>& workloads() {
  using torch::optim::AdamW;
  using torch::optim::AdamWOptions;
  using torch::optim::SGD;
  using torch::optim::SGDOptions;
  static const std::vector<Workload> all = {
      {"tiny_gpt", 20,
       [] { return bench::with_optimizer<SGD>(bench::tiny_gpt(8), SGDOptions(0.01)); }},
      {"bert_base", 1,
       [] { return bench::with_optimizer<AdamW>(bench::bert_base(4), AdamWOptions(1e-4)); }},
      {"gpt", 1, [] { return bench::with_optimizer<AdamW>(bench::gpt(8), AdamWOptions(1e-4)); }},
      {"gpt24", 1,
       [] {
         const models::TransformerSize size = {8192, /*hidden=*/512, /*layers=*/24, /*heads=*/8,
                                               /*length=*/128};
         return bench::with_optimizer<AdamW>(bench::gpt_of(size, 4, {}), AdamWOptions(1e-4));
       }},
      {"resnet50", 2,
       [] {
         return bench::with_optimizer<SGD>(bench::resnet50(8), SGDOptions(1e-3).momentum(0.9));
       }},
  };
  return all;
}

void begin(int64_t limit) { limit > 0 ? epl::init(Config{{"memory.limit", limit}}) : epl::init(); }

Program fresh(const Workload& workload) {
  torch::manual_seed(0);
  return workload.make();
}

// --- limits -------------------------------------------------------------------------------------

int64_t number_in(const std::string& text, const std::string& pattern) {
  std::smatch found;
  if (!std::regex_search(text, found, std::regex(pattern))) {
    throw std::runtime_error("no " + pattern + " in: " + text.substr(0, 1000));
  }
  return std::stoll(found[1]);
}

// Bytes of a step: by what its plan and the error of a limit that is too small say.
struct Bytes {
  int64_t kept = 0;   // of the values, if all are kept
  int64_t least = 0;  // of the values, if as little as possible is
  int64_t floor = 0;  // the least limit
};

Bytes bytes_of(const Workload& workload) {
  Bytes bytes;
  epl::init(Config{{"gradient_checkpoint.type", "auto"}});
  {
    const Program program = fresh(workload);
    Trainer trainer(program.net, *program.optimizer, program.step);
    for (int i = 0; i < 2; ++i) trainer.step(program.batch);
    const std::string plan = trainer.plan();
    bytes.least = number_in(plan, "values take (\\d+) bytes at most");
    bytes.kept = number_in(plan, "(\\d+) if all were kept");
  }
  begin(1);
  try {
    const Program program = fresh(workload);
    Trainer trainer(program.net, *program.optimizer, program.step);
    for (int i = 0; i < 2; ++i) trainer.step(program.batch);
    throw std::runtime_error("a limit of one byte is no error");
  } catch (const Error& error) {
    bytes.floor = number_in(error.what(), "needs at least (\\d+) bytes");
  }
  return bytes;
}

struct Limit {
  double fraction = 1;  // of the values' bytes that are kept
  int64_t bytes = 0;    // of all that a device holds; 0: no limit
};

Limit limit_for(const Bytes& bytes, double fraction) {
  const auto wanted = static_cast<int64_t>(fraction * static_cast<double>(bytes.kept));
  const int64_t values = std::max(wanted, bytes.least);
  return {static_cast<double>(values) / static_cast<double>(bytes.kept),
          bytes.floor + values - bytes.least};
}

// --- the sides ----------------------------------------------------------------------------------

std::vector<torch::Tensor> parameters_after(const Workload& workload, int64_t limit) {
  begin(limit);
  const Program program = fresh(workload);
  const Stepper step = bench::epl_stepper(program);
  for (int i = 0; i < 3; ++i) step();
  std::vector<torch::Tensor> parameters;
  for (const auto& parameter : program.net->parameters()) {
    parameters.push_back(parameter.detach().clone());
  }
  return parameters;
}

void check_same_bits(const Workload& workload, const std::vector<torch::Tensor>& kept,
                     const Limit& limit) {
  const std::vector<torch::Tensor> limited = parameters_after(workload, limit.bytes);
  for (size_t i = 0; i < kept.size(); ++i) {
    if (torch::equal(kept[i], limited[i])) continue;
    throw std::runtime_error(workload.name + ": parameter " + std::to_string(i) +
                             " has other bits under a limit of " + std::to_string(limit.bytes));
  }
}

// Answers first: the seconds of its first two steps, and the peak of its account after them.
void serve(const Workload& workload, int64_t limit) {
  begin(limit);
  DeviceMemory memory;
  const DeviceMemory::Use use(memory);
  const Stepper step = bench::epl_stepper(fresh(workload));
  const double first = bench::seconds(step) + bench::seconds(step);
  memory.reset_peak();
  step();
  const auto peak = static_cast<double>(memory.account().peak);
  bench::serve({first, peak}, [&] { return bench::seconds_of_each(workload.chunk, step); });
}

struct Measured {
  double first = 0;
  double peak = 0;
  double step = 0;
};

std::vector<Measured> measure(const Workload& workload, const std::vector<Limit>& limits,
                              int rounds) {
  std::vector<std::unique_ptr<bench::Side>> sides;
  std::vector<Measured> measured;
  for (const Limit& limit : limits) {
    const std::string bytes = std::to_string(limit.bytes);
    sides.push_back(std::make_unique<bench::Side>(
        "limit " + bytes, bench::Start{{"--serve", bytes, "--models", workload.name}}));
    const std::vector<double> answer = sides.back()->answer();
    measured.push_back({answer.at(0), answer.at(1), 0});
  }
  std::vector<std::vector<double>> taken(limits.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < sides.size(); ++i) {
      sides[i]->go();
      for (double seconds : sides[i]->answer()) taken[i].push_back(seconds);
    }
  }
  for (auto& side : sides) side->end();
  for (size_t i = 0; i < limits.size(); ++i) measured[i].step = bench::median(taken[i]);
  return measured;
}

// --- the report ---------------------------------------------------------------------------------

struct Result {
  std::string name;
  double time_at_half = 0, time_at_third = 0;
  double half = 0, third = 0;  // that was reached
  double plan_seconds = 0;
  double limit_violations = 0;
};

Result run(const Workload& workload, int rounds) {
  const Bytes bytes = bytes_of(workload);
  const std::vector<Limit> limits = {{}, limit_for(bytes, 1.0 / 2), limit_for(bytes, 1.0 / 3)};
  const std::vector<torch::Tensor> kept = parameters_after(workload, 0);
  check_same_bits(workload, kept, limits[1]);
  check_same_bits(workload, kept, limits[2]);
  const std::vector<Measured> measured = measure(workload, limits, rounds);
  Result result;
  result.name = workload.name;
  result.time_at_half = measured[1].step / measured[0].step;
  result.time_at_third = measured[2].step / measured[0].step;
  result.half = limits[1].fraction;
  result.third = limits[2].fraction;
  result.plan_seconds = std::max(measured[1].first, measured[2].first) - measured[0].first;
  for (size_t i = 1; i < limits.size(); ++i) {
    result.limit_violations += measured[i].peak > static_cast<double>(limits[i].bytes);
  }
  std::printf(
      "%-10s all kept %9.3f ms, values %8.2f MB | at %.3f of them x%.3f, at %.3f x%.3f | planning "
      "%.2f s | %.0f limits exceeded\n",
      workload.name.c_str(), 1e3 * measured[0].step, static_cast<double>(bytes.kept) / 1e6,
      result.half, result.time_at_half, result.third, result.time_at_third, result.plan_seconds,
      result.limit_violations);
  std::fflush(stdout);
  return result;
}

std::string json(const std::vector<Result>& results, const char* name, double Result::*member) {
  std::string text;
  for (const Result& result : results) {
    char number[32];
    std::snprintf(number, sizeof number, "%.4f", result.*member);
    text += (text.empty() ? "\"" : ", \"") + result.name + "\": " + number;
  }
  return std::string("\"") + name + "\": {" + text + "}";
}

struct Arguments {
  std::vector<std::string> models;
  int rounds = 5;
  std::string serve;  // this process is the side with this limit
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const std::string key = argv[i];
    if (i + 1 == argc) throw std::runtime_error(key + " needs a value");
    const std::string value = argv[i + 1];
    if (key == "--models") {
      std::stringstream list(value);
      for (std::string name; std::getline(list, name, ',');) arguments.models.push_back(name);
    } else if (key == "--rounds") {
      arguments.rounds = std::max(1, std::stoi(value));
    } else if (key == "--serve") {
      arguments.serve = value;
    } else {
      throw std::runtime_error("usage: bench_checkpoint [--models NAME,...] [--rounds N]");
    }
  }
  return arguments;
}

int run_all(const Arguments& arguments) {
  bench::use_one_thread();
  const std::vector<std::string>& chosen = arguments.models;
  std::vector<Result> results;
  for (const Workload& workload : workloads()) {
    const bool named = std::find(chosen.begin(), chosen.end(), workload.name) != chosen.end();
    const bool wanted = chosen.empty() ? workload.name != "tiny_gpt" : named;
    if (!wanted) continue;
    if (!arguments.serve.empty()) {
      serve(workload, std::stoll(arguments.serve));
    } else {
      results.push_back(run(workload, arguments.rounds));
    }
  }
  if (!arguments.serve.empty()) return 0;
  if (results.empty()) throw std::runtime_error("there is no such model");
  std::printf(
      "{%s, %s, %s, %s, %s, %s}\n", json(results, "time_at_half", &Result::time_at_half).c_str(),
      json(results, "time_at_third", &Result::time_at_third).c_str(),
      json(results, "half", &Result::half).c_str(), json(results, "third", &Result::third).c_str(),
      json(results, "plan_seconds", &Result::plan_seconds).c_str(),
      json(results, "limit_violations", &Result::limit_violations).c_str());
  return 0;
}

}  // namespace
}  // namespace epl

int main(int argc, char** argv) {
  try {
    return epl::run_all(epl::parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "bench_checkpoint: " << error.what() << "\n";
    return 1;
  }
}

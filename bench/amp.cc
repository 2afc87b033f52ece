// What does mixed precision gain? EPL with amp.level = "O1" against EPL in float32, and against the
// plain loop under LibTorch's own autocast; one device, one thread.
//
//   bench_amp [--models bert_base,gpt] [--rounds 7] [--loss_steps 200]
//
// Before anything is timed, three steps must give the parameters of the plain loop under the same
// casts. Sides take turns, each in a process of its own (bench/turns.h), and what counts is the
// median of the ratios of a round. loss_gap: how far the losses of both precisions are apart after
// so many steps on one batch, in terms of the loss at the beginning. The last line is one JSON
// object; "judged" says whether this CPU has bfloat16 products that are worth it: one of 256x256
// must take at most half of the time of float32.
#include <epl/epl.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "amp/remarks.h"
#include "bench/programs.h"
#include "bench/turns.h"
#include "bench/words.h"
#include "capture/amp_scope.h"
#include "config/libtorch.h"
#include "runtime/device_memory.h"
#include "runtime/tile_products.h"

namespace epl {
namespace {

using bench::median;
using bench::Program;
using bench::Stepper;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;

struct Workload {
  std::string name;
  int chunk;  // steps before another side takes its turn
  bench::Model (*make)(int64_t rows, std::vector<int64_t> stage_starts);
  int64_t rows;
};

const std::vector<Workload>& workloads() {
  static const std::vector<Workload> all = {
      {"bert_base", 2, bench::bert_base, 4},
      {"gpt", 3, bench::gpt, 8},
      {"tiny_gpt", 20, bench::tiny_gpt, 8},
  };
  return all;
}

Program fresh(const Workload& workload) {
  torch::manual_seed(0);
  return bench::with_optimizer<AdamW>(workload.make(workload.rows, {}), AdamWOptions(1e-4));
}

// --- the sides
// ------------------------------------------------------------------------------------

void switch_amp(bool on) { init(on ? Config{{"amp.level", "O1"}} : Config()); }

void switch_autocast(bool on) {
#if EPL_TORCH_AT_LEAST(2, 4)
  at::autocast::set_autocast_enabled(at::kCPU, on);
#else
  at::autocast::set_cpu_enabled(on);
#endif
  if (!on) at::autocast::clear_cache();
}

template <typename Forward>
Stepper plain_stepper(const Program& program, Forward forward) {
  return [program, forward] {
    program.optimizer->zero_grad();
    forward(program).backward();
    program.optimizer->step();
  };
}

torch::Tensor under_autocast(const Program& program) {
  switch_autocast(true);
  const torch::Tensor loss = program.step(program.batch).loss;
  switch_autocast(false);
  return loss;
}

torch::Tensor under_amp_scope(const Program& program) {
  const AmpScope scope(torch::kBFloat16);
  return program.step(program.batch).loss;
}

Stepper stepper_of(const std::string& side, const Program& program) {
  if (side == "autocast") return plain_stepper(program, under_autocast);
  switch_amp(side == "amp");
  return bench::epl_stepper(program);
}

void serve_side(const Workload& workload, const std::string& side) {
  const Program program = fresh(workload);
  const Stepper step = stepper_of(side, program);
  const double first = bench::seconds(step);
  bench::seconds_of_each(workload.chunk, step);  // warms up
  bench::serve(first, [&] { return bench::seconds_of_each(workload.chunk, step); });
}

// --- what is measured
// -----------------------------------------------------------------------------

void check_same_parameters(const Workload& workload) {
  constexpr double kTolerance = 1e-4;  // Adam makes whole steps of rounding
  Program plain = fresh(workload), epl = fresh(workload);
  const Stepper step_plain = plain_stepper(plain, under_amp_scope);
  const Stepper step_epl = stepper_of("amp", epl);
  for (int i = 0; i < 3; ++i) {
    step_plain();
    step_epl();
  }
  const torch::NoGradGuard no_grad;
  const auto expected = plain.net->named_parameters();
  for (const auto& item : epl.net->named_parameters()) {
    const auto& other = expected[item.key()];
    const double apart = ((item.value() - other).abs().max() / other.abs().max()).item<double>();
    if (apart <= kTolerance) continue;
    throw std::runtime_error(workload.name + ": after 3 steps `" + item.key() + "` differs by " +
                             std::to_string(apart) + " of its largest value");
  }
}

double peak_bytes(const Workload& workload, const std::string& side) {
  DeviceMemory memory;
  const DeviceMemory::Use use(memory);
  const Program program = fresh(workload);
  const Stepper step = stepper_of(side, program);
  for (int i = 0; i < 3; ++i) step();
  return static_cast<double>(memory.account().peak);
}

double loss_gap(const Workload& workload, int steps) {
  double first = 0;
  std::map<bool, double> last;
  for (const bool amp : {false, true}) {
    switch_amp(amp);
    const Program program = fresh(workload);
    auto net = program.net;
    Trainer trainer(net, *program.optimizer, program.step);
    for (int i = 0; i < steps; ++i) {
      last[amp] = trainer.step(program.batch).loss;
      if (i == 0 && !amp) first = last[amp];
    }
  }
  return std::abs(last[true] - last[false]) / first;
}

struct Result {
  std::string name;
  double time_vs_fp32 = 0;
  double vs_torch_autocast = 0;
  double memory = 0;
  double loss_gap = 0;
};

// Medians of the ratios of each round, amp over the others.
void take_turns(const Workload& workload, int rounds, Result& result) {
  const std::vector<std::string> names = {"float32", "amp", "autocast"};
  std::map<std::string, std::unique_ptr<bench::Side>> sides;
  for (const auto& name : names) {
    sides[name] = std::make_unique<bench::Side>(
        name, bench::Start{{"--serve", name, "--models", workload.name}});
    sides[name]->answer();  // they do not start up at the same time
  }
  std::vector<double> to_float32, to_autocast;
  for (int round = 0; round < rounds; ++round) {
    std::map<std::string, double> taken;
    for (size_t i = 0; i < names.size(); ++i) {  // nobody always follows the same other
      const auto& name = names[round % 2 == 0 ? i : names.size() - 1 - i];
      sides[name]->go();
      taken[name] = median(sides[name]->answer());
    }
    to_float32.push_back(taken["amp"] / taken["float32"]);
    to_autocast.push_back(taken["amp"] / taken["autocast"]);
    std::fprintf(stderr, "%s: round %d, ms: float32 %.2f amp %.2f autocast %.2f\n",
                 workload.name.c_str(), round + 1, 1e3 * taken["float32"], 1e3 * taken["amp"],
                 1e3 * taken["autocast"]);
  }
  for (const auto& [name, side] : sides) side->end();
  result.time_vs_fp32 = median(to_float32);
  result.vs_torch_autocast = median(to_autocast);
}

Result run(const Workload& workload, int rounds, int loss_steps) {
  check_same_parameters(workload);
  Result result;
  result.name = workload.name;
  result.memory = peak_bytes(workload, "amp") / peak_bytes(workload, "float32");
  result.loss_gap = loss_gap(workload, loss_steps);
  take_turns(workload, rounds, result);
  std::printf("%-10s amp / float32 %.3f  amp / autocast %.3f  peak memory %.3f  loss gap %.4f\n",
              workload.name.c_str(), result.time_vs_fp32, result.vs_torch_autocast, result.memory,
              result.loss_gap);
  std::fflush(stdout);
  return result;
}

std::string json(const std::vector<Result>& results, double Result::*member) {
  std::string text;
  for (const Result& result : results) {
    text +=
        (text.empty() ? "\"" : ", \"") + result.name + "\": " + bench::text(result.*member, "null");
  }
  return "{" + text + "}";
}

struct Arguments {
  std::vector<std::string> models = {"bert_base", "gpt"};
  int rounds = 7;
  int loss_steps = 200;
  std::string serve;  // this process is one side of a measurement
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const std::string key = argv[i];
    if (i + 1 == argc) throw std::runtime_error(key + " needs a value");
    const std::string value = argv[i + 1];
    if (key == "--models") {
      arguments.models = bench::parts(value);
    } else if (key == "--rounds") {
      arguments.rounds = std::max(1, std::stoi(value));
    } else if (key == "--loss_steps") {
      arguments.loss_steps = std::max(1, std::stoi(value));
    } else if (key == "--serve") {
      arguments.serve = value;
    } else {
      throw std::runtime_error(
          "usage: bench_amp [--models bert_base,gpt,tiny_gpt] [--rounds N] [--loss_steps N]");
    }
  }
  std::vector<std::string> known;
  for (const Workload& workload : workloads()) known.push_back(workload.name);
  bench::check_known(arguments.models, known);
  return arguments;
}

int run_all(const Arguments& arguments) {
  bench::use_one_thread();
  avoid_tile_products();
  const auto& chosen = arguments.models;
  const auto is_chosen = [&](const Workload& workload) {
    return std::find(chosen.begin(), chosen.end(), workload.name) != chosen.end();
  };
  std::vector<Result> results;
  for (const Workload& workload : workloads()) {
    if (!is_chosen(workload)) continue;
    if (!arguments.serve.empty()) {
      serve_side(workload, arguments.serve);
      return 0;
    }
    results.push_back(run(workload, arguments.rounds, arguments.loss_steps));
  }
  const double product = relative_product_time(torch::kBFloat16, torch::kCPU).value_or(1);
  std::printf(
      "{\"bf16_product_ratio\": %.4f, \"judged\": %s, \"time_vs_fp32\": %s, "
      "\"vs_torch_autocast\": %s, \"memory\": %s, \"loss_gap\": %s}\n",
      product, product <= 0.5 ? "true" : "false", json(results, &Result::time_vs_fp32).c_str(),
      json(results, &Result::vs_torch_autocast).c_str(), json(results, &Result::memory).c_str(),
      json(results, &Result::loss_gap).c_str());
  return 0;
}

}  // namespace
}  // namespace epl

int main(int argc, char** argv) {
  try {
    return epl::run_all(epl::parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "bench_amp: " << error.what() << "\n";
    return 1;
  }
}

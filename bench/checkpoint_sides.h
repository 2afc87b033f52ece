// The sides of bench_checkpoint: EPL under a limit, and PyTorch with and without checkpoints.
#pragma once

#include <epl/epl.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <memory>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/crew.h"
#include "bench/machine.h"
#include "bench/programs.h"
#include "bench/turns.h"
#include "runtime/device_memory.h"

namespace epl::bench {

struct CheckpointWorkload {
  std::string name;
  int chunk;  // steps of a turn
  int64_t rows;
  std::function<Program(int64_t rows)> make;

  Program fresh(int64_t rows_of_batch) const {
    torch::manual_seed(0);
    return make(rows_of_batch);
  }
};

inline const std::vector<CheckpointWorkload>& checkpoint_workloads() {
  using torch::optim::AdamW;
  using torch::optim::AdamWOptions;
  using torch::optim::SGD;
  using torch::optim::SGDOptions;
  static const std::vector<CheckpointWorkload> all = {
      {"tiny_gpt", 20, 8,
       [](int64_t rows) { return with_optimizer<SGD>(tiny_gpt(rows), SGDOptions(0.01)); }},
      {"bert_base", 1, 4,
       [](int64_t rows) { return with_optimizer<AdamW>(bert_base(rows), AdamWOptions(1e-4)); }},
      {"gpt", 1, 8,
       [](int64_t rows) { return with_optimizer<AdamW>(gpt(rows), AdamWOptions(1e-4)); }},
      {"gpt24", 1, 4,
       [](int64_t rows) {
         const models::TransformerSize size = {8192, /*hidden=*/512, /*layers=*/24, /*heads=*/8,
                                               /*length=*/128};
         return with_optimizer<AdamW>(gpt_of(size, rows, {}), AdamWOptions(1e-4));
       }},
      {"resnet50", 2, 8,
       [](int64_t rows) {
         return with_optimizer<SGD>(resnet50(rows), SGDOptions(1e-3).momentum(0.9));
       }},
  };
  return all;
}

// Values are what is chosen from, so gradients are not to hide them: with few rows those of a
// transformer take less than all gradients do, which would be there together at the end.
inline void begin_within(int64_t limit) {
  const Setting early("optimizer.update_early", true);
  limit > 0 ? epl::init(Config{{"memory.limit", limit}, early}) : epl::init(Config{early});
}

// --- bytes ---------------------------------------------------------------------------------------

inline int64_t number_in(const std::string& text, const std::string& pattern) {
  std::smatch found;
  if (!std::regex_search(text, found, std::regex(pattern))) {
    throw std::runtime_error("no " + pattern + " in: " + text.substr(0, 1000));
  }
  return std::stoll(found[1]);
}

// The least limit for a batch of so many rows.
inline int64_t least_limit(const CheckpointWorkload& workload, int64_t rows) {
  begin_within(1);
  const Program program = workload.fresh(rows);
  try {
    trainer_of(program)->forecast(program.batch);
  } catch (const Error& error) {
    return number_in(error.what(), "needs at least (\\d+) bytes");
  }
  throw std::runtime_error("a limit of one byte is no error");
}

inline bool can_keep(const CheckpointWorkload& workload, int64_t rows, int64_t limit) {
  begin_within(limit);
  const Program program = workload.fresh(rows);
  try {
    trainer_of(program)->forecast(program.batch);
  } catch (const Error& error) {
    number_in(error.what(), "needs at least (\\d+) bytes");
    return false;
  }
  return true;
}

// What the plain LibTorch loop holds at most in its first three steps, by EPL's account.
inline int64_t plain_peak(const CheckpointWorkload& workload) {
  DeviceMemory memory;
  const DeviceMemory::Use use(memory);
  const Program program = workload.fresh(workload.rows);
  for (int i = 0; i < 3; ++i) {
    program.optimizer->zero_grad();
    program.step(program.batch).loss.backward();
    program.optimizer->step();
  }
  return memory.account().peak;
}

// The largest batch that a limit allows, of up to four times the rows: a forecast records the step,
// with all the memory of a plain one.
inline int64_t most_rows(const CheckpointWorkload& workload, int64_t limit) {
  const int64_t rows = workload.rows;
  for (int64_t halves = 8; halves > 2; --halves) {
    if (can_keep(workload, rows * halves / 2, limit)) return rows * halves / 2;
  }
  return rows;
}

// --- a process of EPL ----------------------------------------------------------------------------

struct SideOfEpl {
  int64_t limit = 0;
  int64_t rows = 0;
};

// What it answers first.
struct FirstSteps {
  double seconds = 0;   // of two, which are recorded and looked at again
  double limited = 0;   // bytes at most in a step by the account, of what the limit is about
  double forecast = 0;  // of a worker
  double measured = 0;  // the same by the account of the trainer
  double system = 0;    // the same by the system; 0 where it does not tell
};

inline void serve_epl(const CheckpointWorkload& workload, const SideOfEpl& side) {
  begin_within(side.limit);
  const torch::Tensor x = torch::ones({512, 512});
  // Libraries keep buffers of their own from here on.
  torch::conv2d(torch::mm(x, x).view({8, 32, 32, 32}), torch::ones({32, 32, 3, 3}));
  const double before = bytes_of_process("RssAnon");
  const Program program = workload.fresh(side.rows);
  const std::shared_ptr<Trainer> trainer = trainer_of(program);
  const Stepper step = [&] { trainer->step(program.batch); };
  const double first = seconds(step) + seconds(step);
  seconds(step);
  std::ofstream begin_anew("/proc/self/clear_refs");
  const bool tells = static_cast<bool>(begin_anew << "5" << std::flush);
  seconds_of_each(2, step);
  const MemoryReport::Worker here = trainer->memory().workers.at(0);
  // The limit does not know what kernels hold while they run.
  const int64_t limited =
      here.measured().value() - here.devices.at(0).bytes[MemoryKind::kWorkspace];
  serve({first, static_cast<double>(limited), static_cast<double>(here.peak()),
         static_cast<double>(here.measured().value()), tells ? held_bytes(before) : 0},
        [&] { return seconds_of_each(workload.chunk, step); });
}

inline FirstSteps first_steps(Side& side) {
  const std::vector<double> answer = side.answer();
  return {answer.at(0), answer.at(1), answer.at(2), answer.at(3), answer.at(4)};
}

inline std::unique_ptr<Side> start_epl(const CheckpointWorkload& workload, const SideOfEpl& side) {
  return std::make_unique<Side>("EPL within " + std::to_string(side.limit) + " bytes",
                                Start{{"--serve", std::to_string(side.limit), "--rows",
                                       std::to_string(side.rows), "--models", workload.name}});
}

// --- a process of PyTorch ------------------------------------------------------------------------

inline std::unique_ptr<Side> start_torch(const CheckpointWorkload& workload,
                                         const std::string& mode) {
  Start start = start_of_peer("checkpoint.py", {{"--model", workload.name},
                                                {"--rows", std::to_string(workload.rows)},
                                                {"--steps", std::to_string(workload.chunk)},
                                                {"--mode", mode}});
  start.environment["OMP_NUM_THREADS"] = start.environment["OPENBLAS_NUM_THREADS"] = "1";
  return std::make_unique<Side>("torch, " + mode, start);
}

}  // namespace epl::bench

// What bench_split found, as a table and as JSON.
#pragma once

#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/rounds.h"
#include "bench/split_process.h"
#include "bench/words.h"

namespace epl::bench {

struct SplitResult {
  SplitCase asked;
  int steps = 0;
  Rounds rounds;
  std::map<std::string, SideFacts> facts;
  std::map<std::string, Memory> memory;  // of the process that holds most

  std::string cut() const { return asked.sides().first; }
  std::string other() const { return asked.sides().second; }
  // The cut side in terms of the other one: the median over the rounds.
  double time() const { return rounds.faster(other(), cut()); }
  double moved() const { return facts.at(cut()).moved / facts.at(other()).moved; }
  double held() const { return facts.at(cut()).held / facts.at(cut()).whole; }
  double peak() const { return memory.at(cut()).peak / memory.at(other()).peak; }
  double resident() const { return memory.at(cut()).resident / memory.at(other()).resident; }
  double step_seconds(const std::string& side) const {
    return rounds.typical(side, &Turn::seconds) / steps;
  }
};

inline void print_table(const std::vector<SplitResult>& results) {
  std::printf("%-12s %10s %-14s %12s %12s %10s %16s %14s %10s %10s %8s\n", "case", "on", "side",
              "ms a step", "ms of cores", "vs other", "moved a device", "held a device", "peak",
              "resident", "foreign");
  for (const auto& result : results) {
    const std::string on = std::to_string(result.asked.devices) + " " + result.asked.placement;
    for (const auto& side : {result.cut(), result.other()}) {
      const SideFacts& facts = result.facts.at(side);
      const Memory& memory = result.memory.at(side);
      std::printf(
          "%-12s %10s %-14s %12.3f %12.3f %10.4f %13.3f MB %11.2f MB %7.0f MB %7.0f MB %6.0f %%\n",
          result.asked.name.c_str(), on.c_str(), side.c_str(), 1e3 * result.step_seconds(side),
          1e3 * result.rounds.typical(side, &Turn::work) / result.steps,
          side == result.cut() ? result.time() : 1.0, 1e-6 * facts.moved, 1e-6 * facts.held,
          memory.peak, memory.resident, 100 * result.rounds.foreign(side));
    }
  }
}

// "classifier_in_one_worker_on_4": the placement that a case is mostly asked for, and two devices,
// go without saying.
inline std::string key_of(const SplitCase& asked) {
  std::string key = asked.name;
  if (asked.placement != placements_of(asked.name)[0]) {
    key += asked.has_workers() ? "_over_workers" : "_in_one_worker";
  }
  return asked.devices == 2 ? key : key + "_on_" + std::to_string(asked.devices);
}

using Numbers = std::vector<std::pair<std::string, double>>;

inline Numbers numbers_of(const SplitResult& result) {
  if (result.asked.name == "classifier") {
    return {{"time_vs_data_parallel", result.time()},
            {"bytes_vs_data_parallel", result.moved()},
            {"parameter_bytes_vs_whole", result.held()},
            {"memory_vs_data_parallel", result.peak()},
            {"resident_vs_data_parallel", result.resident()}};
  }
  if (result.asked.name == "gpt_block") return {{"time_vs_hand", result.time()}};
  const SplitSizes sizes = result.asked.sizes();
  const auto tokens = static_cast<double>(sizes.moe_rows * sizes.moe_tokens);
  return {{"tokens_per_second", tokens / result.step_seconds(result.cut())},
          {"tokens_per_second_vs_whole", 1 / result.time()},
          {"all_to_all_bytes", result.facts.at(result.cut()).all_to_all},
          {"bytes_vs_whole", result.moved()},
          {"parameter_bytes_vs_whole", result.held()},
          {"memory_vs_whole", result.peak()}};
}

inline void print_json(const std::vector<SplitResult>& results) {
  std::string json;
  for (const auto& result : results) {
    std::string inner;
    for (const auto& [key, number] : numbers_of(result)) {
      inner += (inner.empty() ? "\"" : ", \"") + key + "\": " + text(number, "null");
    }
    json += (json.empty() ? "\"" : ", \"") + key_of(result.asked) + "\": {" + inner + "}";
  }
  std::printf("{%s}\n", json.c_str());
}

}  // namespace epl::bench

#include "config/checks.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>

#include "base/check.h"
#include "base/text.h"
#include "config/config_keys.h"

namespace epl {
namespace {

constexpr const char* kColocate = "cluster.colocate_split_and_replicate";

// One scope a line, below the "asked by:" of the Error.
std::string asked_by(const std::vector<Strategy>& taskgraphs) {
  std::vector<std::string> lines;
  for (const Strategy& strategy : taskgraphs) lines.push_back(strategy.asked_by());
  return join(lines, "\n            ");
}

std::string count(int64_t n, const std::string& noun) {
  return concat(n, " ", noun, n == 1 ? "" : "s");
}

}  // namespace

void check_available(const Config& config) {
  for (const ConfigKey& key : config_keys()) {
    const ConfigValue& value = config.value(key.key);
    EPL_CHECK(key.available || value == key.default_value,
              concat(key.key, " = ", value.str(), " is not available yet"),
              config.asked_by(key.key),
              concat("leave ", key.key, " at its default, ", key.value_text(key.default_value)));
  }
}

void check_auto_parallel(const std::vector<Strategy>& taskgraphs, const Config& config) {
  const std::string key = "auto.auto_parallel";
  EPL_CHECK(taskgraphs.empty() || !config.get<bool>(key),
            "auto.auto_parallel chooses the strategies, and the program has its own",
            concat(config.asked_by(key), "\n            ", asked_by(taskgraphs)),
            "either auto.auto_parallel or scopes and a default strategy");
}

void check_devices(const std::vector<Strategy>& taskgraphs, const Cluster& cluster,
                   const Config& config) {
  if (taskgraphs.empty()) return;
  std::vector<int64_t> counts;
  for (const Strategy& strategy : taskgraphs) counts.push_back(strategy.device_count);
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const int64_t largest = *std::max_element(counts.begin(), counts.end());
  const bool colocate = config.get<bool>(kColocate);
  const int64_t needed = colocate ? largest : sum;
  const int64_t total = cluster.total_gpu_num;
  if (total % needed == 0) return;

  std::string reason;
  if (counts.size() > 1) {
    reason = colocate ? concat(" (the largest of ", join(counts, ", "), ")")
                      : concat(" (", join(counts, " + "), ")");
  }
  // EPL_DEVICES counts the devices of one worker: the next number at which all workers together
  // have a multiple of `needed`.
  const int64_t step = needed / std::gcd(needed, int64_t{cluster.worker_num});
  const int64_t per_worker = (total / cluster.worker_num + step) / step * step;
  std::string hint = concat("EPL_DEVICES=", per_worker);
  if (!colocate && total % largest == 0) {
    hint += concat(", or ", kColocate, " = true, so that all TaskGraphs share ",
                   count(largest, "device"));
  }
  throw Error(concat(count(total, "device"), " cannot be shared out over model replicas of ",
                     count(needed, "device"), reason),
              asked_by(taskgraphs), hint);
}

}  // namespace epl

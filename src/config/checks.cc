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

struct Switch {
  const char* key;
  ConfigValue on;  // a default switches nothing on
};

// `key` acts only where one of the switches is on.
struct Dependence {
  const char* key;
  std::vector<Switch> switches;
};

std::vector<Dependence> dependences() {
  const Switch chooses{"auto.auto_parallel", true};
  const Switch deals_out{"pipeline.strategy", "Interleaved"};
  const Switch mixes{"amp.level", "O1"};
  const Switch slices{"io.slicing", true};
  const Switch offloads{"offload.level", "v0"};
  const Switch offloads_more{"offload.level", "v1"};
  return {
      {"pipeline.num_stages", {chooses, deals_out}},
      {"pipeline.num_chunks", {chooses}},
      {"pipeline.num_chunks", {deals_out}},
      {"auto.device_memory", {chooses}},
      {"offload.path", {offloads, offloads_more}},
      {"amp.dtype", {mixes}},
      {"amp.debug_log", {mixes}},
      {"amp.loss_scale", {mixes}},
      {"communication.fp16_scale", {{"communication.fp16", true}}},
      {"plan.read_back", {{"plan.only", true}}},
      {"io.drop_last_files", {slices}},
      {"io.unbalanced_io_slicing", {slices}},
  };
}

bool is_default(const std::string& key, const Config& config) {
  return config.value(key) == config_keys()[find_config_key(key)].default_value;
}

void check_dependence(const Dependence& row, const Config& config) {
  if (is_default(row.key, config)) return;
  std::vector<std::string> ways;
  for (const Switch& each : row.switches) {
    if (config.value(each.key) == each.on) return;
    ways.push_back(concat(each.key, " = ", each.on.str()));
  }
  EPL_CHECK(config.origin(row.switches[0].key) != "default",
            concat(row.key, " has no effect without ", join(ways, " or ")),
            config.asked_by(row.key), concat(join(ways, ", or "), ", or leave ", row.key, " out"));
}

// Of what runs again in backward: nothing does where nobody asks for it.
void check_recomputes(const Config& config) {
  const bool limited = !is_default("memory.limit", config);
  const auto type = config.get<std::string>("gradient_checkpoint.type");
  const auto check = [&](const char* key, bool has_effect, const char* ways) {
    EPL_CHECK(has_effect || is_default(key, config), concat(key, " has no effect without ", ways),
              config.asked_by(key), concat(ways, ", or leave ", key, " out"));
  };
  check("gradient_checkpoint.end_taskgraph", type != "collection" && (type == "auto" || limited),
        "gradient_checkpoint.type = \"auto\" or memory.limit");
  check("gradient_checkpoint.check_gradients", !type.empty() || limited,
        "gradient_checkpoint.type or memory.limit");
}

// What has to look at all gradients before anything is updated does not go with updates that come
// as soon as a gradient is complete.
void check_update_early(const Config& config) {
  const char* const early = "optimizer.update_early";
  if (!config.get<bool>(early)) return;
  const auto refuse = [&](const char* key, const char* why) {
    throw Error(concat(early, " updates parameters while the step runs, and ", key, " ", why),
                concat(config.asked_by(early), "\n            ", config.asked_by(key)),
                "one of the two");
  };
  if (!is_default("amp.level", config)) {
    refuse("amp.level", "skips a step in which a gradient is not finite");
  }
  if (!is_default("offload.level", config)) {
    refuse("offload.level", "lets them go as soon as nothing reads them");
  }
  if (!is_default("debug.verify_steps", config)) {
    refuse("debug.verify_steps", "compares all gradients of a step");
  }
  if (!is_default("gradient_checkpoint.check_gradients", config)) {
    refuse("gradient_checkpoint.check_gradients", "compares all gradients of a step");
  }
  if (config.get<std::string>("debug.nan_loss") == "skip") {
    refuse("debug.nan_loss", "leaves parameters as they were");
  }
  if (config.get<int64_t>("optimizer.num_apply_group") > 1) {
    refuse("optimizer.num_apply_group", "cuts the update at the end of a step");
  }
}

// What rests in a file or in the memory of the host is copied there, and shapes cannot be.
void check_plan_only(const Config& config) {
  EPL_CHECK(
      !config.get<bool>("plan.only") || is_default("offload.level", config),
      "plan.only has no memory that offload.level could lay elsewhere",
      concat(config.asked_by("plan.only"), "\n            ", config.asked_by("offload.level")),
      "one of the two");
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

void check_available_on(int worker_num, const Config& config) {
  const char* const zero = "zero.level";
  const char* const offload = "offload.level";
  const bool both =
      !config.get<std::string>(zero).empty() && !config.get<std::string>(offload).empty();
  EPL_CHECK(worker_num == 1 || !both,
            concat(zero, " and ", offload, " are not available together yet on several workers"),
            concat(config.asked_by(zero), "\n            ", config.asked_by(offload)),
            "one of the two");
}

void check_has_effect(const Config& config) {
  for (const Dependence& row : dependences()) check_dependence(row, config);
  check_recomputes(config);
  check_update_early(config);
  check_plan_only(config);
  const std::string drop = "io.drop_last_files";
  const std::string deal = "io.unbalanced_io_slicing";
  EPL_CHECK(!config.get<bool>(drop) || !config.get<bool>(deal),
            concat(drop, " leaves the last files out and ", deal, " deals them out"),
            concat(config.asked_by(drop), "\n            ", config.asked_by(deal)),
            "one of the two");
}

void check_auto_parallel(const std::vector<Strategy>& taskgraphs, const Config& config) {
  const std::string key = "auto.auto_parallel";
  EPL_CHECK(taskgraphs.empty() || !config.get<bool>(key),
            "auto.auto_parallel chooses the strategies, and the program has its own",
            concat(config.asked_by(key), "\n            ", asked_by(taskgraphs)),
            "either auto.auto_parallel or scopes and a default strategy");
}

void check_devices(const std::vector<Strategy>& taskgraphs, const ClusterShape& cluster,
                   const Config& config, const std::string& who) {
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
              who.empty() ? asked_by(taskgraphs) : who, hint);
}

}  // namespace epl

#include "config/config_keys.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "config/spelling.h"

namespace epl {
namespace {

constexpr bool kYes = true;
constexpr bool kNo = false;

Domain integer(int64_t least) { return {Domain::Type::kInteger, least, {}}; }
Domain boolean() { return {Domain::Type::kBoolean, 0, {}}; }
Domain number(int64_t least) { return {Domain::Type::kNumber, least, {}}; }
Domain word(std::vector<std::string> words) { return {Domain::Type::kWord, 0, std::move(words)}; }
Domain device_list() { return {Domain::Type::kDeviceList, 0, {}}; }
Domain path(const char* of) { return {Domain::Type::kPath, 0, {of}}; }
Domain bytes() { return {Domain::Type::kBytes, 1, {}}; }
Domain loss_scale() { return {Domain::Type::kLossScale, 1, {}}; }

// What they mean: docs/configuration.md.
std::vector<ConfigKey> make_config_keys() {
  return {
      // clang-format off
    // key                                     allowed                             default  available
    {"pipeline.num_micro_batch",               integer(1),                         1,       kYes},
    {"pipeline.num_stages",                    integer(1),                         0,       kYes},
    {"pipeline.num_chunks",                    integer(1),                         2,       kYes},
    {"pipeline.strategy",
     word({"PreferBackward", "PreferForward", "PreferBackwardOptimizer", "Interleaved",
           "ZeroBubble"}),
                                                                  "PreferBackward", kYes},
    {"pipeline.gather_parameters",             boolean(),                          true,    kYes},

    {"replicate.batch_norm",                   word({"slice", "micro_batch"}),     "slice", kYes},

    {"gradient_checkpoint.type",               word({"", "collection", "auto"}),   "",      kYes},
    {"gradient_checkpoint.end_taskgraph",      integer(-1),                        -1,      kYes},
    {"gradient_checkpoint.check_gradients",    boolean(),                          false,   kYes},
    {"memory.limit",                           bytes(),                            0,       kYes},
    {"zero.level",                             word({"", "v0", "v1", "v2"}),       "",      kYes},
    {"offload.level",                          word({"", "v0", "v1"}),             "",      kYes},
    {"offload.path",                           path("a folder"),                   "",      kYes},

    {"amp.level",                              word({"", "O1"}),                   "",      kYes},
    {"amp.dtype",                              word({"auto", "bfloat16", "float16"}), "auto", kYes},
    {"amp.debug_log",                          boolean(),                          false,   kYes},
    {"amp.loss_scale",                         loss_scale(),                       "dynamic", kYes},

    {"optimizer.num_apply_group",              integer(1),                         1,       kYes},
    {"optimizer.update_early",                 boolean(),                          false,   kYes},

    {"cluster.device_place_prefer_intra_node", boolean(),                          true,    kYes},
    {"cluster.run_visible_devices",            device_list(),                      "",      kYes},
    {"cluster.colocate_split_and_replicate",   boolean(),                          false,   kYes},
    {"cluster.join_seconds",                   integer(1),                         60,      kYes},
    {"cluster.description",
     path("a file, or the name of a cluster in tools/clusters"),                   "",      kYes},

    {"communication.num_communicators",        integer(1),                         2,       kYes},
    {"communication.sparse_as_dense",          boolean(),                          false,   kYes},
    {"communication.max_splits",               integer(1),                         5,       kYes},
    {"communication.fp16",                     boolean(),                          false,   kYes},
    {"communication.fp16_scale",               integer(1),                         128,     kYes},
    {"communication.clip_after_allreduce",     boolean(),                          false,   kYes},
    {"communication.gradients_reduce_method",  word({"mean", "sum"}),              "mean",  kYes},
    {"communication.silence_seconds",          integer(1),                         5,       kYes},
    {"communication.wait_seconds",             integer(1),                         1800,    kYes},

    {"io.slicing",                             boolean(),                          false,   kYes},
    {"io.unbalanced_io_slicing",               boolean(),                          false,   kYes},
    {"io.drop_last_files",                     boolean(),                          false,   kYes},
    {"auto.auto_parallel",                     boolean(),                          false,   kYes},
    {"auto.device_memory",                     integer(0),                         0,       kYes},

    {"plan.only",                              boolean(),                          false,   kYes},
    {"plan.read_back",                         word({"error", "zero", "one"}),     "error", kYes},

    {"debug.verify_steps",                     integer(0),                         0,       kYes},
    {"debug.verify_tolerance",                 number(0),                          1e-5,    kYes},
    {"debug.nan_loss",                         word({"error", "skip", "ignore"}),  "error", kYes},
    {"debug.kept_tensor",                      word({"error", "ignore"}),          "error", kYes},
      // clang-format on
  };
}

}  // namespace

std::string ConfigKey::variable() const {
  std::string name = "EPL_" + to_upper(key);
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

std::string ConfigKey::value_text(const ConfigValue& value) const {
  const int64_t* integer = value.get_if<int64_t>();
  const bool none = value == default_value && integer != nullptr && *integer < domain.least;
  return none ? "none" : value.str();
}

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = make_config_keys();
  return keys;
}

// Asked some twenty times in each step.
int find_config_key(const std::string& key) {
  static const std::unordered_map<std::string, int> places = [] {
    std::unordered_map<std::string, int> made;
    for (const ConfigKey& row : config_keys()) made.emplace(row.key, static_cast<int>(made.size()));
    return made;
  }();
  const auto found = places.find(key);
  return found == places.end() ? -1 : found->second;
}

const ConfigKey& nearest_config_key(const std::string& key) {
  const bool has_category = key.find('.') != std::string::npos;
  const std::string wanted = to_lower(key);
  auto distance = [&](const ConfigKey& row) {
    const std::string key = row.key;
    const std::string known = has_category ? key : key.substr(key.find('.') + 1);
    const bool is_begun = known.compare(0, wanted.size(), wanted) == 0;
    return is_begun ? 0 : edit_distance(wanted, known);
  };
  return *std::min_element(
      config_keys().begin(), config_keys().end(),
      [&](const ConfigKey& a, const ConfigKey& b) { return distance(a) < distance(b); });
}

}  // namespace epl

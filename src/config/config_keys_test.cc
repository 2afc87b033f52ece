// Every key: its default, what it takes and what is said of what it does not take. The table is
// written out, not read from config_keys.cc, so that a changed key or message shows here.
#include "config/config_keys.h"

#include <set>

#include "base/text.h"
#include "config/checks.h"
#include "config/test_environment.h"

namespace epl {
namespace {

struct Refused {
  ConfigValue value;
  std::string complaint;  // the first line of the message, after the key
};

struct RefusedText {
  std::string text;
  std::string complaint;
};

enum Available { kAvailable, kNotYet };

struct KeyCase {
  std::string key;
  std::string variable;
  std::string default_text;
  std::string allowed;  // the last line of the message
  struct {
    ConfigValue value;
    std::string printed;
  } in_code;
  struct {
    std::string text;
    std::string printed;
  } in_environment;
  std::string misspelt;
  Available available;
  std::vector<Refused> refused;
  std::vector<RefusedText> refused_in_environment;
};

const std::vector<KeyCase>& cases() {
  static const std::vector<KeyCase> cases = {
      // clang-format off
      {"pipeline.num_micro_batch", "EPL_PIPELINE_NUM_MICRO_BATCH",
       "1", "an integer of at least 1",
       {8, "8"}, {"9", "9"}, "pipeline.num_microbatch", kAvailable,
       {{"4", R"(must be an integer, not "4")"}, {true, "must be an integer, not true"},
        {0.5, "must be an integer, not 0.5"}, {0, "cannot be 0"}},
       {{"four", R"(must be an integer, not "four")"}, {"", R"(must be an integer, not "")"},
        {"4.0", R"(must be an integer, not "4.0")"}, {"0", "cannot be 0"}}},
      {"pipeline.num_stages", "EPL_PIPELINE_NUM_STAGES",
       "none", "an integer of at least 1",
       {8, "8"}, {"9", "9"}, "pipeline.stages", kAvailable,
       {{"4", R"(must be an integer, not "4")"}, {true, "must be an integer, not true"},
        {0.5, "must be an integer, not 0.5"}, {0, "cannot be 0"}},
       {{"four", R"(must be an integer, not "four")"}, {"", R"(must be an integer, not "")"},
        {"4.0", R"(must be an integer, not "4.0")"}, {"0", "cannot be 0"}}},
      {"pipeline.num_chunks", "EPL_PIPELINE_NUM_CHUNKS",
       "2", "an integer of at least 1",
       {8, "8"}, {"9", "9"}, "pipeline.chunks", kAvailable,
       {{"4", R"(must be an integer, not "4")"}, {true, "must be an integer, not true"},
        {0.5, "must be an integer, not 0.5"}, {0, "cannot be 0"}},
       {{"four", R"(must be an integer, not "four")"}, {"", R"(must be an integer, not "")"},
        {"4.0", R"(must be an integer, not "4.0")"}, {"0", "cannot be 0"}}},
      {"pipeline.strategy", "EPL_PIPELINE_STRATEGY",
       R"("PreferBackward")",
       R"("PreferBackward", "PreferForward", "PreferBackwardOptimizer", "Interleaved" or "ZeroBubble")",
       {"pREFERfORWARD", R"("PreferForward")"},
       {"PREFERBACKWARDOPTIMIZER", R"("PreferBackwardOptimizer")"},
       "pipeline.stratgy", kAvailable,
       {{1, "must be a string, not 1"}, {true, "must be a string, not true"},
        {"median", R"(cannot be "median")"}},
       {{"median", R"(cannot be "median")"}, {"", R"(cannot be "")"}}},
      {"pipeline.gather_parameters", "EPL_PIPELINE_GATHER_PARAMETERS",
       "true", "true or false",
       {false, "false"}, {"fAlSe", "false"}, "pipeline.gather", kAvailable,
       {{1, "must be true or false, not 1"}, {"true", R"(must be true or false, not "true")"}},
       {{"1", R"(must be true or false, not "1")"},
        {"yes", R"(must be true or false, not "yes")"}}},
      {"replicate.batch_norm", "EPL_REPLICATE_BATCH_NORM",
       R"("slice")", R"("slice" or "micro_batch")",
       {"SLICE", R"("slice")"}, {"Micro_Batch", R"("micro_batch")"}, "replicate.batchnorm",
       kAvailable,
       {{1, "must be a string, not 1"}, {true, "must be a string, not true"},
        {"median", R"(cannot be "median")"}},
       {{"median", R"(cannot be "median")"}, {"", R"(cannot be "")"}}},
      {"gradient_checkpoint.type", "EPL_GRADIENT_CHECKPOINT_TYPE",
       R"("")", R"("", "collection" or "auto")",
       {"COLLECTION", R"("collection")"}, {"AUTO", R"("auto")"}, "gradient_checkpoint.typ", kAvailable,
       {{1, "must be a string, not 1"}, {true, "must be a string, not true"},
        {"median", R"(cannot be "median")"}},
       {{"median", R"(cannot be "median")"}}},
      {"gradient_checkpoint.end_taskgraph", "EPL_GRADIENT_CHECKPOINT_END_TASKGRAPH",
       "-1", "an integer of at least -1",
       {6, "6"}, {"7", "7"}, "gradient_checkpoint.end_task_graph", kAvailable,
       {{"4", R"(must be an integer, not "4")"}, {true, "must be an integer, not true"},
        {0.5, "must be an integer, not 0.5"}, {-2, "cannot be -2"}},
       {{"four", R"(must be an integer, not "four")"}, {"", R"(must be an integer, not "")"},
        {"4.0", R"(must be an integer, not "4.0")"}, {"-2", "cannot be -2"}}},
      {"gradient_checkpoint.check_gradients", "EPL_GRADIENT_CHECKPOINT_CHECK_GRADIENTS",
       "false", "true or false",
       {true, "true"}, {"tRuE", "true"}, "gradient_checkpoint.check_gradient", kAvailable,
       {{1, "must be true or false, not 1"}, {"true", R"(must be true or false, not "true")"}},
       {{"1", R"(must be true or false, not "1")"},
        {"yes", R"(must be true or false, not "yes")"}}},
      {"memory.limit", "EPL_MEMORY_LIMIT",
       "none", R"(a number of bytes, or text such as "900MiB" or "2GiB")",
       {"2GiB", "2147483648"}, {"900 mib", "943718400"}, "memory.limits", kAvailable,
       {{true, "must be a string or a number, not true"}, {0, "cannot be 0"},
        {0.5, "must be a string or a number, not 0.5"}, {"2GB", R"(cannot be "2GB")"},
        {"", R"(cannot be "")"}, {"-1KiB", R"(cannot be "-1KiB")"},
        {"9000000TiB", R"(cannot be "9000000TiB")"}},
       {{"1.5GiB", R"(cannot be "1.5GiB")"}, {"0", "cannot be \"0\""},
        {"much", R"(cannot be "much")"}}},
      {"zero.level", "EPL_ZERO_LEVEL",
       R"("")", R"("", "v0", "v1" or "v2")",
       {"V0", R"("v0")"}, {"V2", R"("v2")"}, "zero.levl", kAvailable,
       {{1, "must be a string, not 1"}, {true, "must be a string, not true"},
        {"median", R"(cannot be "median")"}},
       {{"median", R"(cannot be "median")"}}},
      {"offload.level", "EPL_OFFLOAD_LEVEL",
       R"("")", R"("", "v0" or "v1")",
       {"V0", R"("v0")"}, {"V1", R"("v1")"}, "ofload.level", kAvailable,
       {{1, "must be a string, not 1"}, {true, "must be a string, not true"},
        {"median", R"(cannot be "median")"}},
       {{"median", R"(cannot be "median")"}}},
      {"offload.path", "EPL_OFFLOAD_PATH",
       R"("")", "the path of a folder",
       {"/Disk 1", R"("/Disk 1")"}, {"disk/A", R"("disk/A")"}, "offload.paths", kAvailable,
       {{1, "must be a string, not 1"}, {true, "must be a string, not true"}},
       {}},
      {"amp.level", "EPL_AMP_LEVEL",
       R"("")", R"("" or "O1")",
       {"o1", R"("O1")"}, {"O1", R"("O1")"}, "AMP.LEVEL", kAvailable,
       {{1, "must be a string, not 1"}, {true, "must be a string, not true"},
        {"median", R"(cannot be "median")"}},
       {{"median", R"(cannot be "median")"}}},
      {"amp.dtype", "EPL_AMP_DTYPE",
       R"("auto")", R"("auto", "bfloat16" or "float16")",
       {"BFloat16", R"("bfloat16")"}, {"float16", R"("float16")"}, "amp.type", kAvailable,
       {{1, "must be a string, not 1"}, {true, "must be a string, not true"},
        {"median", R"(cannot be "median")"}},
       {{"median", R"(cannot be "median")"}}},
      {"amp.debug_log", "EPL_AMP_DEBUG_LOG",
       "false", "true or false",
       {true, "true"}, {"tRuE", "true"}, "amp.debuglog", kAvailable,
       {{1, "must be true or false, not 1"}, {"true", R"(must be true or false, not "true")"}},
       {{"1", R"(must be true or false, not "1")"},
        {"yes", R"(must be true or false, not "yes")"}}},
      {"amp.loss_scale", "EPL_AMP_LOSS_SCALE",
       R"("dynamic")", R"("dynamic" or a number of at least 1)",
       {128, R"("128")"}, {"1024", R"("1024")"}, "amp.lossscale", kAvailable,
       {{true, "must be a string or a number, not true"}, {0.5, "cannot be 0.5"},
        {"static", R"(cannot be "static")"}},
       {{"0", R"(cannot be "0")"}, {"much", R"(cannot be "much")"}}},
      {"optimizer.num_apply_group", "EPL_OPTIMIZER_NUM_APPLY_GROUP",
       "1", "an integer of at least 1",
       {8, "8"}, {"9", "9"}, "optimizer.num_apply_groups", kAvailable,
       {{"4", R"(must be an integer, not "4")"}, {true, "must be an integer, not true"},
        {0.5, "must be an integer, not 0.5"}, {0, "cannot be 0"}},
       {{"four", R"(must be an integer, not "four")"}, {"", R"(must be an integer, not "")"},
        {"4.0", R"(must be an integer, not "4.0")"}, {"0", "cannot be 0"}}},
      {"optimizer.update_early", "EPL_OPTIMIZER_UPDATE_EARLY",
       "false", "true or false",
       {true, "true"}, {"tRuE", "true"}, "optimizer.update_earlier", kAvailable,
       {{1, "must be true or false, not 1"}, {"true", R"(must be true or false, not "true")"}},
       {{"1", R"(must be true or false, not "1")"},
        {"yes", R"(must be true or false, not "yes")"}}},
      {"cluster.device_place_prefer_intra_node", "EPL_CLUSTER_DEVICE_PLACE_PREFER_INTRA_NODE",
       "true", "true or false",
       {false, "false"}, {"FALSE", "false"}, "cluster.device_place_prefer_intranode", kAvailable,
       {{1, "must be true or false, not 1"}, {"true", R"(must be true or false, not "true")"}},
       {{"1", R"(must be true or false, not "1")"},
        {"yes", R"(must be true or false, not "yes")"}}},
      {"cluster.run_visible_devices", "EPL_CLUSTER_RUN_VISIBLE_DEVICES",
       R"("")", R"("" or different device numbers such as "0,4,7")",
       {"0, 4,7", R"("0,4,7")"}, {"3", R"("3")"}, "cluster.visible_devices", kAvailable,
       {{0, "must be a string, not 0"}, {"0,0", R"(cannot be "0,0")"},
        {"0,-1", R"(cannot be "0,-1")"}, {"0,,1", R"(cannot be "0,,1")"},
        {"0 1", R"(cannot be "0 1")"}},
       {{"gpu0", R"(cannot be "gpu0")"}, {"1,", R"(cannot be "1,")"}}},
      {"cluster.colocate_split_and_replicate", "EPL_CLUSTER_COLOCATE_SPLIT_AND_REPLICATE",
       "false", "true or false",
       {true, "true"}, {"tRuE", "true"}, "cluster.colocate_split", kAvailable,
       {{1, "must be true or false, not 1"}, {"true", R"(must be true or false, not "true")"}},
       {{"1", R"(must be true or false, not "1")"},
        {"yes", R"(must be true or false, not "yes")"}}},
      {"cluster.join_seconds", "EPL_CLUSTER_JOIN_SECONDS",
       "60", "an integer of at least 1",
       {8, "8"}, {"9", "9"}, "cluster.join_second", kAvailable,
       {{"4", R"(must be an integer, not "4")"}, {true, "must be an integer, not true"},
        {0.5, "must be an integer, not 0.5"}, {0, "cannot be 0"}},
       {{"four", R"(must be an integer, not "four")"}, {"", R"(must be an integer, not "")"},
        {"4.0", R"(must be an integer, not "4.0")"}, {"0", "cannot be 0"}}},
      {"cluster.description", "EPL_CLUSTER_DESCRIPTION",
       R"("")", "the path of a file, or the name of a cluster in tools/clusters",
       {"a100_8", R"("a100_8")"}, {"My/a.json", R"("My/a.json")"}, "cluster.descripton",
       kAvailable,
       {{1, "must be a string, not 1"}, {true, "must be a string, not true"}},
       {}},
      {"communication.num_communicators", "EPL_COMMUNICATION_NUM_COMMUNICATORS",
       "2", "an integer of at least 1",
       {8, "8"}, {"9", "9"}, "communication.num_communicator", kAvailable,
       {{"4", R"(must be an integer, not "4")"}, {true, "must be an integer, not true"},
        {0.5, "must be an integer, not 0.5"}, {0, "cannot be 0"}},
       {{"four", R"(must be an integer, not "four")"}, {"", R"(must be an integer, not "")"},
        {"4.0", R"(must be an integer, not "4.0")"}, {"0", "cannot be 0"}}},
      {"communication.sparse_as_dense", "EPL_COMMUNICATION_SPARSE_AS_DENSE",
       "false", "true or false",
       {true, "true"}, {"tRuE", "true"}, "communication.sparse_dense", kAvailable,
       {{1, "must be true or false, not 1"}, {"true", R"(must be true or false, not "true")"}},
       {{"1", R"(must be true or false, not "1")"},
        {"yes", R"(must be true or false, not "yes")"}}},
      {"communication.max_splits", "EPL_COMMUNICATION_MAX_SPLITS",
       "5", "an integer of at least 1",
       {8, "8"}, {"9", "9"}, "communication.max_split", kAvailable,
       {{"4", R"(must be an integer, not "4")"}, {true, "must be an integer, not true"},
        {0.5, "must be an integer, not 0.5"}, {0, "cannot be 0"}},
       {{"four", R"(must be an integer, not "four")"}, {"", R"(must be an integer, not "")"},
        {"4.0", R"(must be an integer, not "4.0")"}, {"0", "cannot be 0"}}},
      {"communication.fp16", "EPL_COMMUNICATION_FP16",
       "false", "true or false",
       {true, "true"}, {"tRuE", "true"}, "communication.fp32", kAvailable,
       {{1, "must be true or false, not 1"}, {"true", R"(must be true or false, not "true")"}},
       {{"1", R"(must be true or false, not "1")"},
        {"yes", R"(must be true or false, not "yes")"}}},
      {"communication.fp16_scale", "EPL_COMMUNICATION_FP16_SCALE",
       "128", "an integer of at least 1",
       {8, "8"}, {"9", "9"}, "communication.fp16scale", kAvailable,
       {{"4", R"(must be an integer, not "4")"}, {true, "must be an integer, not true"},
        {0.5, "must be an integer, not 0.5"}, {0, "cannot be 0"}},
       {{"four", R"(must be an integer, not "four")"}, {"", R"(must be an integer, not "")"},
        {"4.0", R"(must be an integer, not "4.0")"}, {"0", "cannot be 0"}}},
      {"communication.clip_after_allreduce", "EPL_COMMUNICATION_CLIP_AFTER_ALLREDUCE",
       "false", "true or false",
       {true, "true"}, {"tRuE", "true"}, "communication.clip_after_all_reduce", kAvailable,
       {{1, "must be true or false, not 1"}, {"true", R"(must be true or false, not "true")"}},
       {{"1", R"(must be true or false, not "1")"},
        {"yes", R"(must be true or false, not "yes")"}}},
      {"communication.gradients_reduce_method", "EPL_COMMUNICATION_GRADIENTS_REDUCE_METHOD",
       R"("mean")", R"("mean" or "sum")",
       {"SUM", R"("sum")"}, {"SUM", R"("sum")"}, "communication.gradient_reduce_method", kAvailable,
       {{1, "must be a string, not 1"}, {true, "must be a string, not true"},
        {"median", R"(cannot be "median")"}},
       {{"median", R"(cannot be "median")"}, {"", R"(cannot be "")"}}},
      {"communication.silence_seconds", "EPL_COMMUNICATION_SILENCE_SECONDS",
       "5", "an integer of at least 1",
       {8, "8"}, {"9", "9"}, "communication.silence_second", kAvailable,
       {{"4", R"(must be an integer, not "4")"}, {true, "must be an integer, not true"},
        {0.5, "must be an integer, not 0.5"}, {0, "cannot be 0"}},
       {{"four", R"(must be an integer, not "four")"}, {"", R"(must be an integer, not "")"},
        {"4.0", R"(must be an integer, not "4.0")"}, {"0", "cannot be 0"}}},
      {"communication.wait_seconds", "EPL_COMMUNICATION_WAIT_SECONDS",
       "1800", "an integer of at least 1",
       {8, "8"}, {"9", "9"}, "communication.wait_second", kAvailable,
       {{"4", R"(must be an integer, not "4")"}, {true, "must be an integer, not true"},
        {0.5, "must be an integer, not 0.5"}, {0, "cannot be 0"}},
       {{"four", R"(must be an integer, not "four")"}, {"", R"(must be an integer, not "")"},
        {"4.0", R"(must be an integer, not "4.0")"}, {"0", "cannot be 0"}}},
      {"io.slicing", "EPL_IO_SLICING",
       "false", "true or false",
       {true, "true"}, {"tRuE", "true"}, "io.slice", kAvailable,
       {{1, "must be true or false, not 1"}, {"true", R"(must be true or false, not "true")"}},
       {{"1", R"(must be true or false, not "1")"},
        {"yes", R"(must be true or false, not "yes")"}}},
      {"io.unbalanced_io_slicing", "EPL_IO_UNBALANCED_IO_SLICING",
       "false", "true or false",
       {true, "true"}, {"tRuE", "true"}, "io.unbalanced_slicing", kAvailable,
       {{1, "must be true or false, not 1"}, {"true", R"(must be true or false, not "true")"}},
       {{"1", R"(must be true or false, not "1")"},
        {"yes", R"(must be true or false, not "yes")"}}},
      {"io.drop_last_files", "EPL_IO_DROP_LAST_FILES",
       "false", "true or false",
       {true, "true"}, {"tRuE", "true"}, "io.drop_last", kAvailable,
       {{1, "must be true or false, not 1"}, {"true", R"(must be true or false, not "true")"}},
       {{"1", R"(must be true or false, not "1")"},
        {"yes", R"(must be true or false, not "yes")"}}},
      {"auto.auto_parallel", "EPL_AUTO_AUTO_PARALLEL",
       "false", "true or false",
       {true, "true"}, {"tRuE", "true"}, "auto.parallel", kAvailable,
       {{1, "must be true or false, not 1"}, {"true", R"(must be true or false, not "true")"}},
       {{"1", R"(must be true or false, not "1")"},
        {"yes", R"(must be true or false, not "yes")"}}},
      {"auto.device_memory", "EPL_AUTO_DEVICE_MEMORY",
       "0", "an integer of at least 0",
       {7, "7"}, {"8", "8"}, "auto.memory", kAvailable,
       {{"4", R"(must be an integer, not "4")"}, {true, "must be an integer, not true"},
        {0.5, "must be an integer, not 0.5"}, {-1, "cannot be -1"}},
       {{"four", R"(must be an integer, not "four")"}, {"", R"(must be an integer, not "")"},
        {"4.0", R"(must be an integer, not "4.0")"}, {"-1", "cannot be -1"}}},
      {"plan.only", "EPL_PLAN_ONLY",
       "false", "true or false",
       {true, "true"}, {"tRuE", "true"}, "plan.onl", kAvailable,
       {{1, "must be true or false, not 1"}, {"true", R"(must be true or false, not "true")"}},
       {{"1", R"(must be true or false, not "1")"},
        {"yes", R"(must be true or false, not "yes")"}}},
      {"plan.read_back", "EPL_PLAN_READ_BACK",
       R"("error")", R"("error", "zero" or "one")",
       {"ZERO", R"("zero")"}, {"One", R"("one")"}, "plan.readback", kAvailable,
       {{1, "must be a string, not 1"}, {true, "must be a string, not true"},
        {"two", R"(cannot be "two")"}},
       {{"two", R"(cannot be "two")"}, {"", R"(cannot be "")"}}},
      {"debug.verify_steps", "EPL_DEBUG_VERIFY_STEPS",
       "0", "an integer of at least 0",
       {7, "7"}, {"8", "8"}, "debug.verify_step", kAvailable,
       {{"4", R"(must be an integer, not "4")"}, {true, "must be an integer, not true"},
        {0.5, "must be an integer, not 0.5"}, {-1, "cannot be -1"}},
       {{"four", R"(must be an integer, not "four")"}, {"", R"(must be an integer, not "")"},
        {"4.0", R"(must be an integer, not "4.0")"}, {"-1", "cannot be -1"}}},
      {"debug.verify_tolerance", "EPL_DEBUG_VERIFY_TOLERANCE",
       "1e-05", "a number of at least 0",
       {0.25, "0.25"}, {"1e-3", "0.001"}, "debug.tolerance", kAvailable,
       {{"1", R"(must be a number, not "1")"}, {false, "must be a number, not false"},
        {-0.5, "cannot be -0.5"}},
       {{"small", R"(must be a number, not "small")"}, {"-1", "cannot be -1"},
        {"nan", "cannot be nan"}}},
      {"debug.nan_loss", "EPL_DEBUG_NAN_LOSS",
       R"("error")", R"("error", "skip" or "ignore")",
       {"SKIP", R"("skip")"}, {"IGNORE", R"("ignore")"}, "debug.nan", kAvailable,
       {{1, "must be a string, not 1"}, {true, "must be a string, not true"},
        {"median", R"(cannot be "median")"}},
       {{"median", R"(cannot be "median")"}, {"", R"(cannot be "")"}}},
      {"debug.kept_tensor", "EPL_DEBUG_KEPT_TENSOR",
       R"("error")", R"("error" or "ignore")",
       {"IGNORE", R"("ignore")"}, {"Ignore", R"("ignore")"}, "debug.kept_tensors", kAvailable,
       {{1, "must be a string, not 1"}, {true, "must be a string, not true"},
        {"skip", R"(cannot be "skip")"}},
       {{"skip", R"(cannot be "skip")"}, {"", R"(cannot be "")"}}},
      // clang-format on
  };
  return cases;
}

constexpr SourceLocation kWhere{"train.cc", 3};

Config config_with(const std::string& key, const ConfigValue& value) {
  return Config{Setting(key, value, kWhere)};
}

std::string printed(const Config& config, const std::string& key) {
  return config_keys()[find_config_key(key)].value_text(config.value(key));
}

class ConfigKeys : public EnvironmentFixture {};

TEST_F(ConfigKeys, AreAllInTheTableOfThisTestInTheSameOrder) {
  std::vector<std::string> tested;
  std::vector<std::string> known;
  for (const KeyCase& row : cases()) tested.push_back(row.key);
  for (const ConfigKey& row : config_keys()) known.push_back(row.key);
  EXPECT_EQ(join(tested, "\n"), join(known, "\n"));
}

TEST_F(ConfigKeys, AreFoundByTheirNameAndHaveVariablesOfTheirOwn) {
  std::set<std::string> variables;
  for (size_t i = 0; i < config_keys().size(); ++i) {
    const ConfigKey& row = config_keys()[i];
    EXPECT_EQ(find_config_key(row.key), static_cast<int>(i));
    EXPECT_TRUE(variables.insert(row.variable()).second) << row.key;
  }
}

TEST_F(ConfigKeys, HaveTheirDefaults) {
  for (const KeyCase& row : cases()) {
    EXPECT_EQ(printed(Config(), row.key), row.default_text) << row.key;
    EXPECT_EQ(Config().origin(row.key), "default") << row.key;
  }
}

TEST_F(ConfigKeys, AreSetInCode) {
  for (const KeyCase& row : cases()) {
    const Config config = config_with(row.key, row.in_code.value);
    EXPECT_EQ(printed(config, row.key), row.in_code.printed) << row.key;
    EXPECT_EQ(config.origin(row.key), "code train.cc:3") << row.key;
  }
}

TEST_F(ConfigKeys, AreSetByTheirEnvironmentVariable) {
  for (const KeyCase& row : cases()) {
    clear();
    set(row.variable, row.in_environment.text);
    EXPECT_EQ(printed(Config(), row.key), row.in_environment.printed) << row.key;
    EXPECT_EQ(Config().origin(row.key), "environment " + row.variable) << row.key;
  }
}

TEST_F(ConfigKeys, TakeTheValueInCodeBeforeTheEnvironment) {
  for (const KeyCase& row : cases()) {
    clear();
    set(row.variable, row.in_environment.text);
    const Config config = config_with(row.key, row.in_code.value);
    EXPECT_EQ(printed(config, row.key), row.in_code.printed) << row.key;
    EXPECT_EQ(config.origin(row.key), "code train.cc:3") << row.key;
  }
}

TEST_F(ConfigKeys, RefuseWrongTypesAndValuesInCode) {
  for (const KeyCase& row : cases()) {
    for (const Refused& refused : row.refused) {
      EXPECT_EQ(error_of([&] { config_with(row.key, refused.value); }),
                concat("epl: ", row.key, " ", refused.complaint, "\n  asked by: ", row.key, " = ",
                       refused.value.str(), " (code train.cc:3)\n  try:      ", row.allowed));
    }
  }
}

TEST_F(ConfigKeys, RefuseMalformedEnvironmentValues) {
  for (const KeyCase& row : cases()) {
    clear();
    for (const RefusedText& refused : row.refused_in_environment) {
      set(row.variable, refused.text);
      EXPECT_EQ(error_of([] { Config(); }),
                concat("epl: ", row.key, " ", refused.complaint, "\n  asked by: ", row.variable,
                       "=", refused.text, " (environment)\n  try:      ", row.allowed));
    }
  }
}

TEST_F(ConfigKeys, AreNamedForAMisspeltKey) {
  for (const KeyCase& row : cases()) {
    EXPECT_EQ(error_of([&] { config_with(row.misspelt, 1); }),
              concat("epl: there is no configuration key \"", row.misspelt, "\"\n  asked by: ",
                     row.misspelt, " = 1 (code train.cc:3)\n  try:      ", row.key));
  }
}

TEST_F(ConfigKeys, OfMissingFeaturesAreRefusedWhenSwitchedOn) {
  for (const KeyCase& row : cases()) {
    const Config config = config_with(row.key, row.in_code.value);
    const std::string setting = concat(row.key, " = ", row.in_code.printed);
    EXPECT_EQ(error_of([&] { check_available(config); }),
              row.available == kAvailable
                  ? "no error"
                  : concat("epl: ", setting, " is not available yet\n  asked by: ", setting,
                           " (code train.cc:3)\n  try:      leave ", row.key, " at its default, ",
                           row.default_text));
  }
}

TEST_F(ConfigKeys, OfMissingFeaturesMayBeSetToTheirDefaults) {
  EXPECT_EQ(error_of([] { check_available(Config()); }), "no error");
  for (const ConfigKey& row : config_keys()) {
    const std::string text = row.value_text(row.default_value);
    if (text == "none") continue;  // it cannot be written
    const Config config = config_with(row.key, row.default_value);
    EXPECT_EQ(error_of([&] { check_available(config); }), "no error") << row.key;
  }
}

TEST_F(ConfigKeys, OffloadNeedsNoFile) {
  set("EPL_OFFLOAD_LEVEL", "v0");
  EXPECT_EQ(error_of([] { check_available(Config()); }), "no error");
  set("EPL_OFFLOAD_PATH", "/tmp");
  EXPECT_EQ(error_of([] { check_available(Config()); }), "no error");
}

TEST_F(ConfigKeys, ZeroAndOffloadAreRefusedTogetherOnSeveralWorkers) {
  set("EPL_ZERO_LEVEL", "v0");
  EXPECT_EQ(error_of([] { check_available_on(2, Config()); }), "no error");
  set("EPL_OFFLOAD_LEVEL", "v1");
  set("EPL_OFFLOAD_PATH", "/tmp");
  EXPECT_EQ(error_of([] { check_available_on(1, Config()); }), "no error");
  EXPECT_EQ(error_of([] { check_available_on(2, Config()); }),
            "epl: zero.level and offload.level are not available together yet on several workers\n"
            "  asked by: zero.level = \"v0\" (environment EPL_ZERO_LEVEL)\n"
            "            offload.level = \"v1\" (environment EPL_OFFLOAD_LEVEL)\n"
            "  try:      one of the two");
}

TEST_F(ConfigKeys, KeepTheLossScaleAsText) {
  EXPECT_EQ(config_with("amp.loss_scale", "DYNAMIC").get<std::string>("amp.loss_scale"), "dynamic");
  EXPECT_EQ(config_with("amp.loss_scale", 1).get<std::string>("amp.loss_scale"), "1");
  EXPECT_EQ(config_with("amp.loss_scale", 1.5).get<std::string>("amp.loss_scale"), "1.5");
  EXPECT_EQ(config_with("amp.loss_scale", "128").get<std::string>("amp.loss_scale"), "128");
}

}  // namespace
}  // namespace epl

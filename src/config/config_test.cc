#include <epl/config.h>

#include "base/text.h"
#include "config/config_keys.h"
#include "config/spelling.h"
#include "config/test_environment.h"

namespace epl {
namespace {

class ConfigTest : public EnvironmentFixture {};

Setting at_line(int line, const std::string& key, const ConfigValue& value) {
  return Setting(key, value, SourceLocation{"train.cc", line});
}

TEST_F(ConfigTest, ReadsValuesByTheirTypes) {
  const Config config{{"pipeline.num_micro_batch", 4},
                      {"zero.level", "v1"},
                      {"io.slicing", true},
                      {"debug.verify_tolerance", 0.5}};
  EXPECT_EQ(config.get<int64_t>("pipeline.num_micro_batch"), 4);
  EXPECT_EQ(config.get<std::string>("zero.level"), "v1");
  EXPECT_EQ(config.get<bool>("io.slicing"), true);
  EXPECT_EQ(config.get<double>("debug.verify_tolerance"), 0.5);
}

TEST_F(ConfigTest, TakesIntegersOfAnyWidthAndAsNumbers) {
  const Config config{{"pipeline.num_micro_batch", size_t{4}},
                      {"optimizer.num_apply_group", int64_t{1} << 40},
                      {"debug.verify_tolerance", 1}};
  EXPECT_EQ(config.get<int64_t>("pipeline.num_micro_batch"), 4);
  EXPECT_EQ(config.get<int64_t>("optimizer.num_apply_group"), int64_t{1} << 40);
  EXPECT_EQ(config.get<double>("debug.verify_tolerance"), 1.0);
}

TEST_F(ConfigTest, IsMadeFromAVectorOfSettings) {
  const std::vector<Setting> settings = {{"pipeline.num_micro_batch", 4}};
  EXPECT_EQ(Config(settings).get<int64_t>("pipeline.num_micro_batch"), 4);
}

TEST_F(ConfigTest, IsMadeFromAnotherOne) {
  set("EPL_ZERO_LEVEL", "v0");
  const Config before{{"memory.limit", 100}};
  const Config after =
      before.with({at_line(3, "memory.limit", "1KiB"), at_line(4, "pipeline.num_micro_batch", 4)});
  EXPECT_EQ(before.get<int64_t>("memory.limit"), 100);
  EXPECT_EQ(after.get<int64_t>("memory.limit"), 1024);
  EXPECT_EQ(after.origin("memory.limit"), "code train.cc:3");
  EXPECT_EQ(after.get<std::string>("zero.level"), "v0");
  EXPECT_EQ(after.without("memory.limit").get<int64_t>("memory.limit"), 0);
  EXPECT_EQ(after.without("memory.limit").origin("memory.limit"), "default");
  EXPECT_EQ(after.without("memory.limit").get<int64_t>("pipeline.num_micro_batch"), 4);
  EXPECT_THROW(before.with({{"memory.limt", 1}}), Error);
  EXPECT_THROW(before.without("memory.limt"), Error);
}

TEST_F(ConfigTest, KnowsTheLineInCode) {
  const Config config{{"pipeline.num_micro_batch", 4}};
  const std::string here = concat(__FILE__, ":", __LINE__ - 1);
  EXPECT_EQ(config.origin("pipeline.num_micro_batch"), "code " + here);
  EXPECT_EQ(config.asked_by("pipeline.num_micro_batch"),
            "pipeline.num_micro_batch = 4 (code " + here + ")");
}

TEST_F(ConfigTest, HasNoStagesByDefault) {
  EXPECT_EQ(Config().get<int64_t>("pipeline.num_stages"), 0);
  EXPECT_EQ(Config().asked_by("pipeline.num_stages"), "pipeline.num_stages = none (default)");
}

TEST_F(ConfigTest, ReadsTheEnvironmentWhenItIsMade) {
  const Config before;
  set("EPL_PIPELINE_NUM_MICRO_BATCH", "3");
  const Config after;
  clear();
  EXPECT_EQ(before.get<int64_t>("pipeline.num_micro_batch"), 1);
  EXPECT_EQ(after.get<int64_t>("pipeline.num_micro_batch"), 3);
}

TEST_F(ConfigTest, RefusesAKeyThatIsSetTwice) {
  EXPECT_EQ(error_of([] {
              Config{at_line(3, "zero.level", "v0"), at_line(4, "zero.level", "v0")};
            }),
            "epl: zero.level is set twice\n"
            "  asked by: zero.level = \"v0\" (code train.cc:3) and zero.level = \"v0\" "
            "(code train.cc:4)\n"
            "  try:      one value");
}

TEST_F(ConfigTest, RefusesAMalformedVariableEvenIfCodeSetsTheKey) {
  set("EPL_PIPELINE_NUM_MICRO_BATCH", "99999999999999999999");
  EXPECT_EQ(error_of([] {
              Config{{"pipeline.num_micro_batch", 4}};
            }),
            "epl: pipeline.num_micro_batch must be an integer, not \"99999999999999999999\"\n"
            "  asked by: EPL_PIPELINE_NUM_MICRO_BATCH=99999999999999999999 (environment)\n"
            "  try:      an integer of at least 1");
}

TEST_F(ConfigTest, RefusesAnUnknownVariableOfAKnownCategory) {
  for (const ConfigKey& key : config_keys()) {
    clear();
    const std::string variable = key.variable() + "_XYZ";
    set(variable, "1");
    EXPECT_EQ(error_of([] { Config(); }),
              concat("epl: there is no environment variable ", variable, "\n  asked by: ", variable,
                     "=1 (environment)\n  try:      ", key.variable()));
  }
}

TEST_F(ConfigTest, NamesTheNearestVariable) {
  const std::pair<const char*, const char*> slips[] = {
      {"EPL_PIPELINE_NUM_MICROBATCH", "EPL_PIPELINE_NUM_MICRO_BATCH"},
      {"EPL_PIPLINE_NUM_MICRO_BATCH", "EPL_PIPELINE_NUM_MICRO_BATCH"},
      {"EPL_DEVICE", "EPL_DEVICES"},
      {"EPL_ZERO_", "EPL_ZERO_LEVEL"},
  };
  for (const auto& [variable, nearest] : slips) {
    clear();
    set(variable, "2");
    EXPECT_EQ(error_of([] { Config(); }),
              concat("epl: there is no environment variable ", variable, "\n  asked by: ", variable,
                     "=2 (environment)\n  try:      ", nearest));
  }
}

TEST_F(ConfigTest, LeavesOtherVariablesAlone) {
  set("EPL_DEVICES", "not read here");
  set("EPL_WORKER_INDEX", "3");
  set("EPL_HOME", "somewhere");
  EXPECT_EQ(error_of([] { Config(); }), "no error");
}

TEST_F(ConfigTest, FindsTheNearestKeyOfANameWithoutACategory) {
  EXPECT_EQ(error_of([] { Config{at_line(3, "num_micro_batches", 4)}; }),
            "epl: there is no configuration key \"num_micro_batches\"\n"
            "  asked by: num_micro_batches = 4 (code train.cc:3)\n"
            "  try:      pipeline.num_micro_batch");
}

TEST_F(ConfigTest, RefusesToReadAnUnknownKey) {
  EXPECT_EQ(error_of([] { Config().get<int64_t>("pipeline.num_microbatch"); }),
            "epl: there is no configuration key \"pipeline.num_microbatch\"\n"
            "  asked by: Config::get(\"pipeline.num_microbatch\")\n"
            "  try:      pipeline.num_micro_batch");
}

TEST_F(ConfigTest, RefusesToReadAKeyAsAnotherType) {
  const std::pair<const char*, const char*> reads[] = {
      {"pipeline.num_micro_batch = 1", "Config::get<int64_t>(\"pipeline.num_micro_batch\")"},
      {"io.slicing = false", "Config::get<bool>(\"io.slicing\")"},
      {"debug.verify_tolerance = 1e-05", "Config::get<double>(\"debug.verify_tolerance\")"},
      {"zero.level = \"\"", "Config::get<std::string>(\"zero.level\")"},
  };
  for (const auto& [setting, right] : reads) {
    const std::string text = setting;
    const std::string key = text.substr(0, text.find(' '));
    const std::string message = concat("epl: ", key, " is read as another type than its own\n",
                                       "  asked by: ", text, " (default)\n  try:      ", right);
    const bool is_bool = key == "io.slicing";
    EXPECT_EQ(error_of([&] {
                is_bool ? (void)Config().get<double>(key) : (void)Config().get<bool>(key);
              }),
              message);
  }
}

TEST_F(ConfigTest, PrintsEveryKeyWithValueAndOrigin) {
  set("EPL_COMMUNICATION_GRADIENTS_REDUCE_METHOD", "SUM");
  const Config config{at_line(12, "pipeline.num_micro_batch", 4)};
  EXPECT_EQ(config.str(),
            R"(pipeline.num_micro_batch                4                 code train.cc:12
pipeline.num_stages                     none              default
pipeline.num_chunks                     2                 default
pipeline.strategy                       "PreferBackward"  default
pipeline.gather_parameters              true              default
replicate.batch_norm                    "slice"           default
gradient_checkpoint.type                ""                default
gradient_checkpoint.end_taskgraph       -1                default
gradient_checkpoint.check_gradients     false             default
memory.limit                            none              default
zero.level                              ""                default
offload.level                           ""                default
offload.path                            ""                default
amp.level                               ""                default
amp.dtype                               "auto"            default
amp.debug_log                           false             default
amp.loss_scale                          "dynamic"         default
optimizer.num_apply_group               1                 default
optimizer.update_early                  false             default
cluster.device_place_prefer_intra_node  true              default
cluster.run_visible_devices             ""                default
cluster.colocate_split_and_replicate    false             default
cluster.join_seconds                    60                default
cluster.description                     ""                default
communication.num_communicators         2                 default
communication.sparse_as_dense           false             default
communication.max_splits                5                 default
communication.fp16                      false             default
communication.fp16_scale                128               default
communication.clip_after_allreduce      false             default
communication.gradients_reduce_method   "sum"             environment EPL_COMMUNICATION_GRADIENTS_REDUCE_METHOD
communication.silence_seconds           5                 default
communication.wait_seconds              1800              default
io.slicing                              false             default
io.unbalanced_io_slicing                false             default
io.drop_last_files                      false             default
auto.auto_parallel                      false             default
auto.device_memory                      0                 default
plan.only                               false             default
plan.read_back                          "error"           default
debug.verify_steps                      0                 default
debug.verify_tolerance                  1e-05             default
debug.nan_loss                          "error"           default
debug.kept_tensor                       "error"           default
)");
}

TEST(Spelling, ChangesTheCaseOfLettersOnly) {
  EXPECT_EQ(to_lower("EPL_Io.9"), "epl_io.9");
  EXPECT_EQ(to_upper("EPL_Io.9"), "EPL_IO.9");
}

TEST(Spelling, CountsInsertionsDeletionsAndChanges) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2);
}

}  // namespace
}  // namespace epl

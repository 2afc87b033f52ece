#include "config/checks.h"

#include <tuple>

#include "base/text.h"
#include "config/test_environment.h"

namespace epl {
namespace {

class ChecksTest : public EnvironmentFixture {};

Strategy rep(int devices, const std::string& name, int line) {
  return replicate(devices, name, SourceLocation{"net.cc", line});
}

Strategy cut(int devices, const std::string& name, int line) {
  return split(devices, name, SourceLocation{"net.cc", line});
}

Cluster cluster_of(int workers, int devices) {
  Cluster cluster;
  cluster.worker_num = workers;
  cluster.total_gpu_num = devices;
  return cluster;
}

Config colocated() { return Config{{"cluster.colocate_split_and_replicate", true}}; }

std::string check(const std::vector<Strategy>& taskgraphs, int devices, const Config& config = {},
                  int workers = 1) {
  return error_of([&] { check_devices(taskgraphs, cluster_of(workers, devices), config); });
}

// --- nothing is ignored
// ---------------------------------------------------------------------------

std::string effect(const Config& config) {
  return error_of([&] { check_has_effect(config); });
}

TEST_F(ChecksTest, AKeyWithoutTheOneThatItServesIsAnError) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"PIPELINE_NUM_STAGES=4", "pipeline.num_stages",
       "auto.auto_parallel = true or pipeline.strategy = \"Interleaved\""},
      {"AUTO_DEVICE_MEMORY=512", "auto.device_memory", "auto.auto_parallel = true"},
      {"PIPELINE_NUM_CHUNKS=3", "pipeline.num_chunks", "auto.auto_parallel = true"},
      {"OFFLOAD_PATH=/tmp", "offload.path", "offload.level = \"v0\" or offload.level = \"v1\""},
      {"AMP_DTYPE=bfloat16", "amp.dtype", "amp.level = \"O1\""},
      {"AMP_DEBUG_LOG=true", "amp.debug_log", "amp.level = \"O1\""},
      {"AMP_LOSS_SCALE=128", "amp.loss_scale", "amp.level = \"O1\""},
      {"COMMUNICATION_FP16_SCALE=1024", "communication.fp16_scale", "communication.fp16 = true"},
      {"PLAN_READ_BACK=zero", "plan.read_back", "plan.only = true"},
      {"IO_DROP_LAST_FILES=true", "io.drop_last_files", "io.slicing = true"},
      {"IO_UNBALANCED_IO_SLICING=true", "io.unbalanced_io_slicing", "io.slicing = true"},
  };
  for (const auto& [variable, key, other] : cases) {
    const size_t equals = variable.find('=');
    set("EPL_" + variable.substr(0, equals), variable.substr(equals + 1));
    EXPECT_EQ(
        effect(Config()).rfind(concat("epl: ", key, " has no effect without ", other, "\n"), 0), 0U)
        << effect(Config());
    clear();
  }
  set("EPL_PIPELINE_NUM_STAGES", "4");
  EXPECT_EQ(
      effect(Config()),
      "epl: pipeline.num_stages has no effect without auto.auto_parallel = true or "
      "pipeline.strategy = \"Interleaved\"\n"
      "  asked by: pipeline.num_stages = 4 (environment EPL_PIPELINE_NUM_STAGES)\n"
      "  try:      auto.auto_parallel = true, or pipeline.strategy = \"Interleaved\", or leave "
      "pipeline.num_stages out");
}

TEST_F(ChecksTest, ShapesCannotBeLaidElsewhere) {
  EXPECT_EQ(effect(Config{{"plan.only", true}}), "no error");
  EXPECT_EQ(effect(Config{{"plan.only", true}, {"offload.level", "v0"}})
                .rfind("epl: plan.only has no memory that offload.level could lay elsewhere\n", 0),
            0U);
}

TEST_F(ChecksTest, AKeyWithTheOneThatItServesIsNone) {
  EXPECT_EQ(effect(Config()), "no error");
  for (const Config& config :
       std::vector<Config>{{{"pipeline.num_stages", 4}, {"auto.auto_parallel", true}},
                           {{"pipeline.num_stages", 4}, {"pipeline.strategy", "Interleaved"}},
                           {{"communication.fp16_scale", 64}, {"communication.fp16", true}},
                           {{"io.drop_last_files", true}, {"io.slicing", true}}}) {
    EXPECT_EQ(effect(config), "no error");
  }
}

// A program that hands on what it was told has switched the feature off in so many words.
TEST_F(ChecksTest, AKeyWhoseFeatureWasSwitchedOffIsNone) {
  const bool automatic = false;
  EXPECT_EQ(effect(Config{{"auto.auto_parallel", automatic}, {"pipeline.num_stages", 4}}),
            "no error");
  EXPECT_EQ(effect(Config{{"auto.device_memory", 0}}), "no error");
}

TEST_F(ChecksTest, SharesDevicesOutEvenly) {
  EXPECT_EQ(check({}, 3), "no error");
  EXPECT_EQ(check({rep(1, "a", 1)}, 1), "no error");
  EXPECT_EQ(check({rep(1, "a", 1)}, 7), "no error");
  EXPECT_EQ(check({cut(8, "a", 1)}, 16), "no error");
  EXPECT_EQ(check({rep(1, "a", 1), rep(1, "b", 2)}, 8), "no error");
  EXPECT_EQ(check({rep(8, "a", 1), cut(8, "b", 2)}, 16), "no error");
  EXPECT_EQ(check({rep(8, "a", 1), cut(8, "b", 2)}, 8, colocated()), "no error");
  EXPECT_EQ(check({rep(1, "a", 1), rep(1, "b", 2)}, 1, colocated()), "no error");
}

TEST_F(ChecksTest, NamesTheScopesThatNeedMoreDevices) {
  EXPECT_EQ(
      check({rep(1, "stage_0", 10), rep(1, "stage_1", 14)}, 1),
      "epl: 1 device cannot be shared out over model replicas of 2 devices (1 + 1)\n"
      "  asked by: epl::replicate(1, \"stage_0\") at net.cc:10\n"
      "            epl::replicate(1, \"stage_1\") at net.cc:14\n"
      "  try:      EPL_DEVICES=2, or cluster.colocate_split_and_replicate = true, so that all "
      "TaskGraphs share 1 device");
}

TEST_F(ChecksTest, RefusesAWideScopeOnOneDevice) {
  EXPECT_EQ(check({cut(4, "", 10)}, 1),
            "epl: 1 device cannot be shared out over model replicas of 4 devices\n"
            "  asked by: epl::split(4) at net.cc:10\n"
            "  try:      EPL_DEVICES=4");
  EXPECT_EQ(check({rep(2, "", 10)}, 1),
            "epl: 1 device cannot be shared out over model replicas of 2 devices\n"
            "  asked by: epl::replicate(2) at net.cc:10\n"
            "  try:      EPL_DEVICES=2");
}

TEST_F(ChecksTest, RefusesARemainderOfDevices) {
  EXPECT_EQ(
      check({rep(1, "a", 10), cut(2, "b", 14)}, 8),
      "epl: 8 devices cannot be shared out over model replicas of 3 devices (1 + 2)\n"
      "  asked by: epl::replicate(1, \"a\") at net.cc:10\n"
      "            epl::split(2, \"b\") at net.cc:14\n"
      "  try:      EPL_DEVICES=9, or cluster.colocate_split_and_replicate = true, so that all "
      "TaskGraphs share 2 devices");
}

TEST_F(ChecksTest, CountsTheLargestScopeWhenTaskGraphsAreColocated) {
  EXPECT_EQ(check({rep(2, "a", 10), cut(3, "b", 14)}, 4, colocated()),
            "epl: 4 devices cannot be shared out over model replicas of 3 devices (the largest of "
            "2, 3)\n"
            "  asked by: epl::replicate(2, \"a\") at net.cc:10\n"
            "            epl::split(3, \"b\") at net.cc:14\n"
            "  try:      EPL_DEVICES=6");
}

TEST_F(ChecksTest, HintsAtTheDevicesOfOneWorker) {
  EXPECT_EQ(check({cut(8, "", 10)}, 4, {}, /*workers=*/2),
            "epl: 4 devices cannot be shared out over model replicas of 8 devices\n"
            "  asked by: epl::split(8) at net.cc:10\n"
            "  try:      EPL_DEVICES=4");
}

TEST_F(ChecksTest, RefusesStrategiesBesideAutoParallel) {
  const Config config{Setting("auto.auto_parallel", true, SourceLocation{"train.cc", 3})};
  const std::vector<Strategy> taskgraphs = {rep(1, "a", 10), cut(1, "b", 14)};
  const std::string message =
      "epl: auto.auto_parallel chooses the strategies, and the program has its own\n"
      "  asked by: auto.auto_parallel = true (code train.cc:3)\n"
      "            epl::replicate(1, \"a\") at net.cc:10\n"
      "            epl::split(1, \"b\") at net.cc:14\n"
      "  try:      either auto.auto_parallel or scopes and a default strategy";
  EXPECT_EQ(error_of([&] { check_auto_parallel(taskgraphs, config); }), message);
  EXPECT_EQ(error_of([&] { check_auto_parallel({}, config); }), "no error");
  EXPECT_EQ(error_of([&] { check_auto_parallel(taskgraphs, Config()); }), "no error");
}

}  // namespace
}  // namespace epl

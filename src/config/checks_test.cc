#include "config/checks.h"

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

Cluster cluster_of(int workers, int devices) { return Cluster{workers, 0, devices}; }

Config colocated() { return Config{{"cluster.colocate_split_and_replicate", true}}; }

std::string check(const std::vector<Strategy>& taskgraphs, int devices, const Config& config = {},
                  int workers = 1) {
  return error_of([&] { check_devices(taskgraphs, cluster_of(workers, devices), config); });
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

#include "compile/auto_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "plan/test_step.h"

namespace epl {
namespace {

// Four operators one behind the other, each with a table of 1000 bytes.
Graph four_tables() {
  TestStep step;
  ValueId x = step.input(1);
  for (int i = 0; i < 4; ++i) x = step.forward({x, step.state(concat("table", i), 1000)}, 1, 1);
  return step.graph;
}

ClusterShape four_devices() {
  ClusterShape cluster;
  cluster.total_gpu_num = 4;
  cluster.worker_devices = {4};
  return cluster;
}

int stages_with(int64_t device_bytes) {
  AutoStagesRequest request;
  request.device_bytes = device_bytes;
  return choose_stages(four_tables(), four_devices(), Config(), request).stages;
}

TEST(AutoStages, AreAsFewAsFitIntoTheDevices) {
  EXPECT_EQ(stages_with(5000), 1);
  EXPECT_EQ(stages_with(3000), 2);
  EXPECT_EQ(stages_with(1500), 4);
}

TEST(AutoStages, AreRefusedWhereNoneFit) { EXPECT_THROW(stages_with(500), Error); }

TEST(AutoStages, ShareOutAllDevices) {
  const Config config{{"pipeline.num_stages", 3}};
  EXPECT_THAT([&] { choose_stages(four_tables(), four_devices(), config, {}); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("replicas of 3 stages")));
}

TEST(AutoStages, AreTheSameFromTheirText) {
  AutoStages choice;
  choice.stages = 3;
  choice.forward_calls = 17;
  choice.cuts = {4, 9};
  const AutoStages again = parse_auto_stages(print_auto_stages(choice));
  EXPECT_EQ(again.stages, 3);
  EXPECT_EQ(again.forward_calls, 17);
  EXPECT_EQ(again.cuts, choice.cuts);
}

}  // namespace
}  // namespace epl

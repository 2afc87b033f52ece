#include <epl/env.h>
#include <epl/strategy.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>

#include "base/text.h"
#include "config/scopes.h"
#include "config/test_environment.h"

namespace epl {
namespace {

constexpr SourceLocation kWhere{"train.cc", 5};

class EnvTest : public EnvironmentFixture {
 protected:
  ~EnvTest() override {
    clear();
    init();
  }
};

TEST_F(EnvTest, DoesNotExistBeforeInit) {
  // Runs in a new process, where no other test has called init().
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        std::fputs(error_of([] { Env::get(kWhere); }).c_str(), stderr);
        std::_Exit(0);
      },
      testing::ExitedWithCode(0),
      "epl: epl::Env::get\\(\\) is called before epl::init\\(\\)\n"
      "  asked by: epl::Env::get\\(\\) at train.cc:5\n"
      "  try:      call epl::init\\(\\) at the beginning of main\\(\\)");
}

TEST_F(EnvTest, ShowsOneWorkerWithOneDevice) {
  init();
  EXPECT_EQ(Env::get().cluster.worker_num, 1);
  EXPECT_EQ(Env::get().cluster.worker_index, 0);
  EXPECT_EQ(Env::get().cluster.total_gpu_num, 1);
}

TEST_F(EnvTest, ShowsTheConfigurationOfTheLastInit) {
  init(Config{{"pipeline.num_micro_batch", 4}});
  const Env& env = Env::get();
  EXPECT_EQ(env.config.get<int64_t>("pipeline.num_micro_batch"), 4);
  init({{"pipeline.num_micro_batch", 2}});
  EXPECT_EQ(env.config.get<int64_t>("pipeline.num_micro_batch"), 2);
  init();
  EXPECT_EQ(env.config.get<int64_t>("pipeline.num_micro_batch"), 1);
}

TEST_F(EnvTest, ReadsEplVariablesInInit) {
  set("EPL_PIPELINE_NUM_MICRO_BATCH", "8");
  set("EPL_DEVICES", "1");
  init();
  EXPECT_EQ(Env::get().config.get<int64_t>("pipeline.num_micro_batch"), 8);
}

TEST_F(EnvTest, CountsTheDevicesOfTheProcess) {
  set("EPL_DEVICES", "4");
  init();
  EXPECT_EQ(Env::get().cluster.total_gpu_num, 4);
  EXPECT_EQ(Env::get().cluster.local_devices(), 4);
  EXPECT_EQ(Env::get().cluster.first_device(), 0);
}

TEST_F(EnvTest, TakesOnlyVisibleDevices) {
  set("EPL_DEVICES", "8");
  init({{"cluster.run_visible_devices", "0,4,7"}});
  EXPECT_EQ(Env::get().cluster.total_gpu_num, 3);
  set("EPL_DEVICES", "4");
  EXPECT_THAT(
      error_of([] {
        init({{"cluster.run_visible_devices", "0,4"}});
      }),
      testing::HasSubstr("epl: there is no device 4: this process has 4 devices, counted from 0\n"
                         "  asked by: cluster.run_visible_devices = \"0,4\""));
}

TEST_F(EnvTest, RefusesAMalformedNumberOfDevices) {
  for (const char* text : {"", "0", "-1", "two", "2.0", " 2", "2 ", "99999999999"}) {
    set("EPL_DEVICES", text);
    EXPECT_EQ(
        error_of([] { init(); }),
        concat("epl: EPL_DEVICES must be an integer of at least 1, not \"", text,
               "\"\n  asked by: EPL_DEVICES=", text, " (environment)\n  try:      EPL_DEVICES=1"));
  }
}

TEST_F(EnvTest, StaysAsItWasWhenInitFails) {
  init(Config{{"pipeline.num_micro_batch", 4}});
  set_default_strategy(replicate(1, "kept"));
  EXPECT_THROW(init(Config{{"optimizer.update_early", true}, {"amp.level", "O1"}}), Error);
  EXPECT_EQ(Env::get().config.get<int64_t>("pipeline.num_micro_batch"), 4);
  Recording recording;
  EXPECT_EQ(current_taskgraph(), 0);
}

TEST_F(EnvTest, ForgetsTheDefaultStrategyWithInit) {
  set_default_strategy(replicate(1));
  init();
  Recording recording;
  EXPECT_EQ(current_taskgraph(), -1);
}

TEST_F(EnvTest, RefusesInitInsideOfAScope) {
  With scope(replicate(1, "outer", SourceLocation{"net.cc", 9}));
  EXPECT_EQ(error_of([] { init({}, kWhere); }),
            "epl: epl::init() is called inside of a scope\n"
            "  asked by: epl::init() at train.cc:5, inside of epl::replicate(1, \"outer\") at "
            "net.cc:9\n"
            "  try:      call epl::init() once, at the beginning of main()");
}

TEST_F(EnvTest, RefusesInitInsideOfAStepFunction) {
  Recording recording;
  EXPECT_EQ(error_of([] { init({}, kWhere); }),
            "epl: epl::init() is called inside of a step function\n"
            "  asked by: epl::init() at train.cc:5\n"
            "  try:      call epl::init() once, at the beginning of main()");
}

}  // namespace
}  // namespace epl

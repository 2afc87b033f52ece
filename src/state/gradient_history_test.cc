// A parameter lay on a stage of one worker, with what its optimizer had learnt of it, and a second
// trainer with other stages gave it a gradient on another worker: that one began without the state,
// and no one was told.
#include "state/gradient_history.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>

#include "config/test_environment.h"

namespace epl {
namespace {

using testing::HasSubstr;

Placement stages_of(std::vector<int> devices) {
  Placement placement;
  placement.role_stages.clear();
  for (size_t i = 0; i < devices.size(); ++i) placement.role_stages.push_back(static_cast<int>(i));
  placement.role_devices = std::move(devices);
  placement.asked_by = "epl::replicate at net.cc:3";
  return placement;
}

struct GradientHistoryOnWorkers : testing::Test {
  // What the second one hears where its step gives a gradient to what the first one trained.
  std::string error_of_second(const Placement& first, const Placement& second, bool alone) {
    history.add("head.weight", parameter, Home{{first.roles() - 1}}, {first, alone});
    return error_of([&] { history.add("head.weight", parameter, Home{{0}}, {second, alone}); });
  }

  GradientHistory history;
  const at::Tensor parameter = at::zeros({2});
};

TEST_F(GradientHistoryOnWorkers, RefusesOtherStagesThanThoseThatHaveTheState) {
  EXPECT_EQ(
      error_of_second(stages_of({1, 1}), stages_of({1, 2}), false),
      "epl: `head.weight` and the state of its optimizer lie on stages of 1 + 1 devices, where "
      "another trainer put them, and this step has 1 + 2\n"
      "  asked by: epl::replicate at net.cc:3\n"
      "  try:      the same strategies in all trainers that share an optimizer, or an "
      "optimizer for each; to go on with others, trainer.save(), and load() with a new "
      "network");
}

TEST_F(GradientHistoryOnWorkers, RefusesReplicasOfWhatLiesOnStages) {
  EXPECT_THAT(error_of_second(stages_of({1, 1}), stages_of({1}), false),
              HasSubstr("lie on stages of 1 + 1 devices"));
}

TEST_F(GradientHistoryOnWorkers, KeepsTheHomeThatItRefusesToGiveUp) {
  const Placement first = stages_of({1, 1});
  error_of_second(first, stages_of({1, 2}), false);
  EXPECT_EQ(history.find("head.weight", parameter, {first, false})->roles, std::vector<int>{1});
}

TEST_F(GradientHistoryOnWorkers, TakesStagesOfWhatEveryWorkerHas) {
  EXPECT_EQ(error_of_second(stages_of({1}), stages_of({1, 1}), false), "no error");
}

TEST_F(GradientHistoryOnWorkers, TakesAnotherHomeOnTheSameStages) {
  EXPECT_EQ(error_of_second(stages_of({1, 1}), stages_of({1, 1}), false), "no error");
}

TEST_F(GradientHistoryOnWorkers, OfOneWorkerHasAllOfIt) {
  EXPECT_EQ(error_of_second(stages_of({1, 1}), stages_of({1, 2}), true), "no error");
}

}  // namespace
}  // namespace epl

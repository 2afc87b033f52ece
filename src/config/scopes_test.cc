#include "config/scopes.h"

#include <memory>
#include <stdexcept>

#include "base/text.h"
#include "config/test_environment.h"

namespace epl {
namespace {

class RecordingTest : public testing::Test {
 protected:
  ~RecordingTest() override { reset_annotations(); }
};

int taskgraph_in(Strategy strategy) {
  With scope(std::move(strategy));
  return current_taskgraph();
}

std::string text_of(const std::vector<Strategy>& taskgraphs) {
  std::vector<std::string> names;
  for (const Strategy& strategy : taskgraphs) names.push_back(strategy.str());
  return join(names, " ");
}

TEST_F(RecordingTest, NumbersScopesInTheOrderOfTheirEntry) {
  Recording recording;
  EXPECT_EQ(taskgraph_in(replicate(1)), 0);
  EXPECT_EQ(taskgraph_in(replicate(1)), 1);
  EXPECT_EQ(taskgraph_in(split(2)), 2);
  EXPECT_EQ(text_of(recording.finish()), "epl::replicate(1) epl::replicate(1) epl::split(2)");
}

TEST_F(RecordingTest, MakesATaskGraphOfAScopeWithoutOperators) {
  Recording recording;
  { With scope(replicate(1)); }
  EXPECT_EQ(recording.finish().size(), 1u);
}

TEST_F(RecordingTest, HasNoTaskGraphOutsideOfScopes) {
  Recording recording;
  EXPECT_EQ(current_taskgraph(), -1);
  EXPECT_EQ(taskgraph_in(replicate(1)), 0);
  EXPECT_EQ(current_taskgraph(), -1);
}

TEST_F(RecordingTest, HasNoTaskGraphsWhenNothingIsRecorded) {
  EXPECT_EQ(taskgraph_in(replicate(1)), -1);
  set_default_strategy(replicate(1));
  EXPECT_EQ(current_taskgraph(), -1);
  EXPECT_FALSE(is_recording_taskgraphs());
}

TEST_F(RecordingTest, RejoinsAScopeOfTheSameName) {
  Recording recording;
  EXPECT_EQ(taskgraph_in(replicate(1, "encoder")), 0);
  EXPECT_EQ(taskgraph_in(replicate(1, "decoder")), 1);
  EXPECT_EQ(taskgraph_in(replicate(1, "encoder")), 0);
  EXPECT_EQ(recording.finish().size(), 2u);
}

TEST_F(RecordingTest, KeepsScopesOfOneNameApartThatDifferInKindOrDevices) {
  Recording recording;
  EXPECT_EQ(taskgraph_in(replicate(1, "a")), 0);
  EXPECT_EQ(taskgraph_in(replicate(2, "a")), 1);
  EXPECT_EQ(taskgraph_in(split(1, "a")), 2);
}

TEST_F(RecordingTest, NeverRejoinsADefaultStrategy) {
  Recording recording;
  set_default_strategy(replicate(1, "a"));
  EXPECT_EQ(taskgraph_in(replicate(1, "a")), 1);
  EXPECT_EQ(taskgraph_in(replicate(1, "a")), 1);
  set_default_strategy(replicate(1, "a"));
  EXPECT_EQ(current_taskgraph(), 2);
}

TEST_F(RecordingTest, StartsATaskGraphWithEachDefaultStrategy) {
  Recording recording;
  set_default_strategy(replicate(1));
  EXPECT_EQ(current_taskgraph(), 0);
  set_default_strategy(replicate(1));
  EXPECT_EQ(current_taskgraph(), 1);
  EXPECT_EQ(recording.finish().size(), 2u);
}

TEST_F(RecordingTest, ReplacesTheDefaultStrategyInsideOfAScopeOnly) {
  Recording recording;
  set_default_strategy(replicate(4));
  EXPECT_EQ(taskgraph_in(split(4)), 1);
  EXPECT_EQ(current_taskgraph(), 0);
}

TEST_F(RecordingTest, CountsAnEarlierDefaultStrategyWhenItIsFirstNeeded) {
  set_default_strategy(replicate(4, "rest"));
  Recording recording;
  EXPECT_EQ(taskgraph_in(split(4)), 0);
  EXPECT_EQ(current_taskgraph(), 1);
  EXPECT_EQ(taskgraph_in(split(4)), 2);
  EXPECT_EQ(current_taskgraph(), 1);
  EXPECT_EQ(text_of(recording.finish()), "epl::split(4) epl::replicate(4, \"rest\") epl::split(4)");
}

TEST_F(RecordingTest, DoesNotCountAnEarlierDefaultStrategyThatIsNotNeeded) {
  set_default_strategy(replicate(4));
  Recording recording;
  taskgraph_in(split(4));
  EXPECT_EQ(text_of(recording.finish()), "epl::split(4)");
}

TEST_F(RecordingTest, CountsAnEarlierScopeWhenItIsFirstNeeded) {
  With scope(split(2));
  for (int i = 0; i < 2; ++i) {
    Recording recording;
    EXPECT_EQ(current_taskgraph(), 0);
    EXPECT_EQ(text_of(recording.finish()), "epl::split(2)");
  }
}

TEST_F(RecordingTest, GivesTheSameNumbersWhenItIsRepeated) {
  set_default_strategy(replicate(1, "before"));
  for (int i = 0; i < 2; ++i) {
    Recording recording;
    EXPECT_EQ(current_taskgraph(), 0);
    set_default_strategy(replicate(1, "within"));
    EXPECT_EQ(current_taskgraph(), 1);
    EXPECT_EQ(taskgraph_in(split(2, "scope")), 2);
    EXPECT_EQ(
        text_of(recording.finish()),
        "epl::replicate(1, \"before\") epl::replicate(1, \"within\") epl::split(2, \"scope\")");
  }
}

TEST_F(RecordingTest, CallsTheBorderBeforeEachChange) {
  std::vector<int> ended;
  Recording recording([&] { ended.push_back(current_taskgraph()); });
  { With scope(replicate(1)); }
  { With scope(replicate(1)); }
  set_default_strategy(split(2));
  set_default_strategy(split(2));
  { With scope(replicate(1)); }
  recording.finish();
  EXPECT_EQ(join(ended, " "), "-1 0 -1 1 -1 2 3 4");
}

TEST_F(RecordingTest, MakesNoTaskGraphWhenTheBorderAsks) {
  set_default_strategy(replicate(1, "rest"));
  std::vector<int> ended;
  Recording recording([&] { ended.push_back(current_taskgraph()); });
  { With scope(split(2)); }
  EXPECT_EQ(join(ended, " "), "-1 0");
  EXPECT_EQ(current_taskgraph(), 1);
}

TEST_F(RecordingTest, CallsNoBorderWhenItIsOver) {
  int borders = 0;
  auto recording = std::make_unique<Recording>([&] { ++borders; });
  recording->finish();
  { With scope(split(2)); }
  EXPECT_EQ(borders, 0);
}

TEST_F(RecordingTest, CallsNoBorderForARefusedScope) {
  int borders = 0;
  Recording recording([&] { ++borders; });
  With outer(replicate(1));
  EXPECT_THROW(With inner(split(2)), Error);
  EXPECT_THROW(set_default_strategy(split(2)), Error);
  EXPECT_EQ(borders, 1);
  EXPECT_EQ(current_taskgraph(), 0);
}

TEST_F(RecordingTest, EndsWithAnExceptionAndLeavesNothingBehind) {
  set_default_strategy(replicate(1, "before"));
  std::vector<int> ended;
  EXPECT_THROW(
      {
        Recording recording([&] { ended.push_back(current_taskgraph()); });
        set_default_strategy(replicate(1, "within"));
        With scope(split(2));
        throw std::runtime_error("of the user's own");
      },
      std::runtime_error);
  EXPECT_EQ(join(ended, " "), "-1 0 1");
  EXPECT_FALSE(is_recording_taskgraphs());
  Recording again;
  EXPECT_EQ(current_taskgraph(), 0);
  EXPECT_EQ(text_of(again.finish()), "epl::replicate(1, \"before\")");
}

TEST_F(RecordingTest, KeepsNumbersRightWhenTheStepCatchesItsException) {
  Recording recording;
  try {
    With scope(replicate(1));
    throw std::runtime_error("of the user's own");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(current_taskgraph(), -1);
  EXPECT_EQ(taskgraph_in(replicate(1)), 1);
}

TEST_F(RecordingTest, DoesNotNest) {
  Recording recording;
  EXPECT_EQ(error_of([] { Recording second; }),
            "epl: a step function is recorded while another one is\n"
            "  asked by: this thread, which is inside of a step function\n"
            "  try:      call Trainer::step() outside of step functions");
  EXPECT_TRUE(is_recording_taskgraphs());
}

TEST_F(RecordingTest, IsFinishedOnce) {
  Recording recording;
  recording.finish();
  EXPECT_THROW(recording.finish(), InternalError);
}

}  // namespace
}  // namespace epl

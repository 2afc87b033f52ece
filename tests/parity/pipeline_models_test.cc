// What may go between stages, and what a stage may be: every program trains as the plain loop does.
#include "tests/parity/pipeline_models.h"

#include "tests/models/programs.h"

namespace epl::parity {
namespace {

class StagedModels : public testing::TestWithParam<std::string> {
 protected:
  static testing::AssertionResult trains(const Variant& variant) {
    const StagedModel& model = staged_model(GetParam());
    return parity(model.make, model.batch, model.exactness, variant);
  }
  static Variant layout(int micro_batches, int replicas = 1) {
    Variant variant = pipeline(staged_model(GetParam()).stages, micro_batches, replicas);
    return GetParam() == "gradient penalty" ? variant.differs_by_rows(kPenalty) : variant;
  }
};

TEST_P(StagedModels, TrainWithoutMicroBatches) { EXPECT_TRUE(trains(layout(1))); }

TEST_P(StagedModels, TrainByEverySchedule) {
  for (const std::string& schedule : schedules()) {
    EXPECT_TRUE(trains(layout(4).with("pipeline.strategy", schedule))) << schedule;
  }
}

TEST_P(StagedModels, TrainInReplicas) { EXPECT_TRUE(trains(layout(2, 2))); }

// The gradient of a table that two stages have parts of is one to whoever clips or compares it.
TEST(StagedModels, AreClippedAndVerifiedWithTiedParameters) {
  for (const std::string model : {"tied embedding", "tied in three of four"}) {
    const StagedModel& staged = staged_model(model);
    for (int replicas : {1, 2}) {
      const Variant variant = pipeline(staged.stages, 2, replicas).clip_norm(0.05);
      EXPECT_TRUE(parity(staged.make, staged.batch, staged.exactness, variant)) << model;
      EXPECT_TRUE(
          parity(staged.make, staged.batch, staged.exactness, Variant(variant).clip_after()))
          << model;
      EXPECT_TRUE(parity(staged.make, staged.batch, staged.exactness,
                         pipeline(staged.stages, 2, replicas).with("debug.verify_steps", 2)))
          << model;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, StagedModels, testing::ValuesIn(staged_model_names()),
                         models::test_name);

}  // namespace
}  // namespace epl::parity

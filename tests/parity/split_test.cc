// Split: operators and parameters cut over devices give what the plain loop gives.
#include "tests/models/programs.h"
#include "tests/parity/split_models.h"

namespace epl::parity {
namespace {

class Splits : public testing::TestWithParam<std::string> {
 protected:
  const SplitModel& model() const { return split_models().at(GetParam()); }
};

TEST_P(Splits, TrainOverTwoDevices) { EXPECT_TRUE(trains_split(model(), 2, split_over(2))); }
TEST_P(Splits, TrainOverThreeDevices) { EXPECT_TRUE(trains_split(model(), 3, split_over(3))); }
TEST_P(Splits, TrainOverFourDevices) { EXPECT_TRUE(trains_split(model(), 4, split_over(4))); }
TEST_P(Splits, TrainOverEightDevices) { EXPECT_TRUE(trains_split(model(), 8, split_over(8))); }
TEST_P(Splits, TrainWithMicroBatches) { EXPECT_TRUE(trains_split(model(), 2, split_over(2, 3))); }
TEST_P(Splits, TrainInReplicas) { EXPECT_TRUE(trains_split(model(), 2, split_over(2, 1, 2))); }

INSTANTIATE_TEST_SUITE_P(All, Splits, testing::ValuesIn(split_model_names()), models::test_name);

}  // namespace
}  // namespace epl::parity

// Operators cut over devices of several workers, which are processes.
#include "tests/models/programs.h"
#include "tests/parity/split_models.h"

namespace epl::parity {
namespace {

class SplitWorkers : public testing::TestWithParam<std::string> {
 protected:
  testing::AssertionResult trains(int devices, std::vector<int> workers, int micro_batches = 1) {
    const Variant variant = Variant()
                                .steps(3)
                                .stages({devices})
                                .workers(std::move(workers))
                                .micro_batches(micro_batches)
                                .without_states();
    return trains_split(split_models().at(GetParam()), devices, variant);
  }
};

TEST_P(SplitWorkers, TrainOverTwo) { EXPECT_TRUE(trains(2, {1, 1})); }
TEST_P(SplitWorkers, TrainWithSeveralDevicesEach) { EXPECT_TRUE(trains(4, {2, 2}, 2)); }
TEST_P(SplitWorkers, TrainInReplicasWithinEach) { EXPECT_TRUE(trains(2, {2, 2})); }

INSTANTIATE_TEST_SUITE_P(Models, SplitWorkers,
                         testing::Values("mlp", "uneven classifier", "colocated classifier", "gpt",
                                         "conv", "tied", "mixture top 2"),
                         models::test_name);

}  // namespace
}  // namespace epl::parity

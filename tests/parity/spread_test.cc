// zero.level = "v2": workers keep parts of the parameters, and fetch the rest around its use. They
// are those of plain data parallelism, bit by bit, and those of the plain loop.
#include "model/test_optimizers.h"
#include "tests/models/programs.h"
#include "tests/parity/pipeline_models.h"
#include "tests/parity/split_models.h"
#include "tests/parity/zero_programs.h"

namespace epl::parity {
namespace {

constexpr const char* kSpread = "v2";

class SpreadOnWorkers : public testing::TestWithParam<std::vector<int>> {
 protected:
  static Variant layout() { return Variant().steps(7).looks_every(3).workers(GetParam()); }
};

TEST_P(SpreadOnWorkers, HasTheBitsOfDataParallelism) {
  EXPECT_TRUE(same_bits(wide, wide_batch, layout(), kSpread));
}

TEST_P(SpreadOnWorkers, HasTheBitsOfDataParallelismWithMicroBatches) {
  EXPECT_TRUE(same_bits(wide, wide_batch, layout().micro_batches(2), kSpread));
}

TEST_P(SpreadOnWorkers, TrainsAsThePlainLoop) {
  const auto make = [] {
    auto net = wide_net();
    return program(net, sgd(*net, 0.1, 0.9), classification(net));
  };
  EXPECT_TRUE(parity(make, wide_batch, kRounding, zero(layout(), kSpread)));
}

INSTANTIATE_TEST_SUITE_P(Layouts, SpreadOnWorkers,
                         testing::Values(std::vector<int>{1, 1}, std::vector<int>{1, 1, 1},
                                         std::vector<int>{2, 2}, std::vector<int>{4, 2}),
                         [](const auto& info) {
                           std::string name = "Devices";
                           for (int devices : info.param) name += "_" + std::to_string(devices);
                           return name;
                         });

}  // namespace
}  // namespace epl::parity

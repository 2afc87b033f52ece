// The models of all kinds on several devices of one worker.
#include "tests/models/programs.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

class ModelOnDevices : public testing::TestWithParam<std::string> {
 protected:
  static Exactness exactness() {
    if (GetParam() == "bag of words") return within(1e-6, "the order of a sparse sum is its own");
    if (GetParam() == "gru") return within(1e-6, "the sum over time has another order");
    if (GetParam() == "biased attention") {
      return within(1e-6, "LibTorch sums its gradient by another kernel where it lies otherwise");
    }
    return bit_equal();
  }

  testing::AssertionResult trains(int devices, int micro_batches) {
    return parity(models::program_named(GetParam()),
                  models::batches_named(GetParam(), devices * micro_batches), exactness(),
                  Variant().steps(3).devices(devices).micro_batches(micro_batches));
  }
};

TEST_P(ModelOnDevices, TrainsOnTwo) { EXPECT_TRUE(trains(2, 1)); }
TEST_P(ModelOnDevices, TrainsOnThreeWithAccumulation) { EXPECT_TRUE(trains(3, 2)); }

INSTANTIATE_TEST_SUITE_P(All, ModelOnDevices, testing::ValuesIn(models::names_with_rows()),
                         models::test_name);

}  // namespace
}  // namespace epl::parity

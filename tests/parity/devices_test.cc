// Data parallelism in one worker: N devices give what one gives with the same global batch.
#include <gmock/gmock.h>

#include "tests/models/mlp.h"
#include "tests/models/recurrent.h"
#include "tests/models/transformer.h"
#include "tests/models/vision.h"
#include "tests/parity/on_devices.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

Program mlp() {
  auto net = std::make_shared<models::Mlp>(16, 32, 3, 4);
  return program(net, sgd(*net, 0.1, 0.9), classification(net));
}

Batch mlp_batch(int) { return {torch::randn({48, 16}), classes(4, {48})}; }

const Exactness kRounding = within(1e-5, "sums over rows in another order");

class Devices : public testing::TestWithParam<int> {};

TEST_P(Devices, GiveTheBitsOfTheirGradientsAddedInOrder) {
  EXPECT_TRUE(parity(mlp, mlp_batch, bit_equal(), Variant().devices(GetParam())));
}

TEST_P(Devices, AccumulateMicroBatches) {
  EXPECT_TRUE(parity(mlp, mlp_batch, bit_equal(), Variant().devices(GetParam()).micro_batches(2)));
}

TEST_P(Devices, TakeMicroBatchesFromASource) {
  EXPECT_TRUE(parity(mlp, mlp_batch, bit_equal(),
                     Variant().devices(GetParam()).micro_batches(3).from_source()));
}

TEST_P(Devices, SumInsteadOfMean) {
  EXPECT_TRUE(parity(mlp, mlp_batch, bit_equal(), Variant().devices(GetParam()).sum()));
}

TEST_P(Devices, UpdateInGroups) {
  EXPECT_TRUE(parity(mlp, mlp_batch, bit_equal(), Variant().devices(GetParam()).apply_groups(3)));
}

TEST_P(Devices, ClipTheirOwnGradients) {
  EXPECT_TRUE(parity(mlp, mlp_batch, kRounding, Variant().devices(GetParam()).clip_norm(0.1)));
  EXPECT_TRUE(parity(mlp, mlp_batch, kRounding, Variant().devices(GetParam()).clip_value(0.003)));
}

TEST_P(Devices, ClipReducedGradients) {
  EXPECT_TRUE(
      parity(mlp, mlp_batch, kRounding, Variant().devices(GetParam()).clip_norm(0.1).clip_after()));
  EXPECT_TRUE(parity(mlp, mlp_batch, kRounding,
                     Variant().devices(GetParam()).clip_value(0.003).clip_after()));
}

TEST_P(Devices, TrainAsOneDeviceWithAllRows) {
  const Variant on_devices = Variant().devices(GetParam());
  const Trace plain = train_plain(mlp, mlp_batch);
  const OnDevices devices(GetParam());
  EXPECT_TRUE(compare(plain, train_epl(mlp, mlp_batch, on_devices), kRounding, on_devices));
}

INSTANTIATE_TEST_SUITE_P(Some, Devices, testing::Values(2, 3, 4, 8),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace epl::parity

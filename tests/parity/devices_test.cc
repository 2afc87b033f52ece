// Data parallelism in one worker: N devices give what one gives with the same global batch.
#include <gmock/gmock.h>

#include "tests/models/mlp.h"
#include "tests/models/programs.h"
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

TEST_P(Devices, ShareOneMicroBatch) {
  EXPECT_TRUE(parity(mlp, mlp_batch, bit_equal(),
                     Variant().devices(GetParam()).slices(GetParam()).micro_batches(2)));
}

TEST_P(Devices, ThatShareOneMicroBatchTrainAsOneDeviceWithAllRows) {
  const Variant sliced = Variant().devices(GetParam()).slices(GetParam()).clip_norm(0.1);
  const Trace plain = train_plain(mlp, mlp_batch, Variant().clip_norm(0.1));
  const OnDevices devices(GetParam());
  EXPECT_TRUE(compare(plain, train_epl(mlp, mlp_batch, sliced), kRounding, sliced));
}

TEST_P(Devices, ShareOneMicroBatchWhoseLossIsASum) {
  const auto summing = [] {
    auto net = std::make_shared<models::Mlp>(16, 32, 3, 4);
    return program(net, sgd(*net, 0.001), [net](const Batch& batch) {
      const auto logits = net->forward(batch[0]);
      const auto right = (logits.argmax(1) == batch[1]).sum().to(torch::kFloat);
      return StepOutput(
          cross_entropy(logits, batch[1]) * batch[0].size(0),
          {{"right", right}, {"logits", logits.detach()}, {"mean", logits.detach().mean()}});
    });
  };
  const Variant sliced = Variant().devices(GetParam()).slices(GetParam());
  const Trace plain = train_plain(summing, mlp_batch);
  const OnDevices devices(GetParam());
  EXPECT_TRUE(compare(plain, train_epl(summing, mlp_batch, sliced), kRounding, sliced));
}

INSTANTIATE_TEST_SUITE_P(Some, Devices, testing::Values(2, 3, 4, 8),
                         testing::PrintToStringParamName());

TEST(Devices, ShareMicroBatchesInTwosWithDataParallelismAround) {
  for (int devices : {4, 8}) {
    EXPECT_TRUE(
        parity(mlp, mlp_batch, bit_equal(), Variant().devices(devices).slices(2).micro_batches(3)));
    EXPECT_TRUE(parity(mlp, mlp_batch, bit_equal(),
                       Variant().devices(devices).slices(2).micro_batches(3).from_source()));
  }
}

TEST(Devices, GiveTheSameBitsInEveryRun) {
  const OnDevices devices(4);
  const Variant variant = Variant().devices(4).micro_batches(2);
  const Trace first = train_epl(mlp, mlp_batch, variant);
  for (int run = 0; run < 10; ++run) {
    EXPECT_TRUE(compare(first, train_epl(mlp, mlp_batch, variant), bit_equal(), variant));
  }
}

TEST(Devices, ReduceSparseGradients) {
  for (bool dense : {false, true}) {
    EXPECT_TRUE(parity(models::program_named("bag of words"),
                       models::batches_named("bag of words", 4),
                       within(1e-6, "sparse gradients are added in an order of their own"),
                       Variant().devices(4).with("communication.sparse_as_dense", dense)));
  }
}

TEST(Devices, TrainTwoNetworksInTurns) {
  EXPECT_TRUE(parity(
      [] {
        auto made = std::make_shared<models::Mlp>(4, 8, 2, 6);
        auto judge = std::make_shared<models::Mlp>(6, 8, 2, 1);
        Program both;
        both.turns.push_back(
            {{{"judge", judge}}, {sgd(*judge, 0.1)}, [made, judge](const Batch& batch) {
               const auto fake = made->forward(batch[0]).detach();
               return judge->forward(fake).mean() - judge->forward(batch[1]).mean();
             }});
        both.turns.push_back(
            {{{"made", made}}, {sgd(*made, 0.1)}, [made, judge](const Batch& batch) {
               return -judge->forward(made->forward(batch[0])).mean();
             }});
        return both;
      },
      [](int) {
        return Batch{torch::randn({12, 4}), torch::randn({12, 6})};
      },
      bit_equal(), Variant().devices(3)));
}

TEST(Devices, TakeALastBatchOfAnotherSize) {
  EXPECT_TRUE(parity(
      mlp,
      [](int step) {
        const int64_t rows = step % 2 == 0 ? 12 : 6;
        return Batch{torch::randn({rows, 16}), classes(4, {rows})};
      },
      bit_equal(), Variant().devices(3)));
}

}  // namespace
}  // namespace epl::parity

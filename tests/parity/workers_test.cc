// Data parallelism over several workers, which are processes: the same parameters on all of them,
// and those of the plain loop.
#include "tests/models/mlp.h"
#include "tests/models/programs.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

Program mlp() {
  auto net = std::make_shared<models::Mlp>(16, 32, 3, 4);
  return program(net, sgd(*net, 0.1, 0.9), classification(net));
}

Batch mlp_batch(int) { return {torch::randn({48, 16}), classes(4, {48})}; }

const Exactness kRounding = within(1e-5, "sums over devices in another order");

// Which workers there are: devices of each.
class Workers : public testing::TestWithParam<std::vector<int>> {
 protected:
  static Variant layout() { return Variant().steps(3).workers(GetParam()); }
};

TEST_P(Workers, Train) { EXPECT_TRUE(parity(mlp, mlp_batch, kRounding, layout())); }

TEST_P(Workers, AccumulateMicroBatches) {
  EXPECT_TRUE(parity(mlp, mlp_batch, kRounding, layout().micro_batches(2)));
}

TEST_P(Workers, TrainANetworkWithBatchNorm) {
  int devices = 0;
  for (int each : GetParam()) devices += each;
  EXPECT_TRUE(parity(models::program_named("resnet18"),
                     models::batches_named("resnet18", 4 * devices),
                     within(1e-3, "depth amplifies rounding"), layout()));
}

INSTANTIATE_TEST_SUITE_P(Layouts, Workers,
                         testing::Values(std::vector<int>{1, 1}, std::vector<int>{1, 1, 1},
                                         std::vector<int>{1, 1, 1, 1}, std::vector<int>{2, 2},
                                         std::vector<int>{2, 1},
                                         std::vector<int>{1, 1, 1, 1, 1, 1, 1, 1}),
                         [](const auto& info) {
                           std::string name = "Devices";
                           for (int devices : info.param) name += "_" + std::to_string(devices);
                           return name;
                         });

class ModelOnWorkers : public testing::TestWithParam<std::string> {};

TEST_P(ModelOnWorkers, TrainsOnTwoPlusOneDevices) {
  EXPECT_TRUE(parity(models::program_named(GetParam()), models::batches_named(GetParam(), 6),
                     within(1e-4, "sums over devices in another order"),
                     Variant().steps(3).workers({2, 1}).micro_batches(2)));
}

INSTANTIATE_TEST_SUITE_P(All, ModelOnWorkers, testing::ValuesIn(models::names_with_rows()),
                         models::test_name);

// --- every key of communication.* ----------------------------------------------------------------

Variant two_by_two() { return Variant().steps(3).workers({2, 2}).micro_batches(2); }

TEST(WorkersKeys, SumInsteadOfMean) {
  EXPECT_TRUE(parity(mlp, mlp_batch, kRounding, two_by_two().sum()));
}

TEST(WorkersKeys, AnyNumberOfGroupsAndCommunicators) {
  for (int groups : {1, 2, 100}) {
    for (int communicators : {1, 3}) {
      EXPECT_TRUE(parity(mlp, mlp_batch, kRounding,
                         two_by_two()
                             .with("communication.max_splits", groups)
                             .with("communication.num_communicators", communicators)));
    }
  }
}

TEST(WorkersKeys, GradientsTravelAsHalf) {
  EXPECT_TRUE(parity(mlp, mlp_batch, within(2e-2, "half precision has 11 bits"),
                     two_by_two().with("communication.fp16", true)));
  EXPECT_TRUE(
      parity(mlp, mlp_batch, within(2e-2, "half precision has 11 bits"),
             two_by_two().with("communication.fp16", true).with("communication.fp16_scale", 1024)));
  EXPECT_FALSE(parity(mlp, mlp_batch, within(1e-7, "it would be float"),
                      two_by_two().with("communication.fp16", true)));
}

TEST(WorkersKeys, SparseGradientsAreGatheredOrMadeDense) {
  for (bool dense : {false, true}) {
    EXPECT_TRUE(parity(models::program_named("bag of words"),
                       models::batches_named("bag of words", 4),
                       within(1e-5, "the order of a sparse sum is its own"),
                       two_by_two().micro_batches(1).with("communication.sparse_as_dense", dense)));
  }
}

TEST(WorkersKeys, LocalGradientsAreClipped) {
  EXPECT_TRUE(parity(mlp, mlp_batch, kRounding, two_by_two().clip_norm(0.1)));
}

TEST(WorkersKeys, ReducedGradientsAreClipped) {
  EXPECT_TRUE(parity(mlp, mlp_batch, kRounding, two_by_two().clip_norm(0.1).clip_after()));
  EXPECT_TRUE(parity(mlp, mlp_batch, kRounding, two_by_two().clip_value(0.003).clip_after()));
}

TEST(WorkersKeys, ThePlainProgramAgreesStepByStep) {
  EXPECT_TRUE(parity(models::program_named("gpt"), models::batches_named("gpt", 8),
                     within(1e-4, "sums over devices in another order"),
                     two_by_two().with("debug.verify_steps", 3)));
}

// The gradient of `whole` is read again for that of `row`. It set out as soon as it was made, and
// the reduction writes in place: half of the steps were wrong.
TEST(Workers, ReduceAGradientThatAnotherOneIsMadeOf) {
  struct Sum : torch::nn::Module {
    torch::Tensor whole = register_parameter("whole", torch::randn({5, 4}));
    torch::Tensor row = register_parameter("row", torch::randn({4}));
  };
  const auto make = [] {
    auto net = std::make_shared<Sum>();
    return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
      const auto sum = torch::addcmul(net->whole, net->row, net->row, 0.5);
      return (batch[0].unsqueeze(1) * torch::log_sigmoid(sum)).mean();
    });
  };
  EXPECT_TRUE(parity(
      make,
      [](int) {
        return Batch{torch::randn({4, 4})};
      },
      kRounding, Variant().steps(60).workers({1, 1})));
}

// --- a replica over several devices
// ----------------------------------------------------------------

TEST(Workers, ShareAMicroBatch) {
  EXPECT_TRUE(parity(mlp, mlp_batch, kRounding, two_by_two().slices(2)));
  EXPECT_TRUE(parity(mlp, mlp_batch, kRounding, two_by_two().slices(4).micro_batches(1)));
}

TEST(Workers, GiveTheSameBitsInEveryRun) {
  const Variant variant = two_by_two();
  const std::vector<Trace> first = train_on_workers(mlp, mlp_batch, variant);
  for (int run = 0; run < 9; ++run) {
    EXPECT_TRUE(
        compare(first[0], train_on_workers(mlp, mlp_batch, variant)[1], bit_equal(), variant));
  }
}

}  // namespace
}  // namespace epl::parity

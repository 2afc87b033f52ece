// Split: operators and parameters cut over devices give what the plain loop gives.
#include "tests/models/programs.h"
#include "tests/parity/split_models.h"

namespace epl::parity {
namespace {

class Splits : public testing::TestWithParam<std::string> {
 protected:
  const SplitModel& model() const { return split_models().at(GetParam()); }
  static Variant cut_rows(Variant variant) {
    return GetParam() == "odd loss" ? variant.differs_by_rows("a weighted mean and a sum in one")
                                    : variant;
  }
};

TEST_P(Splits, TrainOverTwoDevices) { EXPECT_TRUE(trains_split(model(), 2, split_over(2))); }
TEST_P(Splits, TrainOverThreeDevices) { EXPECT_TRUE(trains_split(model(), 3, split_over(3))); }
TEST_P(Splits, TrainOverFourDevices) { EXPECT_TRUE(trains_split(model(), 4, split_over(4))); }
TEST_P(Splits, TrainOverEightDevices) { EXPECT_TRUE(trains_split(model(), 8, split_over(8))); }
TEST_P(Splits, TrainWithMicroBatches) {
  EXPECT_TRUE(trains_split(model(), 2, cut_rows(split_over(2, 3))));
}
TEST_P(Splits, TrainInReplicas) {
  EXPECT_TRUE(trains_split(model(), 2, cut_rows(split_over(2, 1, 2))));
}

INSTANTIATE_TEST_SUITE_P(All, Splits, testing::ValuesIn(split_model_names()), models::test_name);

// What is read back differs from the recorded number by rounding, and with it what is made of it.
TEST(SplitGuards, AllowForRounding) {
  for (const bool colocated : {false, true}) {
    const MakeProgram make = [=] {
      auto body = torch::nn::Linear(12, 9), head = torch::nn::Linear(9, 40);
      torch::nn::Sequential net(body, head);
      return program(net.ptr(), sgd(*net, 0.1, 0.9), [=](const Batch& batch) mutable {
        torch::Tensor x = batch[0];
        if (colocated) {
          const With scope(replicate(2, "body"));
          x = torch::tanh(body(x));
        }
        const With scope(split(2, "head"));
        if (!colocated) x = torch::tanh(body(x));
        const torch::Tensor logits = head(x);
        return cross_entropy(logits, batch[1]) * (1 + logits.square().mean().item<float>());
      });
    };
    const MakeBatch batch = [](int) -> Batch {
      return {torch::randn({48, 12}), classes(40, {48})};
    };
    Variant variant = split_over(2);
    if (colocated) variant.with("cluster.colocate_split_and_replicate", true);
    EXPECT_TRUE(
        parity(make, batch, within(1e-3, "a number read back has the recorded rounding"), variant));
  }
}

}  // namespace
}  // namespace epl::parity

// The oracle itself: it agrees with itself and it can say no.
#include "tests/parity/parity.h"

#include <gmock/gmock.h>

#include "tests/models/mlp.h"

namespace epl::parity {
namespace {

// Trains a small net with Adam; before step `broken` one parameter is changed a little.
MakeProgram mlp(int broken, double by) {
  return [=] {
    auto net = std::make_shared<models::Mlp>(8, 16, 3, 4);
    auto optimizer = std::make_shared<torch::optim::Adam>(net->parameters(), 1e-3);
    Program result = program(net, optimizer, classification(net));
    result.before_step = [=](int step) {
      if (step != broken) return;
      torch::NoGradGuard no_grad;
      net->layers[2]->as<torch::nn::Linear>()->weight[3][5] += by;
    };
    return result;
  };
}

Batch batch(int) { return {torch::randn({8, 8}), classes(4, {8})}; }

TEST(Parity, TwoPlainRunsAreBitEqual) {
  EXPECT_TRUE(compare(train_plain(mlp(-1, 0), batch), train_plain(mlp(-1, 0), batch), bit_equal()));
}

TEST(Parity, NamesTheStepTheParameterAndBothValues) {
  auto result =
      compare(train_plain(mlp(-1, 0), batch), train_plain(mlp(2, 0.5), batch), bit_equal());
  EXPECT_FALSE(result);
  EXPECT_THAT(result.message(), testing::HasSubstr("after step 2: "));
  auto near = compare(train_plain(mlp(-1, 0), batch), train_plain(mlp(2, 0.5), batch),
                      within(0.4, "only the changed weight is so far off"));
  EXPECT_FALSE(near);
  EXPECT_THAT(near.message(),
              testing::ContainsRegex("worst is layers.2.weight at \\[3, 5\\]: plain "
                                     "-?0\\.[0-9]+, EPL -?0\\.[0-9]+"));
}

TEST(Parity, SeesADifferenceOfOneBit) {
  EXPECT_FALSE(
      compare(train_plain(mlp(-1, 0), batch), train_plain(mlp(4, 1e-7), batch), bit_equal()));
}

TEST(Parity, SeesAnOptimizerStateThatDiffers) {
  auto with_beta = [](double beta) -> MakeProgram {
    return [=] {
      auto net = std::make_shared<models::Mlp>(8, 16, 3, 4);
      // A learning rate of zero leaves the parameters alone.
      auto optimizer = std::make_shared<torch::optim::Adam>(
          net->parameters(), torch::optim::AdamOptions(0).betas({0.9, beta}));
      return program(net, optimizer, classification(net));
    };
  };
  auto result = compare(train_plain(with_beta(0.99), batch), train_plain(with_beta(0.999), batch),
                        bit_equal());
  EXPECT_FALSE(result);
  EXPECT_THAT(result.message(), testing::HasSubstr("optimizer 0, exp_avg_sq of layers."));
}

TEST(Parity, HoldsForAnMlp) { EXPECT_TRUE(parity(mlp(-1, 0), batch, within(1e-6, "fused Adam"))); }

}  // namespace
}  // namespace epl::parity

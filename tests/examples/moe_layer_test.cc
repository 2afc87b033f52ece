// Who goes to which expert, and what comes back, in examples/moe.
#include "examples/moe/moe_layer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/examples/example_files.h"

namespace {

using moe::Gating;
using moe::Routing;

double worst(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

class BothGatings : public testing::TestWithParam<Gating> {};
INSTANTIATE_TEST_SUITE_P(Routing, BothGatings, testing::Values(Gating::kTop2, Gating::kSwitch),
                         [](const auto& info) {
                           return info.param == Gating::kTop2 ? "Top2" : "Switch";
                         });

TEST_P(BothGatings, GivesAPlaceToOneTokenAtMost) {
  torch::manual_seed(0);
  const int64_t capacity = 3;
  const Routing routing =
      moe::route(torch::randn({5, 20, 4}), torch::ones({5, 20}), GetParam(), capacity);
  EXPECT_EQ(routing.dispatch.sizes(), torch::IntArrayRef({5, 20, 4, capacity}));
  EXPECT_LE(routing.dispatch.sum(1).max().item<double>(), 1);
  EXPECT_GE(routing.dispatch.min().item<double>(), 0);
  // 20 or more choices for 4 * 3 places: all experts that are chosen often are full.
  EXPECT_EQ(routing.dispatch.sum({1, 3}).max().item<double>(), 3);
}

TEST_P(BothGatings, KeepsTheFirstTokensWhereTooManyChooseAnExpert) {
  const torch::Tensor scores = torch::tensor({3.0F, 2.0F, 0.0F}).expand({1, 6, 3});
  const Routing routing = moe::route(scores, torch::ones({1, 6}), GetParam(), /*capacity=*/2);
  const torch::Tensor kept = routing.combine.sum({2, 3})[0];
  EXPECT_GT(kept.narrow(0, 0, 2).min().item<double>(), 0);
  EXPECT_EQ(kept.narrow(0, 2, 4).max().item<double>(), 0);
  EXPECT_EQ(routing.dispatch[0][1][0][1].item<double>(), 1);  // the second place of expert 0
}

TEST_P(BothGatings, SendsPaddingNowhereAndDoesNotCountIt) {
  torch::manual_seed(0);
  const torch::Tensor scores = torch::randn({2, 6, 4});
  torch::Tensor mask = torch::ones({2, 6});
  mask.narrow(1, 4, 2).zero_();
  const Routing routing = moe::route(scores, mask, GetParam(), 4);
  EXPECT_EQ(routing.dispatch.narrow(1, 4, 2).sum().item<double>(), 0);
  const Routing without = moe::route(scores.narrow(1, 0, 4), mask.narrow(1, 0, 4), GetParam(), 4);
  EXPECT_TRUE(torch::equal(routing.combine.narrow(1, 0, 4), without.combine));
  EXPECT_NEAR(routing.balance.item<double>(), without.balance.item<double>(), 1e-6);
}

TEST_P(BothGatings, HasNoTokensInAGroupOfPadding) {
  const Routing routing = moe::route(torch::randn({1, 3, 2}), torch::zeros({1, 3}), GetParam(), 2);
  EXPECT_EQ(routing.combine.abs().sum().item<double>(), 0);
  EXPECT_EQ(routing.balance.item<double>(), 0);
}

TEST_P(BothGatings, HasABalanceOfOneWhereAllExpertsAreUsedAlike) {
  const torch::Tensor scores = 5 * torch::eye(4).repeat({2, 3, 1}).view({2, 12, 4});
  const Routing routing = moe::route(scores, torch::ones({2, 12}), GetParam(), 12);
  EXPECT_NEAR(routing.balance.item<double>(), 1, 1e-5);
}

TEST_P(BothGatings, HasABalanceByItsFormulaAndTheMeanOverGroups) {
  torch::manual_seed(1);
  const torch::Tensor scores = torch::randn({3, 7, 4});
  const Routing routing = moe::route(scores, torch::ones({3, 7}), GetParam(), 7);
  const torch::Tensor gates = scores.softmax(-1);
  const torch::Tensor best = gates.argmax(-1);
  double expected = 0;
  for (int64_t group = 0; group < 3; ++group) {
    for (int64_t expert = 0; expert < 4; ++expert) {
      const double load = best[group].eq(expert).sum().item<double>() / 7;
      expected += 4 * load * gates[group].select(1, expert).mean().item<double>() / 3;
    }
  }
  EXPECT_NEAR(routing.balance.item<double>(), expected, 1e-5);
  const Routing crowded = moe::route(torch::tensor({20.0F, 0.0F, 0.0F, 0.0F}).expand({1, 7, 4}),
                                     torch::ones({1, 7}), GetParam(), 7);
  EXPECT_NEAR(crowded.balance.item<double>(), 4, 1e-4);  // all tokens at one of four experts
}

TEST(Top2Gating, WeighsBothExpertsToASumOfOne) {
  torch::manual_seed(0);
  const torch::Tensor scores = torch::randn({2, 9, 5});
  const Routing routing = moe::route(scores, torch::ones({2, 9}), Gating::kTop2, /*capacity=*/9);
  EXPECT_LT(worst(routing.combine.sum({2, 3}), torch::ones({2, 9})), 1e-6);
  // By expert: the two largest gates, over their sum.
  const auto [largest, which] = scores.softmax(-1).topk(2, -1);
  const torch::Tensor weights = largest / largest.sum(-1, true);
  EXPECT_LT(worst(routing.combine.sum(3).gather(-1, which), weights), 1e-6);
  EXPECT_EQ(routing.dispatch.sum().item<double>(), 2 * 18);
}

TEST(Top2Gating, GivesPlacesToFirstChoicesBeforeSecondOnes) {
  // Token 0 wants expert 1 as its second, token 1 as its first.
  const torch::Tensor scores = torch::tensor({{{3.0F, 2.0F, 0.0F}, {0.0F, 3.0F, 2.0F}}});
  const Routing routing = moe::route(scores, torch::ones({1, 2}), Gating::kTop2, /*capacity=*/1);
  const torch::Tensor by_expert = routing.dispatch.sum(3)[0];
  EXPECT_TRUE(torch::equal(by_expert, torch::tensor({{1.0F, 0.0F, 0.0F}, {0.0F, 1.0F, 1.0F}})));
}

TEST(SwitchGating, WeighsTheBestExpertByItsProbability) {
  torch::manual_seed(0);
  const torch::Tensor scores = torch::randn({2, 9, 5});
  const Routing routing = moe::route(scores, torch::ones({2, 9}), Gating::kSwitch, /*capacity=*/9);
  EXPECT_LT(worst(routing.combine.sum({2, 3}), std::get<0>(scores.softmax(-1).max(-1))), 1e-6);
  EXPECT_EQ(routing.dispatch.sum().item<double>(), 18);
}

TEST(Capacity, FollowsFromTheFactorAndTheChoices) {
  moe::ExpertOptions options;
  options.experts = 8;
  options.capacity_factor = 1.25;
  EXPECT_EQ(moe::capacity_of(64, options, /*training=*/true), 20);
  EXPECT_EQ(moe::capacity_of(64, options, /*training=*/false), 32);
  options.gating = Gating::kSwitch;
  EXPECT_EQ(moe::capacity_of(64, options, true), 10);
  EXPECT_EQ(moe::capacity_of(8, options, true), 4);  // the least
  EXPECT_EQ(moe::capacity_of(3, options, true), 3);  // no more than there are tokens
}

moe::ExpertOptions small(Gating gating) {
  moe::ExpertOptions options;
  options.width = 6;
  options.inner = 10;
  options.experts = 4;
  options.gating = gating;
  options.capacity_factor = 4;  // room for all
  return options;
}

TEST_P(BothGatings, LayerIsTheWeightedAnswerOfEachTokensExperts) {
  torch::manual_seed(0);
  moe::MoeLayer layer(small(GetParam()));
  const torch::Tensor x = torch::randn({2, 5, 6});
  const torch::Tensor gates = torch::softmax(layer->gate->forward(x), -1);
  torch::Tensor expected = torch::zeros_like(x);
  for (int64_t group = 0; group < 2; ++group) {
    for (int64_t token = 0; token < 5; ++token) {
      const auto [weights, experts] = gates[group][token].topk(GetParam() == Gating::kTop2 ? 2 : 1);
      const torch::Tensor total = GetParam() == Gating::kTop2 ? weights.sum() : torch::ones({});
      for (int64_t i = 0; i < weights.size(0); ++i) {
        const int64_t expert = experts[i].item<int64_t>();
        const torch::Tensor inside = torch::relu(x[group][token].matmul(layer->up[expert]));
        expected[group][token] += inside.matmul(layer->down[expert]) * weights[i] / total;
      }
    }
  }
  EXPECT_LT(worst(layer->forward(x, torch::ones({2, 5})).first, expected), 1e-5);
}

TEST_P(BothGatings, LayerTreatsTheRowsOfABatchEachByItself) {
  torch::manual_seed(0);
  moe::ExpertOptions options = small(GetParam());
  options.capacity_factor = 0.5;
  options.least_capacity = 1;
  moe::MoeLayer layer(options);
  const torch::Tensor x = torch::randn({4, 8, 6});
  torch::Tensor mask = torch::ones({4, 8});
  mask[2].narrow(0, 3, 5).zero_();
  const auto [whole, balance] = layer->forward(x, mask);
  const auto [above, above_balance] = layer->forward(x.narrow(0, 0, 2), mask.narrow(0, 0, 2));
  const auto [below, below_balance] = layer->forward(x.narrow(0, 2, 2), mask.narrow(0, 2, 2));
  EXPECT_LT(worst(whole, torch::cat({above, below})), 1e-6);
  EXPECT_NEAR(balance.item<double>(), (above_balance + below_balance).item<double>() / 2, 1e-6);
}

TEST_P(BothGatings, LayerTeachesTheGateAndEveryExpert) {
  torch::manual_seed(0);
  moe::MoeLayer layer(small(GetParam()));
  const auto [y, balance] = layer->forward(torch::randn({8, 8, 6}), torch::ones({8, 8}));
  (y.square().mean() + 0.01 * balance).backward();
  for (const auto& parameter : layer->named_parameters()) {
    EXPECT_GT(parameter.value().grad().abs().flatten(1).amax(1).min().item<double>(), 0)
        << parameter.key();
  }
}

TEST(MoeLayer, IsTheSameWithAScopeAndWithout) {
  moe::ExpertOptions options = small(Gating::kTop2);
  torch::manual_seed(0);
  const moe::MoeLayer plain(options);
  options.split = 2;
  torch::manual_seed(0);
  const moe::MoeLayer cut(options);
  EXPECT_TRUE(torch::equal(plain->up, cut->up));
  EXPECT_TRUE(torch::equal(plain->down, cut->down));
  EXPECT_EQ(plain->up.sizes(), torch::IntArrayRef({4, 6, 10}));
}

TEST(MoeLayer, NeedsTwoExpertsForTwoChoices) {
  moe::ExpertOptions options = small(Gating::kTop2);
  options.experts = 1;
  EXPECT_EQ(error_of([&] { moe::MoeLayer layer(options); }),
            "a token cannot choose two of 1 experts");
}

}  // namespace

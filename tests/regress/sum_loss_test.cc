// A loss that is a sum over the rows of its batch, as a VAE's, came out halved on two devices or in
// two micro batches, with gradients halved as well, and nobody said so; with the reduce method
// "sum" the gradients were right and the loss that was returned stayed halved.
#include <epl/epl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/parity/heard.h"
#include "tests/parity/on_devices.h"

namespace epl {
namespace {

using testing::HasSubstr;
using torch::Tensor;

struct Result {
  double loss = 0;
  Tensor weight;
  std::string said;
};

Result train(const Config& config, const std::function<Tensor(const Tensor&)>& loss) {
  init(config);
  const parity::Heard heard;
  Tensor weight = torch::ones({3}).requires_grad_();
  torch::optim::SGD optimizer({weight}, 0.5);
  Trainer trainer({}, {optimizer}, [&](const Batch& batch) { return loss(batch[0] * weight); });
  Result result;
  for (int i = 0; i < 2; ++i) {
    result.loss = trainer.step({torch::arange(12, torch::kFloat).view({4, 3}) / 12}).loss;
  }
  result.weight = weight.detach();
  result.said = heard.str();
  return result;
}

Tensor squares(const Tensor& y) { return y.pow(2).sum(); }
Tensor mean_of_squares(const Tensor& y) { return y.pow(2).mean(); }

TEST(SumLoss, IsSaidToBeAveragedWithBothWaysOut) {
  const Config two{{"pipeline.num_micro_batch", 2}};
  const std::string said = train(two, squares).said;
  EXPECT_THAT(said, HasSubstr("the loss of the step is a sum over the rows of its batch"));
  EXPECT_THAT(said, HasSubstr("Divide the loss by the number of rows"));
  EXPECT_THAT(said, HasSubstr("communication.gradients_reduce_method = \"sum\""));
  EXPECT_EQ(said.find("is a sum"), said.rfind("is a sum"));
  EXPECT_EQ(train(two, mean_of_squares).said, "");
  EXPECT_EQ(train({}, squares).said, "");
  init();
}

// A part has two rows of three elements. The size of the whole batch, which is a multiple of
// theirs, was taken for their number: loss and gradients came out halved without a word.
TEST(SumLoss, DividedByTheSizeOfTheWholeBatchIsNotTakenForAMean) {
  const Config two{{"pipeline.num_micro_batch", 2}};
  const auto said = [&](const std::function<Tensor(const Tensor&)>& loss) {
    return train(two, loss).said;
  };
  const auto unclear = HasSubstr("may be made of their number (2)");
  EXPECT_THAT(said([](const Tensor& y) { return squares(y) / 4.0; }), unclear);
  EXPECT_THAT(said([](const Tensor& y) { return squares(y) * 0.25; }), unclear);
  EXPECT_THAT(said([](const Tensor& y) { return squares(y) / 8.0; }), unclear);
  EXPECT_THAT(said([](const Tensor& y) { return squares(y.slice(1, 0, 2)) / 2.0; }), unclear)
      << "as many columns as rows";
  EXPECT_EQ(said([](const Tensor& y) { return squares(y) / y.size(0); }), "");
  EXPECT_EQ(said([](const Tensor& y) { return squares(y) / y.numel(); }), "");
  EXPECT_EQ(said([](const Tensor& y) { return mean_of_squares(y) * 100; }), "") << "a weight";
  EXPECT_EQ(said([](const Tensor& y) { return mean_of_squares(y) / 4.0; }), "")
      << "accumulated gradients";
  init();
}

// The noise of a dropout is made like the tensor that it falls on, whose rows lie between others.
TEST(SumLoss, BehindADropoutOverMergedDimensionsIsAMean) {
  const Config two{{"pipeline.num_micro_batch", 2}};
  EXPECT_EQ(train(two,
                  [](const Tensor& y) {
                    return mean_of_squares(torch::dropout(y.reshape({-1}), 0.5, /*train=*/true));
                  })
                .said,
            "");
  init();
}

TEST(SumLoss, IsTheSumOfAllRowsWhereGradientsAreSummed) {
  const Result plain = train({}, squares);
  for (int devices : {1, 2}) {
    const parity::OnDevices on(devices);
    const Result summed = train(
        Config{{"pipeline.num_micro_batch", 2}, {"communication.gradients_reduce_method", "sum"}},
        squares);
    EXPECT_NEAR(summed.loss, plain.loss, 1e-6) << devices;
    EXPECT_LT((summed.weight - plain.weight).abs().max().item<double>(), 1e-6) << devices;
    EXPECT_EQ(summed.said, "");
  }
  init();
}

TEST(SumLoss, IsToldApartFromOneThatIsNeither) {
  const Result neither = train(Config{{"pipeline.num_micro_batch", 2}},
                               [](const Tensor& y) { return y.pow(2).mean().sqrt(); });
  EXPECT_THAT(neither.said, HasSubstr("is not known to be a mean over the rows of its batch "
                                      "(aten::sqrt (of f32[]) is not linear"));
  init();
}

}  // namespace
}  // namespace epl

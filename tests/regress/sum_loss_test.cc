// A loss that is a sum over the rows of its batch, as a VAE's, came out halved on two devices or in
// two micro batches, with gradients halved as well, and nobody said so; with the reduce method
// "sum" the gradients were right and the loss that was returned stayed halved.
#include <epl/epl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/parity/on_devices.h"

namespace epl {
namespace {

using testing::HasSubstr;
using torch::Tensor;

// What is said while it stands.
class Heard {
 public:
  Heard() : before_(std::clog.rdbuf(text_.rdbuf())) {}
  ~Heard() { std::clog.rdbuf(before_); }
  std::string str() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::streambuf* before_;
};

struct Result {
  double loss = 0;
  Tensor weight;
  std::string said;
};

Result train(const Config& config, const std::function<Tensor(const Tensor&)>& loss) {
  init(config);
  const Heard heard;
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

Tensor sum(const Tensor& y) { return y.pow(2).sum(); }
Tensor mean(const Tensor& y) { return y.pow(2).mean(); }

TEST(SumLoss, IsSaidToBeAveragedWithBothWaysOut) {
  const Config two{{"pipeline.num_micro_batch", 2}};
  const std::string said = train(two, sum).said;
  EXPECT_THAT(said, HasSubstr("the loss of the step is a sum over the rows of its batch"));
  EXPECT_THAT(said, HasSubstr("Divide the loss by the number of rows"));
  EXPECT_THAT(said, HasSubstr("communication.gradients_reduce_method = \"sum\""));
  EXPECT_EQ(said.find("is a sum"), said.rfind("is a sum"));
  EXPECT_EQ(train(two, mean).said, "");
  EXPECT_EQ(train({}, sum).said, "");
  init();
}

TEST(SumLoss, IsTheSumOfAllRowsWhereGradientsAreSummed) {
  const Result plain = train({}, sum);
  for (int devices : {1, 2}) {
    const parity::OnDevices on(devices);
    const Result summed = train(
        Config{{"pipeline.num_micro_batch", 2}, {"communication.gradients_reduce_method", "sum"}},
        sum);
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

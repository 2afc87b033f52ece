#include "plain/plain_run.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "model/torch_model.h"
#include "plain/plain_update.h"

namespace epl {
namespace {

using torch::Tensor;

// weight * x, whose numbers are all exact; it counts its calls in a buffer.
struct Factor : torch::nn::Module {
  Factor() {
    weight = register_parameter("weight", torch::ones({2}));
    calls = register_buffer("calls", torch::zeros({1}));
  }

  Tensor weight, calls;
};

// Two devices, of which each has a micro batch of one row.
struct PlainRuns : testing::Test {
  PlainRunRequest request() const {
    PlainRunRequest request{batches, 0.5};
    request.devices = 2;
    return request;
  }

  std::shared_ptr<Factor> net = std::make_shared<Factor>();
  torch::optim::SGD sgd{net->parameters(), torch::optim::SGDOptions(1)};
  TorchModel model{{{"", net}}, {sgd}};
  DeviceTeam team{std::vector<CoreShare>(2)};
  LocalReplicas replicas{team, c10::Device(c10::kCPU), 0};
  StepFunction step = [net = net](const Batch& batch) {
    const torch::NoGradGuard no_grad;
    net->calls += 1;
    const c10::AutoGradMode grad_mode(true);
    return (net->weight * batch[0]).sum();
  };
  const DeviceBatches batches = {{{torch::tensor({1.0F, 2.0F})}}, {{torch::tensor({3.0F, 4.0F})}}};
};

TEST_F(PlainRuns, GiveTheSumOfTheGradientsOfAllDevices) {
  PlainRun plain(model, step, replicas);
  plain.run(request());
  ASSERT_EQ(plain.gradients().size(), 1u);
  EXPECT_TRUE(plain.gradients()[0].equal(torch::tensor({2.0F, 3.0F})));
  EXPECT_EQ(plain.runs()[0].losses, std::vector<double>{3});
  EXPECT_EQ(plain.runs()[1].losses, std::vector<double>{7});
}

TEST_F(PlainRuns, StartEachDeviceFromTheSameState) {
  PlainRun plain(model, step, replicas);
  plain.run(request());
  plain.merge_state(request());
  EXPECT_EQ(net->calls.item<float>(), 1);
}

TEST_F(PlainRuns, LeaveTheUsersGradientsAsTheyWere) {
  const Tensor users = torch::full({2}, 9.0F);
  net->weight.mutable_grad() = users;
  {
    PlainRun plain(model, step, replicas);
    plain.run(request());
    EXPECT_TRUE(plain.users_gradient(0).is_same(users));
    EXPECT_FALSE(net->weight.grad().defined());
  }
  EXPECT_TRUE(net->weight.grad().is_same(users));
  EXPECT_TRUE(users.equal(torch::full({2}, 9.0F)));
}

TEST_F(PlainRuns, SetStateBackWhereTheStepThrows) {
  const StepFunction throws = [this](const Batch& batch) -> StepOutput {
    const StepOutput output = step(batch);
    if (batch[0][0].item<float>() == 3) throw std::runtime_error("the second device");
    return output;
  };
  PlainRun plain(model, throws, replicas);
  EXPECT_THROW(plain.run(request()), std::runtime_error);
  EXPECT_EQ(net->calls.item<float>(), 0);
}

TEST_F(PlainRuns, AreUpdatedOnceWithTheGradientsOfAllDevices) {
  PlainRun plain(model, step, replicas);
  plain.run(request());
  std::vector<std::string> asked;
  const HadGradient had = [&](const std::string& name, const Tensor&, bool has_one) {
    asked.push_back(name);
    EXPECT_TRUE(has_one);
    return false;
  };
  const torch::NoGradGuard no_grad;
  const auto all_here = [](const Tensor&) { return std::nullopt; };
  update_plainly(model, plain, {had, all_here}, team);
  EXPECT_EQ(asked, std::vector<std::string>{"weight"});
  EXPECT_TRUE(net->weight.equal(torch::tensor({-1.0F, -2.0F})));
}

TEST_F(PlainRuns, AreClippedInPlace) {
  PlainRun plain(model, step, replicas);
  plain.run(request());
  const torch::NoGradGuard no_grad;
  ClipOptions clip;
  clip.value = 2.5;
  clip_gradients(plain, clip);
  EXPECT_TRUE(plain.gradients()[0].equal(torch::tensor({2.0F, 2.5F})));
}

}  // namespace
}  // namespace epl

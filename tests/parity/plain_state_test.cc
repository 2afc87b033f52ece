// Steps that run by the user's own function, as the first one on several devices does.
//
// What such a step writes besides the model's state, a counter or a running mean that no module has
// registered, went on from device to device, and where a loss was no number the state of the last
// device stayed. Buffers that lie in one piece of memory came out wrong when devices replayed the
// step, parameters that do so ended in an error of LibTorch's. The loss of summed gradients was
// doubled or halved. A step that keeps a tensor was tried once more with other rows, and then
// nobody knew.
#include <epl/epl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/models/mlp.h"
#include "tests/parity/on_devices.h"
#include "tests/parity/parity.h"

namespace epl {
namespace {

using parity::OnDevices;
using parity::parity;
using parity::Program;
using parity::sgd;
using parity::Variant;
using testing::HasSubstr;
using torch::Tensor;

const parity::Exactness kRounding = parity::within(1e-5, "sums over devices in another order");

Batch rows(int) { return {torch::randn({8, 8})}; }

struct Net : torch::nn::Module {
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(8, 4));
  Tensor mean = torch::zeros({4}), count = torch::zeros({}, torch::kLong);
};

// By steps that are replayed or, with a number that C++ reads, run plainly.
parity::Trace train(const Variant& variant, bool registered, bool plainly) {
  const auto make = [=] {
    auto net = std::make_shared<Net>();
    if (registered) {
      net->register_buffer("mean", net->mean);
      net->register_buffer("count", net->count);
    }
    return parity::program(net, sgd(*net, 0.1), [net, plainly](const Batch& batch) {
      const Tensor y = net->layer(batch[0]);
      const double scale = plainly ? y.detach().abs().mean().item<double>() : 1;
      const torch::NoGradGuard no_grad;
      net->count.add_(1);
      net->mean.mul_(0.5).add_(y.detach().mean(0), 0.5);
      const torch::AutoGradMode grad(true);
      return StepOutput(((y - net->mean) / scale).square().mean() / net->count,
                        {{"mean", net->mean.clone()}, {"count", net->count.to(torch::kFloat)}});
    });
  };
  return variant.worker_devices().size() > 1 ? parity::train_on_workers(make, rows, variant)[1]
                                             : parity::train_on_devices(make, rows, variant);
}

Tensor find(const parity::Snapshot& snapshot, const std::string& name) {
  for (const auto& [key, tensor] : snapshot.tensors) {
    if (key.find(name) != std::string::npos) return tensor;
  }
  return {};
}

void expect_like_registered(const Variant& variant) {
  for (bool plainly : {false, true}) {
    const parity::Trace registered = train(variant, true, plainly);
    const parity::Trace closed_over = train(variant, false, plainly);
    for (size_t i = 0; i < registered.size(); ++i) {
      EXPECT_EQ(registered[i].losses, closed_over[i].losses) << "step " << i << ", " << plainly;
      const Tensor weight = find(registered[i], "layer.weight");
      ASSERT_TRUE(weight.defined());
      EXPECT_TRUE(weight.equal(find(closed_over[i], "layer.weight"))) << i << ", " << plainly;
    }
  }
}

TEST(StateOfNoModule, IsMergedOverDevicesAsABufferIs) {
  expect_like_registered(Variant().devices(2));
}

TEST(StateOfNoModule, IsMergedOverWorkersAsABufferIs) {
  expect_like_registered(Variant().workers({1, 1}));
}

TEST(StateInOneMemory, IsTrainedByPlainStepsOnDevices) {
  struct Pair : torch::nn::Module {
    torch::nn::Linear layer = register_module("layer", torch::nn::Linear(8, 4));
    Tensor all = torch::arange(8).to(torch::kFloat);
    Tensor a = register_buffer("a", all.narrow(0, 0, 4)),
           b = register_buffer("b", all.narrow(0, 4, 4));
  };
  const auto make = [] {
    auto net = std::make_shared<Pair>();
    return parity::program(net, sgd(*net, 0.01), [net](const Batch& batch) {
      const Tensor y = net->layer(batch[0]);
      const torch::NoGradGuard no_grad;
      net->a.mul_(0.5);
      net->b.mul_(0.9).add_(net->a);
      const torch::AutoGradMode grad(true);
      return (y - net->a).square().mean() + (y * net->b).mean();
    });
  };
  EXPECT_TRUE(parity(make, rows, kRounding, Variant().devices(2)));
  EXPECT_TRUE(parity(make, rows, parity::bit_equal()));
}

TEST(ParametersInOneMemory, AreClampedOnDevices) {
  const auto make = [] {
    auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
    Program result = parity::program(net, sgd(*net, 0.01, 0.9), [net](const Batch& batch) {
      {
        const torch::NoGradGuard no_grad;
        for (auto& parameter : net->parameters()) parameter.clamp_(-0.2, 0.2);
      }
      return net->forward(batch[0]).square().mean();
    });
    result.before_step = [net](int step) {
      if (step > 0) return;
      const torch::NoGradGuard no_grad;
      namespace utils = torch::nn::utils;
      utils::vector_to_parameters(utils::parameters_to_vector(net->parameters()) * 0.9,
                                  net->parameters());
    };
    return result;
  };
  EXPECT_TRUE(parity(make, rows, kRounding, Variant().devices(2)));
}

// Both ways to run a step leave the running mean of all devices.
TEST(SkippedStep, LeavesTheStateOfAllDevices) {
  std::vector<Tensor> means;
  for (bool plainly : {false, true}) {
    const OnDevices on(2);
    init(Config{{"debug.nan_loss", "skip"}});
    torch::manual_seed(1);
    torch::nn::BatchNorm1d norm(8);
    torch::nn::Linear layer(8, 4);
    torch::nn::Sequential net(norm, layer);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    int calls = 0;
    Trainer trainer(net, optimizer, [&](const Batch& batch) {
      const double weight = plainly ? 1 + 1e-9 * ++calls : 1;
      return net->forward(batch[0]).square().mean() * weight * batch[1].mean();
    });
    for (int i = 0; i < 4; ++i) {
      const Tensor x = torch::randn({8, 8});
      Tensor scale = torch::ones({8});
      if (i == 3) scale[7] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_EQ(trainer.step({x, scale}).skipped, i == 3);
    }
    means.push_back(norm->running_mean.clone());
  }
  EXPECT_LT((means[0] - means[1]).abs().max().item<double>(), 1e-5);
  init();
}

// --- the loss of summed gradients
// -----------------------------------------------------------------

double last_loss(int devices, int64_t rows, bool counts) {
  const OnDevices on(devices);
  init(Config{{"communication.gradients_reduce_method", "sum"}});
  Tensor weight = torch::ones({3}).requires_grad_();
  torch::optim::SGD optimizer({weight}, 0.01);
  int calls = 0;
  Trainer trainer({}, {optimizer}, [&](const Batch& batch) {
    return (batch[0] * weight).square().sum() * (counts ? 1 + 1e-9 * ++calls : 1.0);
  });
  for (int i = 0; i < 3; ++i) trainer.step({torch::ones({4, 3})});
  const double loss = trainer.step({torch::ones({rows, 3})}).loss;
  init();
  return loss;
}

TEST(SumLoss, OfABatchThatCannotBeCutIsThatOfItsRows) {
  EXPECT_NEAR(last_loss(2, 3, false), last_loss(1, 3, false), 1e-4);
}

TEST(SumLoss, OfPlainStepsIsTheSumOfAllRows) {
  EXPECT_NEAR(last_loss(2, 4, true), last_loss(1, 4, true), 1e-4);
}

// --- what the first recording says
// ----------------------------------------------------------------

TEST(FirstRecording, ThatIsRefusedIsNotTriedWithOtherRows) {
  const OnDevices on(2);
  init();
  Tensor weight = torch::ones({3}).requires_grad_(), kept;
  torch::optim::SGD optimizer({weight}, 0.1);
  int calls = 0;
  Trainer trainer({}, {optimizer}, [&](const Batch& batch) {
    const Tensor y = batch[0] * weight;
    if (++calls == 1) kept = y * 2;
    return y.square().mean();
  });
  try {
    trainer.step({torch::ones({8, 3})});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("keep"));
  }
  EXPECT_EQ(calls, 1);
}

TEST(FirstRecording, ThatSharesAskedForIsOfAnotherBatch) {
  const OnDevices on(2);
  init();
  torch::manual_seed(1);
  torch::nn::Linear first(8, 8), second(8, 4);
  torch::nn::Sequential net(first, second);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, [&](const Batch& batch) {
    Tensor x;
    {
      const With stage(replicate(1, "first"));
      x = first(batch[0]).relu();
    }
    const With stage(replicate(1, "second"));
    return second(x).square().mean();
  });
  trainer.shares({torch::randn({8, 8}) * 5});
  for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(trainer.step({torch::randn({8, 8})}));
}

}  // namespace
}  // namespace epl

// Found by a hostile reading of replicate(k) through the rule table, each as a result that was
// wrong without a word: a guard that let a number pass which had changed by less than 1e-4; the
// weight of a batch norm that is a sum over rows, taken for its statistics; those statistics added
// up as a metric, or the running ones read before devices have agreed on them; a copy of state that
// had been written since; the smallest of integers found by their opposites; means of pairs whose
// target is the larger one; sums of logarithms in integers; a batch norm with one row; the mean of
// a metric that all devices have, which overflows; a view of nothing. In a pipeline: a gradient
// that another task reads after the next micro batch was added to it. The reference is the
// undivided plain loop.
#include <epl/epl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/parity/on_devices.h"

namespace epl {
namespace {

using testing::HasSubstr;
using torch::Tensor;
namespace F = torch::nn::functional;

struct Net : torch::nn::Module {
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(6, 4));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(4));
  Tensor scale = register_parameter("scale", torch::rand({4}) + 0.5);
  Tensor seen = register_buffer("seen", torch::zeros({1}));
  Tensor memory = register_buffer("memory", torch::zeros({16, 4}));
};
using Step = std::function<StepOutput(Net& net, const Tensor& y, const Batch& batch)>;

Batch make_rows(int64_t count) {
  return {torch::randn({count, 6}), torch::randint(4, {count}, torch::kLong),
          torch::randint(200, {count, 6}, torch::kLong).to(torch::kByte)};
}

void copy_state(Net& from, Net& to) {
  const torch::NoGradGuard no_grad;
  auto parameters = to.named_parameters(), buffers = to.named_buffers();
  for (const auto& each : from.named_parameters()) parameters[each.key()].copy_(each.value());
  for (const auto& each : from.named_buffers()) buffers[each.key()].copy_(each.value());
}

double off_by(const Tensor& plain, const Tensor& own) {
  const Tensor x = plain.detach().to(torch::kDouble), y = own.detach().to(torch::kDouble);
  if (x.sizes() != y.sizes() || !x.isfinite().equal(y.isfinite())) return 1e9;
  return x.numel() == 0 ? 0
                        : ((x - y).abs() / x.abs().clamp_min(1)).nan_to_num(0).max().item<double>();
}

// Losses, metrics, parameters and buffers of three steps of replicate(k); throws what it throws.
void train_both(const Step& step, int devices, int64_t rows, const Setting& setting) {
  const parity::OnDevices on(devices);
  torch::manual_seed(3);
  init(Config{setting});
  auto plain = std::make_shared<Net>(), net = std::make_shared<Net>();
  copy_state(*plain, *net);
  torch::optim::SGD plain_optimizer(plain->parameters(), 0.1), optimizer(net->parameters(), 0.1);
  Trainer trainer({{"", net}}, {optimizer}, [&](const Batch& batch) {
    set_default_strategy(replicate(devices));
    return step(*net, net->layer(batch[0]), batch);
  });
  for (int i = 0; i < 3; ++i) {
    const Batch batch = make_rows(rows);
    plain_optimizer.zero_grad();
    const StepOutput expected = step(*plain, plain->layer(batch[0]), batch);
    expected.loss.backward();
    plain_optimizer.step();
    const StepResult result = trainer.step(batch);
    EXPECT_LT(off_by(expected.loss, torch::tensor(result.loss)), 3e-5) << "loss of step " << i;
    for (const auto& [name, value] : expected.metrics) {
      EXPECT_LT(off_by(value, result.metrics.at(name)), 3e-5) << name << " of step " << i;
    }
    auto parameters = net->named_parameters(), buffers = net->named_buffers();
    for (const auto& each : plain->named_parameters()) {
      EXPECT_LT(off_by(each.value(), parameters[each.key()]), 3e-5) << each.key();
    }
    for (const auto& each : plain->named_buffers()) {
      EXPECT_LT(off_by(each.value(), buffers[each.key()]), 3e-5) << each.key();
    }
  }
}

const Setting kAllRows{"replicate.batch_norm", "micro_batch"};

void expect_plain_loop(const Step& step) {
  for (int devices : {2, 4}) train_both(step, devices, 16, kAllRows);
}
void expect_refused(const Step& step, const std::string& why, int64_t rows = 16) {
  try {
    train_both(step, 2, rows, {"replicate.batch_norm", "slice"});
    ADD_FAILURE() << "is not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(why));
  }
}

Tensor squares(const Tensor& y) { return y.pow(2).mean(); }

TEST(ValuesOfSlices, ANumberThatIsReadBackMayChangeByLittle) {
  expect_plain_loop([](Net& net, const Tensor& y, const Batch&) {
    {
      const torch::NoGradGuard no_grad;
      net.seen.add_(1);
      if (net.seen.item<float>() < 30000) net.seen.fill_(30000);
    }
    const auto turn = static_cast<int64_t>(net.seen.item<float>());
    return turn % 2 == 0 ? squares(y) : (y - 3).abs().mean();
  });
}

TEST(ValuesOfSlices, AWeightOfABatchNormMayBeASumOverRows) {
  expect_plain_loop([](Net&, const Tensor& y, const Batch&) {
    auto options = F::BatchNormFuncOptions().training(true).weight(y.mean(0));
    return F::batch_norm(y, {}, {}, options.bias(y.pow(2).mean(0))).pow(3).mean();
  });
}

TEST(ValuesOfSlices, StateThatIsWrittenIsReadAnew) {
  expect_plain_loop([](Net& net, const Tensor& y, const Batch&) {
    const Tensor before = (y.sum(0) + net.norm->running_mean).sum();
    const Tensor normed = net.norm(y).pow(3).mean();
    const Tensor after = (y.sum(0) + net.norm->running_mean).mul(net.scale).sum();
    return StepOutput(before * 0.001 + normed + after * 0.01,
                      {{"before", before.detach()}, {"after", after.detach()}});
  });
}

// A view of state sees what is written, wherever its readers take their rows from.
TEST(ValuesOfSlices, ViewsOfStateSeeWhatIsWritten) {
  expect_plain_loop([](Net& net, const Tensor& y, const Batch&) {
    const Tensor rows = y.detach();
    const Tensor view = net.memory.slice(0, 0, rows.size(0));
    const Tensor before = (rows * view).sum();
    {
      const torch::NoGradGuard no_grad;
      net.memory.slice(0, 0, rows.size(0)).copy_(rows);
      net.memory.mul_(2);
    }
    return StepOutput(squares(y), {{"before", before}, {"after", (rows * view).sum()}});
  });
  expect_plain_loop([](Net& net, const Tensor& y, const Batch&) {
    const Tensor rows = y.detach();
    const Tensor view = net.memory.view({-1, 2, 2}).select(1, 0);
    {
      const torch::NoGradGuard no_grad;
      net.memory.add_(rows.mean());
    }
    return StepOutput(squares(y), {{"after", (rows.slice(1, 0, 2) * view).sum()}});
  });
}

TEST(ValuesOfSlices, TheSmallestOfIntegers) {
  expect_plain_loop([](Net&, const Tensor& y, const Batch& batch) {
    const Tensor lowest = batch[1].masked_fill(batch[1].eq(2), std::numeric_limits<int64_t>::min());
    return StepOutput(squares(y), {{"byte", batch[2].min()},
                                   {"columns", batch[2].amin(0)},
                                   {"places", std::get<1>(batch[2].min(0))},
                                   {"largest", batch[2].amax(0)},
                                   {"lowest", lowest.min()}});
  });
}

TEST(ValuesOfSlices, SumsOfLogarithmsOfIntegers) {
  expect_plain_loop([](Net&, const Tensor& y, const Batch& batch) {
    return StepOutput(squares(y), {{"sum", torch::logsumexp(batch[1], 0)}});
  });
}

TEST(ValuesOfSlices, PairsWhoseTargetIsTheLargerOne) {
  expect_plain_loop([](Net&, const Tensor& y, const Batch&) {
    const Tensor sums = y.sum(1, true);
    return StepOutput(torch::mse_loss(sums, y.detach()),
                      {{"columns", torch::huber_loss(sums.detach(), y.detach())},
                       {"rows", torch::smooth_l1_loss(sums.detach(), y.detach().sum(1))}});
  });
}

TEST(ValuesOfSlices, MetricsThatAllDevicesHave) {
  expect_plain_loop([](Net&, const Tensor& y, const Batch& batch) {
    const Tensor large = y.detach().abs().masked_fill(batch[1].ge(0).unsqueeze(1), 3e38);
    return StepOutput(squares(y), {{"nearest", large.amin()},
                                   {"half", (batch[2].to(torch::kHalf) * 200).amax(0)}});
  });
}

TEST(ValuesOfSlices, ViewsOfNothing) {
  expect_plain_loop([](Net&, const Tensor& y, const Batch&) {
    const Tensor none = y.slice(1, 0, 0);
    return squares(y) + torch::stack({none, none, none}).view({2, 0, 5}).sum();
  });
}

// Channels of a depthwise convolution that are rows, behind another dimension.
TEST(ValuesOfSlices, ChannelsInSeveralRuns) {
  expect_plain_loop([](Net&, const Tensor& y, const Batch& batch) {
    const int64_t rows = y.size(0);
    const Tensor images = batch[0].repeat({5, 1}).view({1, 5 * rows, 6});
    const Tensor kernels = y.repeat({5, 1}).slice(1, 0, 3).unsqueeze(1);
    return squares(F::conv1d(images, kernels, F::Conv1dFuncOptions().groups(5 * rows)));
  });
}

TEST(ValuesOfSlices, ABatchThatLiesTransposed) {
  expect_plain_loop([](Net& net, const Tensor& y, const Batch& batch) {
    const Tensor turned = batch[0].t().contiguous().t();
    return squares(net.layer(turned.flatten().view({-1, 6}))) + squares(y);
  });
}

TEST(ValuesOfSlices, StatisticsThatEachDeviceHasForItselfAreRefused) {
  const auto statistics = [](Net& net, const Tensor& y) {
    return torch::native_batch_norm(y, net.scale, {}, {}, {}, true, 0.1, 1e-5);
  };
  const std::string why = "the statistics of a batch norm, of which each of 2 devices has its own";
  expect_refused(
      [&](Net& net, const Tensor& y, const Batch&) {
        return StepOutput(squares(y) + std::get<0>(statistics(net, y)).pow(3).mean(),
                          {{"mean", std::get<1>(statistics(net, y)).detach()}});
      },
      why);
  expect_refused(
      [&](Net& net, const Tensor& y, const Batch&) {
        const Tensor normed = net.norm(y).pow(3).mean();
        return normed + (net.norm->running_mean.detach() * net.scale).sum();
      },
      why);
}

// In eval mode behind a call in training mode, of the same buffers.
TEST(ValuesOfSlices, RunningStatisticsThatWereJustWrittenAreRefusedInEvalMode) {
  expect_refused(
      [](Net& net, const Tensor& y, const Batch&) {
        const Tensor normed = net.norm(y).pow(3).mean();
        const auto options = F::BatchNormFuncOptions().training(false);
        return normed + F::batch_norm(y, net.norm->running_mean, net.norm->running_var, options)
                            .pow(2)
                            .mean();
      },
      "reads the statistics of a batch norm");
}

// The mean of what several devices draw is no draw.
TEST(ValuesOfSlices, StateThatIsDrawnIntoIsOneDraw) {
  for (const Strategy& strategy : {replicate(2), split(2)}) {
    const parity::OnDevices devices(2);
    torch::manual_seed(3);
    init();
    auto net = std::make_shared<Net>();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Trainer trainer({{"", net}}, {optimizer}, [&](const Batch& batch) {
      set_default_strategy(strategy);
      {
        const torch::NoGradGuard no_grad;
        net->memory.bernoulli_(0.5);
      }
      return squares(net->layer(batch[0]) * net->memory);
    });
    for (int i = 0; i < 3; ++i) {
      trainer.step(make_rows(16));
      const Tensor half = net->memory.eq(0) | net->memory.eq(1);
      EXPECT_TRUE(half.all().item<bool>()) << strategy.str() << " " << net->memory;
    }
  }
}

TEST(ValuesOfSlices, ABatchNormOfOneRowIsRefused) {
  expect_refused(
      [](Net& net, const Tensor& y, const Batch&) { return StepOutput(net.norm(y).pow(3).mean()); },
      "batch norm would have one value for each channel on each of 2 devices", 2);
}

TEST(ValuesOfSlices, PlacesInMemoryAroundAPartAreRefused) {
  expect_refused(
      [](Net&, const Tensor& y, const Batch&) {
        return squares(y) + y.slice(1, 1, 3).as_strided({y.size(0), 2}, {4, 1}, 1).mean();
      },
      "names places in memory around a part of a tensor");
}

}  // namespace
}  // namespace epl

// replicate(k) cuts a micro batch over k devices. That this is right was found out by comparing two
// recordings, on some rows and on the same rows k times, for which a step that flips, rolls,
// centres or picks among its rows gives the same loss: such steps were accepted and trained on
// something else, wrong by percents. Whether the loss is a mean or a sum was told from its value,
// so that dropout could make a mean look like a sum: gradients k times as large. Now the step is
// recorded once, with all rows, and cut by the rules of its operators: rows that look at each other
// are brought together. The reference is the undivided plain loop.
#include <epl/epl.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/parity/on_devices.h"

namespace epl {
namespace {

using torch::Tensor;
namespace F = torch::nn::functional;

struct Net : torch::nn::Module {
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(6, 4));
};
using Loss = std::function<Tensor(Net& net, const Tensor& y, const Batch& batch)>;

Batch rows(int64_t count) {
  return {torch::randn({count, 6}), torch::randint(4, {count}, torch::kLong)};
}

struct Layout {
  int slices = 2;
  int micro_batches = 1;
};

// How far replicate(k) is from the plain loop on all rows after three steps, in loss, parameters
// and metrics.
double off_by(const Loss& loss, const Batch& batch, const Layout& layout) {
  Net plain, net;
  {
    const torch::NoGradGuard no_grad;
    net.layer->weight.copy_(plain.layer->weight);
    net.layer->bias.copy_(plain.layer->bias);
  }
  torch::optim::SGD plain_optimizer(plain.parameters(), 0.1), optimizer(net.parameters(), 0.1);
  auto shared = std::shared_ptr<Net>(&net, [](Net*) {});
  Trainer trainer({{"", shared}}, {optimizer}, [&](const Batch& rows) {
    set_default_strategy(replicate(layout.slices));
    return loss(net, net.layer(rows[0]), rows);
  });
  double off = 0;
  for (int i = 0; i < 3; ++i) {
    const StepResult result = trainer.step(batch);
    plain_optimizer.zero_grad();
    double mean = 0;
    for (int part = 0; part < layout.micro_batches; ++part) {
      Batch rows;
      for (const Tensor& tensor : batch) rows.push_back(tensor.chunk(layout.micro_batches)[part]);
      const Tensor expected = loss(plain, plain.layer(rows[0]), rows) / layout.micro_batches;
      expected.backward();
      mean += expected.item<double>();
    }
    plain_optimizer.step();
    off = std::max(off, std::abs(result.loss - mean));
    off = std::max(off, (net.layer->weight - plain.layer->weight).abs().max().item<double>());
  }
  return off;
}

void expect_plain_loop(const Loss& loss) {
  for (const Layout& layout : {Layout{2, 1}, Layout{2, 2}, Layout{4, 1}}) {
    const parity::OnDevices devices(layout.slices);
    torch::manual_seed(3);
    init(Config{{"pipeline.num_micro_batch", layout.micro_batches}});
    EXPECT_LT(off_by(loss, rows(16), layout), 2e-5)
        << layout.slices << " devices, " << layout.micro_batches << " micro batches";
  }
}
void of(const std::function<Tensor(const Tensor& y)>& loss) {
  expect_plain_loop([&](Net&, const Tensor& y, const Batch&) { return loss(y); });
}

TEST(CutRows, RowsMayLookAtEachOther) {
  of([](const Tensor& y) { return (0.7 * y + 0.3 * y.flip(0)).pow(2).mean(); });
  of([](const Tensor& y) { return (y - y.roll(1, 0)).pow(2).mean(); });
  of([](const Tensor& y) { return (y - y.mean(0)).pow(4).mean(); });
  of([](const Tensor& y) { return (y.mean(0) - 1).pow(2).sum() + (y.var(0) - 1).pow(2).sum(); });
  of([](const Tensor& y) { return y.max(); });
  of([](const Tensor& y) { return y.amax(0).sum(); });
  of([](const Tensor& y) { return y.softmax(0).pow(2).mean(); });
  of([](const Tensor& y) { return y.cumsum(0).mean(); });
  of([](const Tensor& y) { return y[0].sum() + y.mean(); });
  of([](const Tensor& y) { return torch::mm(y, y.t()).softmax(1).pow(2).mean(); });
  of([](const Tensor& y) { return std::get<0>(y.sum(1).sort(0)).slice(0, 0, 5).sum(); });
  of([](const Tensor& y) { return torch::pdist(y).mean(); });
}

TEST(CutRows, HardExamplesAreThoseOfAllRows) {
  expect_plain_loop([](Net&, const Tensor& y, const Batch& b) {
    const auto each =
        F::cross_entropy(y, b[1], F::CrossEntropyFuncOptions().reduction(torch::kNone));
    return std::get<0>(each.topk(2)).mean();
  });
}

TEST(CutRows, LossesMayBeNeitherMeanNorSum) {
  of([](const Tensor& y) { return y.pow(2).mean().sqrt(); });
  of([](const Tensor& y) { return y.exp().sum().log(); });
  of([](const Tensor& y) { return y.mean() * y.mean(); });
  of([](const Tensor& y) { return y.mean().tanh(); });
  of([](const Tensor& y) { return torch::linalg_vector_norm(y); });
  of([](const Tensor& y) {
    const Tensor mask = y.gt(0).to(torch::kFloat);
    return (y * mask).sum() / mask.sum();
  });
  expect_plain_loop([](Net& net, const Tensor& y, const Batch&) {
    return y.pow(2).sum() * 0.1 + net.layer->weight.pow(2).sum();
  });
}

TEST(CutRows, WeightsOfClassesCountOverAllRows) {
  expect_plain_loop([](Net&, const Tensor& y, const Batch& b) {
    return F::cross_entropy(
        y, b[1], F::CrossEntropyFuncOptions().weight(torch::tensor({1.0f, 2.0f, 3.0f, 4.0f})));
  });
}

// 3 of the rows count on one device, 1 on the other.
TEST(CutRows, IgnoredRowsCountNowhere) {
  for (double smoothing : {0.0, 0.2}) {
    expect_plain_loop([&](Net&, const Tensor& y, const Batch& b) {
      const Tensor ignored =
          torch::arange(y.size(0)).remainder(8).ge(3) & torch::arange(y.size(0)).remainder(8).le(6);
      return F::cross_entropy(y, b[1].masked_fill(ignored, -100),
                              F::CrossEntropyFuncOptions().label_smoothing(smoothing));
    });
  }
}

TEST(CutRows, OrdinaryLosses) {
  expect_plain_loop(
      [](Net&, const Tensor& y, const Batch& b) { return F::cross_entropy(y, b[1]); });
  expect_plain_loop([](Net&, const Tensor& y, const Batch& b) {
    return 0.1 * F::cross_entropy(y, b[1], F::CrossEntropyFuncOptions().reduction(torch::kSum));
  });
  expect_plain_loop([](Net&, const Tensor& y, const Batch& b) {
    return F::cross_entropy(y, b[1], F::CrossEntropyFuncOptions().label_smoothing(0.2));
  });
  expect_plain_loop([](Net& net, const Tensor& y, const Batch& b) {
    return F::cross_entropy(y, b[1]) + 0.1 * net.layer->weight.pow(2).sum();
  });
  of([](const Tensor& y) { return y.pow(2).sum() / y.size(0); });
  expect_plain_loop([](Net&, const Tensor& y, const Batch& b) {
    return -y.log_softmax(1).index({torch::arange(y.size(0)), b[1]}).mean();
  });
  of([](const Tensor& y) {
    return y.view({-1, 2, 2}).transpose(0, 1).reshape({-1, 2}).softmax(1).pow(2).mean();
  });
  of([](const Tensor& y) {
    const auto halves = torch::cat({y, y.tanh()}).exp().chunk(2);
    return (halves[0] - halves[1]).pow(2).mean();
  });
  of([](const Tensor& y) { return F::mse_loss(y, torch::zeros_like(y)); });
  of([](const Tensor& y) {
    return torch::stack({y, y.exp()}, 1).flatten(1).unsqueeze(0).repeat({2, 1, 1}).mean();
  });
  of([](const Tensor& y) {
    Tensor x = y.clone();
    x.select(1, 0).mul_(2);
    x.slice(1, 2, 4).zero_();
    return x.pow(2).mean();
  });
}

// A step that reads a number of all rows back takes the branch that the plain loop takes.
TEST(CutRows, WhatIsReadBackIsOfAllRows) {
  const parity::OnDevices devices(2);
  torch::manual_seed(3);
  init();
  const auto loss = [](Net&, const Tensor& y, const Batch&) {
    return y.sum().item<double>() > 1e9 ? y.sum() : y.pow(2).mean();
  };
  EXPECT_LT(off_by(loss, rows(16), {2, 1}), 1e-5);
}

// One in five recordings took the mean for a sum.
TEST(CutRows, TakesAMeanForAMeanHoweverManyElementsDropoutDrops) {
  const parity::OnDevices devices(2);
  init();
  for (int seed = 0; seed < 30; ++seed) {
    torch::manual_seed(seed);
    Net net;
    auto shared = std::shared_ptr<Net>(&net, [](Net*) {});
    torch::optim::SGD optimizer(net.parameters(), 0.0);
    Trainer trainer({{"", shared}}, {optimizer}, [&](const Batch& batch) {
      set_default_strategy(replicate(2));
      const Tensor y = torch::dropout(net.layer(batch[0]) * 20, 0.5, true);
      return StepOutput(y.pow(2).mean(), {{"rows", y.detach().pow(2).mean(1)}});
    });
    const StepResult result = trainer.step(rows(4));
    const double mean = result.metrics.at("rows").mean().item<double>();
    EXPECT_NEAR(result.loss, mean, 1e-4 * mean) << "seed " << seed;
  }
}

}  // namespace
}  // namespace epl

// replicate(k) cuts a micro batch over k devices. That this is right was found out by comparing two
// recordings, on some rows and on the same rows k times, for which a step that flips, rolls,
// centres or picks among its rows gives the same loss: such steps were accepted and trained on
// something else, wrong by percents. Whether the loss is a mean or a sum was told from its value,
// so that dropout could make a mean look like a sum: gradients k times as large. Now both follow
// from the graph, and what cannot be proven is refused. The reference is the undivided plain loop.
#include <epl/epl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "config/libtorch.h"
#include "tests/parity/on_devices.h"

namespace epl {
namespace {

using testing::HasSubstr;
using torch::Tensor;
namespace F = torch::nn::functional;

struct Net : torch::nn::Module {
  torch::nn::Linear layer = register_module("layer", torch::nn::Linear(6, 4));
};
using Loss = std::function<Tensor(Net& net, const Tensor& y, const Batch& batch)>;

Batch rows(int64_t count) {
  return {torch::randn({count, 6}), torch::randint(4, {count}, torch::kLong)};
}

// How far replicate(2) is from the plain loop on all rows after three steps; throws what it throws.
double off_by(const Loss& loss, const Batch& batch) {
  Net plain, net;
  {
    const torch::NoGradGuard no_grad;
    net.layer->weight.copy_(plain.layer->weight);
    net.layer->bias.copy_(plain.layer->bias);
  }
  torch::optim::SGD plain_optimizer(plain.parameters(), 0.1), optimizer(net.parameters(), 0.1);
  auto shared = std::shared_ptr<Net>(&net, [](Net*) {});
  Trainer trainer({{"", shared}}, {optimizer}, [&](const Batch& rows) {
    set_default_strategy(replicate(2));
    return loss(net, net.layer(rows[0]), rows);
  });
  double off = 0;
  for (int i = 0; i < 3; ++i) {
    const StepResult result = trainer.step(batch);
    plain_optimizer.zero_grad();
    const Tensor expected = loss(plain, plain.layer(batch[0]), batch);
    expected.backward();
    plain_optimizer.step();
    off = std::max(off, std::abs(result.loss - expected.item<double>()));
    off = std::max(off, (net.layer->weight - plain.layer->weight).abs().max().item<double>());
  }
  return off;
}

class CutRows : public testing::Test {
 protected:
  CutRows() : devices_(2) {
    torch::manual_seed(3);
    init();
  }

  static std::string error(const Loss& loss, const Batch& batch = rows(8)) {
    try {
      const double off = off_by(loss, batch);
      return "off by " + std::to_string(off);
    } catch (const std::exception& thrown) {
      return thrown.what();
    }
  }
  static void refused(const std::string& op, const Loss& loss) {
    const std::string text = error(loss);
    EXPECT_THAT(text, HasSubstr("epl: the loss is neither a mean nor a sum over the rows"));
    EXPECT_THAT(text, HasSubstr(op));
    EXPECT_THAT(text, HasSubstr("epl::replicate(1)"));
  }
  static void accepted(const Loss& loss) { EXPECT_LT(off_by(loss, rows(8)), 1e-5); }

 private:
  parity::OnDevices devices_;
};

TEST_F(CutRows, RefusesRowsThatLookAtEachOther) {
  refused("aten::flip", [](Net&, const Tensor& y, const Batch&) {
    return (0.7 * y + 0.3 * y.flip(0)).pow(2).mean();
  });
  refused("aten::roll",
          [](Net&, const Tensor& y, const Batch&) { return (y - y.roll(1, 0)).pow(2).mean(); });
  refused("aten::sub.Tensor",
          [](Net&, const Tensor& y, const Batch&) { return (y - y.mean(0)).pow(4).mean(); });
  refused("aten::pow.Tensor_Scalar",
          [](Net&, const Tensor& y, const Batch&) { return (y.mean(0) - 1).pow(2).sum(); });
  refused("aten::topk", [](Net&, const Tensor& y, const Batch& b) {
    const auto each =
        F::cross_entropy(y, b[1], F::CrossEntropyFuncOptions().reduction(torch::kNone));
    return std::get<0>(each.topk(2)).mean();
  });
  refused("aten::max", [](Net&, const Tensor& y, const Batch&) { return y.max(); });
}

TEST_F(CutRows, RefusesLossesThatAreNeitherMeanNorSum) {
  refused("aten::sqrt", [](Net&, const Tensor& y, const Batch&) { return y.pow(2).mean().sqrt(); });
  refused("aten::add.Tensor", [](Net& net, const Tensor& y, const Batch&) {
    return y.pow(2).sum() + net.layer->weight.pow(2).sum();
  });
  refused("aten::nll_loss_forward", [](Net&, const Tensor& y, const Batch& b) {
    return F::cross_entropy(
        y, b[1], F::CrossEntropyFuncOptions().weight(torch::tensor({1.0f, 2.0f, 3.0f, 4.0f})));
  });
}

TEST_F(CutRows, GivesThePlainLoopsParametersForOrdinaryLosses) {
  accepted([](Net&, const Tensor& y, const Batch& b) { return F::cross_entropy(y, b[1]); });
  accepted([](Net&, const Tensor& y, const Batch& b) {
    return F::cross_entropy(y, b[1], F::CrossEntropyFuncOptions().reduction(torch::kSum));
  });
  accepted([](Net&, const Tensor& y, const Batch& b) {
    return F::cross_entropy(y, b[1], F::CrossEntropyFuncOptions().label_smoothing(0.2));
  });
  accepted([](Net& net, const Tensor& y, const Batch& b) {
    return F::cross_entropy(y, b[1]) + 0.1 * net.layer->weight.pow(2).sum();
  });
  accepted([](Net&, const Tensor& y, const Batch&) { return y.pow(2).sum() / y.size(0); });
  accepted([](Net&, const Tensor& y, const Batch& b) {
    return -y.log_softmax(1).index({torch::arange(y.size(0)), b[1]}).mean();
  });
  accepted([](Net&, const Tensor& y, const Batch&) {
    return y.view({-1, 2, 2}).transpose(0, 1).reshape({-1, 2}).softmax(1).pow(2).mean();
  });
  accepted([](Net&, const Tensor& y, const Batch&) {
    const auto halves = torch::cat({y, y.tanh()}).exp().chunk(2);
    return (halves[0] - halves[1]).pow(2).mean();
  });
}

// The divisor differs between the slices: 3 rows count on one device, 1 on the other.
TEST_F(CutRows, TellsThatIgnoredRowsCannotBeCut) {
  const auto loss = [](Net&, const Tensor& y, const Batch& b) { return F::cross_entropy(y, b[1]); };
  Batch batch = rows(8);
  for (int i : {3, 4, 5, 6}) batch[1][i] = -100;
  EXPECT_THAT(error(loss, batch), HasSubstr("ignores rows (target -100)"));
}

// With LibTorch 2 its divisor is a tensor, the number of targets that count. In 1.13 the shape of
// what it selects by a mask tells as much.
TEST_F(CutRows, TellsThatIgnoredRowsOfASmoothedLossCannotBeCut) {
  const auto loss = [](Net&, const Tensor& y, const Batch& b) {
    return F::cross_entropy(y, b[1], F::CrossEntropyFuncOptions().label_smoothing(0.2));
  };
  Batch batch = rows(8);
  for (int i : {3, 4, 5, 6}) batch[1][i] = -100;
  EXPECT_THAT(error(loss, batch),
              HasSubstr(EPL_TORCH_AT_LEAST(2, 0) ? "ignores rows (target -100)" : "masked_select"));
}

// One in five recordings took the mean for a sum.
TEST_F(CutRows, TakesAMeanForAMeanHoweverManyElementsDropoutDrops) {
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

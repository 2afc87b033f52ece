// Batches of odd shapes, types and layouts, and the metrics that come back.
#include "tests/models/mlp.h"
#include "tests/models/unusual.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

namespace F = torch::nn::functional;
using torch::Tensor;

Batch batch(int) { return {torch::randn({8, 8}), classes(4, {8})}; }

std::shared_ptr<models::Mlp> mlp() { return std::make_shared<models::Mlp>(8, 16, 3, 4); }

// --------------------------------------------------------------------------------------

MakeProgram classifier() {
  return [] {
    auto net = mlp();
    return program(net, sgd(*net, 0.1), classification(net));
  };
}

TEST(OddBatch, TheLastOneIsShort) {
  EXPECT_TRUE(parity(
      classifier(),
      [](int step) {
        const int64_t rows = step == 4 ? 3 : 8;
        return Batch{torch::randn({rows, 8}), classes(4, {rows})};
      },
      bit_equal()));
}

TEST(OddBatch, ShapesThatComeAndGo) {
  EXPECT_TRUE(parity(
      classifier(),
      [](int step) {
        const int64_t rows = step % 2 ? 5 : 8;
        return Batch{torch::randn({rows, 8}), classes(4, {rows})};
      },
      bit_equal(), Variant().steps(6)));
}

TEST(OddBatch, OfOneRow) {
  EXPECT_TRUE(parity(
      classifier(),
      [](int) {
        return Batch{torch::randn({1, 8}), classes(4, {1})};
      },
      bit_equal()));
}

TEST(OddBatch, WithAnInputOfNoRows) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::TwoHeads>(8, 16, 4);
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          auto logits = net->forward(batch[0]).first;
          auto values = net->forward(batch[2]).second;
          return cross_entropy(logits, batch[1]) + values.sum();
        });
      },
      [](int step) {
        const int64_t extra = step % 2 ? 3 : 0;
        return Batch{torch::randn({8, 8}), classes(4, {8}), torch::randn({extra, 8})};
      },
      bit_equal()));
}

TEST(OddBatch, OfNoRowsAtAll) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          return F::cross_entropy(net->forward(batch[0]), batch[1],
                                  F::CrossEntropyFuncOptions().reduction(torch::kSum));
        });
      },
      [](int step) {
        const int64_t rows = step == 1 ? 0 : 8;
        return Batch{torch::randn({rows, 8}), classes(4, {rows})};
      },
      bit_equal(), Variant().steps(3)));
}

TEST(OddBatch, NotContiguous) {
  EXPECT_TRUE(parity(
      classifier(),
      [](int) {
        return Batch{torch::randn({8, 8}).t(), classes(4, {16}).slice(0, 1, 16, 2)};
      },
      bit_equal()));
}

TEST(OddBatch, ContiguousOneTimeAndNotTheNext) {
  EXPECT_TRUE(parity(
      classifier(),
      [](int step) {
        auto x = torch::randn({8, 8});
        return Batch{step % 2 ? x.t() : x, classes(4, {8})};
      },
      bit_equal()));
}

TEST(OddBatch, ExpandedFromOneRow) {
  EXPECT_TRUE(parity(
      classifier(),
      [](int) {
        return Batch{torch::randn({1, 8}).expand({8, 8}), classes(4, {8})};
      },
      bit_equal()));
}

TEST(OddBatch, WhoseInputsShareMemory) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          return F::mse_loss(net->forward(batch[0]), batch[1]) +
                 F::mse_loss(net->forward(batch[0]), batch[2]);
        });
      },
      [](int step) {
        auto all = torch::randn({8, 12});
        // One time the same tensor stands in two places, the next time two do.
        auto target = all.slice(1, 8, 12);
        return Batch{all.slice(1, 0, 8), target, step % 2 ? torch::randn({8, 4}) : target};
      },
      bit_equal()));
}

TEST(OddBatch, OfIntegersAndTruthValues) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          auto x = batch[0].to(torch::kFloat) / 255;
          x = x.masked_fill(batch[1], 0) + batch[2].to(torch::kFloat).unsqueeze(1);
          return cross_entropy(net->forward(x), batch[3].to(torch::kLong));
        });
      },
      [](int) {
        return Batch{torch::randint(256, {8, 8}, torch::kByte), torch::rand({8, 8}) < 0.3,
                     torch::randint(-2, 2, {8}, torch::kShort),
                     torch::randint(4, {8}, torch::kInt)};
      },
      bit_equal()));
}

TEST(OddBatch, OfDoubles) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          return cross_entropy(net->forward(batch[0].to(torch::kFloat)), batch[1]);
        });
      },
      [](int) {
        return Batch{torch::randn({8, 8}, torch::kDouble), classes(4, {8})};
      },
      bit_equal()));
}

TEST(OddBatch, WithAnInputThatTheStepDoesNotRead) {
  EXPECT_TRUE(parity(
      classifier(),
      [](int) {
        return Batch{torch::randn({8, 8}), classes(4, {8}), torch::randn({8, 3})};
      },
      bit_equal()));
}

TEST(OddBatch, LabelsAsOneHotVectors) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          return F::mse_loss(net->forward(batch[0]), F::one_hot(batch[1], 4).to(torch::kFloat));
        });
      },
      batch, bit_equal()));
}

// --------------------------------------------------------------------------------------

TEST(Metrics, AreThoseOfThePlainLoop) {
  EXPECT_TRUE(parity(
      [] {
        auto net = mlp();
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          auto logits = net->forward(batch[0]);
          auto loss = cross_entropy(logits, batch[1]);
          auto hits = logits.argmax(1).eq(batch[1]);
          return StepOutput(loss,
                            {{"accuracy", hits.to(torch::kFloat).mean()},
                             {"logits", logits},
                             {"first", logits[0]},
                             {"loss", loss},
                             {"weight", net->layers[0]->as<torch::nn::Linear>()->weight.norm()},
                             {"input", batch[0]}});
        });
      },
      batch, bit_equal()));
}

TEST(Metrics, OfAStepStayAsTheyAreInTheNext) {
  torch::manual_seed(1);
  epl::init();
  auto net = mlp();
  auto optimizer = sgd(*net, 0.1);
  epl::Trainer trainer(net, *optimizer, [&](const Batch& batch) {
    auto logits = net->forward(batch[0]);
    return StepOutput(cross_entropy(logits, batch[1]), {{"logits", logits}});
  });
  StepResult first = trainer.step(batch(0));
  Tensor before = first.metrics.at("logits").clone();
  trainer.step(batch(1));
  EXPECT_TRUE(torch::equal(first.metrics.at("logits"), before));
  EXPECT_FALSE(first.metrics.at("logits").requires_grad());
}

}  // namespace
}  // namespace epl::parity

// Gradient accumulation: M micro batches, (loss / M).backward() each, one update.
#include "tests/models/mlp.h"
#include "tests/models/recurrent.h"
#include "tests/models/transformer.h"
#include "tests/models/unusual.h"
#include "tests/models/vision.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

MakeProgram mlp() {
  return [] {
    auto net = std::make_shared<models::Mlp>(8, 16, 3, 4);
    return program(net, sgd(*net, 0.1), classification(net));
  };
}

Batch rows(int64_t count) { return {torch::randn({count, 8}), classes(4, {count})}; }

// Gradients are added in the order of the micro batches, and a loss divided by a power of two loses
// no bit.
class MicroBatches : public testing::TestWithParam<int> {};

TEST_P(MicroBatches, OfAnMlp) {
  EXPECT_TRUE(parity(
      mlp(), [](int) { return rows(8); }, bit_equal(), Variant().micro_batches(GetParam())));
}

TEST_P(MicroBatches, FromASource) {
  EXPECT_TRUE(parity(
      mlp(), [](int) { return rows(8); }, bit_equal(),
      Variant().micro_batches(GetParam()).from_source()));
}

TEST_P(MicroBatches, WhoseGradientsAreSummed) {
  EXPECT_TRUE(parity(
      mlp(), [](int) { return rows(8); }, bit_equal(), Variant().micro_batches(GetParam()).sum()));
}

TEST_P(MicroBatches, WithALastShortBatch) {
  EXPECT_TRUE(parity(
      mlp(), [](int step) { return rows(step == 4 ? 4 : 16); }, bit_equal(),
      Variant().micro_batches(GetParam())));
}

TEST_P(MicroBatches, UpdatedInGroups) {
  EXPECT_TRUE(parity(
      mlp(), [](int) { return rows(8); }, bit_equal(),
      Variant().micro_batches(GetParam()).apply_groups(4)));
}

INSTANTIATE_TEST_SUITE_P(Count, MicroBatches, testing::Values(1, 2, 4));

TEST(MicroBatch, CountThatIsNoPowerOfTwo) {
  EXPECT_TRUE(parity(
      mlp(), [](int) { return rows(9); }, within(1e-6, "the third part of a loss is rounded"),
      Variant().micro_batches(3)));
}

TEST(MicroBatch, OfOneRow) {
  EXPECT_TRUE(parity(
      mlp(), [](int) { return rows(4); }, bit_equal(), Variant().micro_batches(4)));
}

TEST(MicroBatch, MovesBatchNormStatisticsOnceEach) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::ResNet18>(8, 10);
        return program(net, sgd(*net, 0.1), classification(net));
      },
      [](int) {
        return Batch{torch::randn({8, 3, 32, 32}), classes(10, {8})};
      },
      bit_equal(), Variant().micro_batches(4).steps(3)));
}

TEST(MicroBatch, MovesABufferOfTheUsersOwnOnceEach) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::RunningMean>(8, 16, 4);
        return program(net, sgd(*net, 0.1), classification(net));
      },
      [](int) { return rows(8); }, bit_equal(), Variant().micro_batches(4)));
}

TEST(MicroBatch, OfLeNet) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::LeNet>();
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          return torch::nll_loss(net->forward(batch[0]), batch[1]);
        });
      },
      [](int) {
        return Batch{torch::randn({8, 1, 28, 28}), classes(10, {8})};
      },
      bit_equal(), Variant().micro_batches(4)));
}

Batch text(int) { return {classes(20, {8, 6}), classes(20, {8, 6})}; }

TEST(MicroBatch, OfAnLstm) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::LstmLanguageModel>(20, 16, 2);
        return program(net, sgd(*net, 0.5), [net](const Batch& batch) {
          return models::token_loss(net->forward(batch[0]), batch[1]);
        });
      },
      text, bit_equal(), Variant().micro_batches(4)));
}

TEST(MicroBatch, OfAGptWithTiedEmbeddings) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Gpt>(models::TransformerSize{20, 16, 2, 4, 6},
                                                 models::Head::kTied);
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          return models::token_loss(net->forward(batch[0]), batch[1]);
        });
      },
      text, bit_equal(), Variant().micro_batches(4)));
}

TEST(MicroBatch, OfANetWithFrozenAndUnusedParameters) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::FineTuned>(8, 16, 4);
        return program(net, sgd(*net, 0.1), classification(net));
      },
      [](int) { return rows(8); }, bit_equal(), Variant().micro_batches(4)));
}

TEST(MicroBatch, OfInputsThatAreNotContiguous) {
  EXPECT_TRUE(parity(
      mlp(),
      [](int) {
        return Batch{torch::randn({8, 8}).t(), classes(4, {16}).slice(0, 0, 16, 2)};
      },
      bit_equal(), Variant().micro_batches(4)));
}

TEST(MicroBatch, MetricsAreTheMeanOverAll) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Mlp>(8, 16, 3, 4);
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          auto logits = net->forward(batch[0]);
          auto hits = logits.argmax(1).eq(batch[1]).to(torch::kFloat);
          return StepOutput(cross_entropy(logits, batch[1]),
                            {{"accuracy", hits.mean()}, {"logits", logits.mean(0)}});
        });
      },
      [](int) { return rows(8); },
      within(1e-6, "the mean over micro batches may be rounded in another order"),
      Variant().micro_batches(4)));
}

// --- collections
// ----------------------------------------------------------------------------------

// What the parts of a batch give by hand, against what EPL merges.
class Collections : public testing::TestWithParam<int> {
 protected:
  Collections() {
    at::set_num_threads(1);
    torch::manual_seed(3);
    epl::init(epl::Config{{"pipeline.num_micro_batch", GetParam()}});
    net_ = std::make_shared<models::Mlp>(8, 16, 2, 4);
    optimizer_ = sgd(*net_, 0.1);
  }

  // One step whose logits of each micro batch are put into `collection`, after `reduce`.
  torch::Tensor merged(const std::string& collection,
                       const std::function<torch::Tensor(torch::Tensor)>& reduce) {
    epl::Trainer trainer(net_, *optimizer_, [&](const Batch& batch) {
      auto logits = net_->forward(batch[0]);
      epl::add_to_collection(collection, reduce(logits), "value");
      return cross_entropy(logits, batch[1]);
    });
    for (int i = 0; i < 2; ++i) {
      parts_.clear();
      for (const auto& part : batch_[0].chunk(GetParam())) {
        parts_.push_back(reduce(net_->forward(part)).detach());
      }
      StepResult result = trainer.step(batch_);
      merged_ = result.metrics.at("value");
    }
    return merged_;
  }

  Batch batch_ = rows(8);
  std::shared_ptr<models::Mlp> net_;
  OptimizerPointer optimizer_;
  std::vector<torch::Tensor> parts_;
  torch::Tensor merged_;
};

const Exactness kMerged = within(1e-6, "parts may be added in another order");

TEST_P(Collections, MeanIsTakenOverTheMicroBatches) {
  for (const char* collection : {collections::kGlobalMean, collections::kLocalMean}) {
    auto value = merged(collection, [](auto logits) { return logits.mean(0); });
    EXPECT_TRUE(same_tensor(collection, torch::stack(parts_).mean(0), value, kMerged));
  }
}

TEST_P(Collections, SumIsTakenOverTheMicroBatches) {
  for (const char* collection : {collections::kGlobalSum, collections::kLocalSum}) {
    auto value = merged(collection, [](auto logits) { return logits.sum(); });
    EXPECT_TRUE(same_tensor(collection, torch::stack(parts_).sum(0), value, kMerged));
  }
}

TEST_P(Collections, SumOfIntegersStaysAnInteger) {
  auto value =
      merged(collections::kGlobalSum, [](auto logits) { return logits.argmax(1).eq(0).sum(); });
  EXPECT_TRUE(same_tensor("count", torch::stack(parts_).sum(0), value, bit_equal()));
}

TEST_P(Collections, ConcatenationKeepsTheOrderOfTheRows) {
  for (const char* collection : {collections::kGlobalConcat, collections::kLocalConcat}) {
    auto value = merged(collection, [](auto logits) { return logits; });
    EXPECT_TRUE(same_tensor(collection, torch::cat(parts_), value, bit_equal()));
  }
}

TEST_P(Collections, ANamelessMetricIsCalledAfterItsPosition) {
  epl::Trainer trainer(net_, *optimizer_, [&](const Batch& batch) {
    auto logits = net_->forward(batch[0]);
    epl::add_to_collection(collections::kGlobalSum, torch::ones({}));
    epl::add_to_collection(collections::kGlobalSum, torch::full({}, 2.0));
    epl::add_to_collection(collections::kLocalConcat, logits);
    return cross_entropy(logits, batch[1]);
  });
  StepResult result = trainer.step(batch_);
  ASSERT_EQ(result.metrics.size(), 3);
  EXPECT_EQ(result.metrics.at("GLOBAL_SUM_0").item<double>(), GetParam());
  EXPECT_EQ(result.metrics.at("GLOBAL_SUM_1").item<double>(), 2 * GetParam());
  EXPECT_EQ(result.metrics.at("LOCAL_CONCAT_0").size(0), 8);
}

INSTANTIATE_TEST_SUITE_P(OverMicroBatches, Collections, testing::Values(1, 4));

}  // namespace
}  // namespace epl::parity

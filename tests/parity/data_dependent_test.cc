// Steps that look at their data: the recording is right for a batch only while what C++ found there is
// found again, and is made anew where it is not.
#include <gtest/gtest.h>

#include "tests/models/mlp.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

namespace F = torch::nn::functional;

using Loss = std::function<torch::Tensor(torch::Tensor logits, const Batch& batch)>;

MakeProgram classifier_with(Loss loss) {
  return [loss] {
    auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
    return program(net, sgd(*net, 0.1),
                   [net, loss](const Batch& batch) { return loss(net->forward(batch[0]), batch); });
  };
}

Batch rows_and_classes(int) { return {torch::randn({8, 8}), classes(4, {8})}; }

TEST(DataDependent, IfTakesTheBranchOfEachBatch) {
  EXPECT_TRUE(parity(classifier_with([](torch::Tensor x, const Batch& batch) {
                       auto loss = F::cross_entropy(x, batch[1]);
                       return batch[0].sum().item<float>() > 0 ? loss * 2 : loss + x.abs().mean();
                     }),
                     rows_and_classes, bit_equal(), Variant().steps(8)));
}

TEST(DataDependent, NumberReadByItemIsThatOfEachBatch) {
  EXPECT_TRUE(parity(classifier_with([](torch::Tensor x, const Batch& batch) {
                       const double scale = 1.0 + std::abs(batch[0].mean().item<double>());
                       return F::cross_entropy(x, batch[1]) * scale;
                     }),
                     rows_and_classes, bit_equal()));
}

TEST(DataDependent, RowsSelectedByAMaskMayBeMoreOrFewer) {
  EXPECT_TRUE(parity(classifier_with([](torch::Tensor x, const Batch& batch) {
                       auto chosen = batch[1].gt(1);
                       return x.index({chosen}).pow(2).mean() + F::cross_entropy(x, batch[1]);
                     }),
                     rows_and_classes, bit_equal(), Variant().steps(8)));
}

TEST(DataDependent, MeanOverAMaskedSelection) {
  EXPECT_TRUE(parity(classifier_with([](torch::Tensor x, const Batch& batch) {
                       return x.masked_select(x.gt(x.mean())).mean() + F::cross_entropy(x, batch[1]);
                     }),
                     rows_and_classes, bit_equal(), Variant().steps(8)));
}

TEST(DataDependent, LabelSmoothingWithIgnoredLabels) {
  EXPECT_TRUE(parity(
      classifier_with([](torch::Tensor x, const Batch& batch) {
        return F::cross_entropy(
            x, batch[1], F::CrossEntropyFuncOptions().label_smoothing(0.1).ignore_index(3));
      }),
      rows_and_classes, bit_equal(), Variant().steps(8)));
}

TEST(DataDependent, OneHotOfAsManyClassesAsThereAre) {
  EXPECT_TRUE(parity(classifier_with([](torch::Tensor x, const Batch& batch) {
                       auto labels = F::one_hot(batch[1]).to(torch::kFloat);
                       return (x.slice(1, 0, labels.size(1)) - labels).pow(2).sum();
                     }),
                     [](int step) {
                       return Batch{torch::randn({8, 8}), classes(2 + step % 3, {8})};
                     },
                     bit_equal(), Variant().steps(6)));
}

TEST(DataDependent, ProductWithAndWithoutZeros) {
  EXPECT_TRUE(parity(classifier_with([](torch::Tensor x, const Batch& batch) {
                       return (x * batch[2]).prod(1).sum() + F::cross_entropy(x, batch[1]);
                     }),
                     [](int step) {
                       auto factors = torch::ones({8, 4});
                       if (step % 2 == 1) factors[0][0] = 0;
                       return Batch{torch::randn({8, 8}), classes(4, {8}), factors};
                     },
                     bit_equal(), Variant().steps(6)));
}

TEST(DataDependent, CounterOfTheUsersOwnIsReadInEveryStep) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Mlp>(8, 16, 2, 4);
        auto counter = torch::zeros({}, torch::kLong);
        return program(net, sgd(*net, 0.1), [net, counter](const Batch& batch) mutable {
          counter.add_(1);
          auto loss = F::cross_entropy(net->forward(batch[0]), batch[1]);
          return counter.item<int64_t>() > 3 ? loss * 2 : loss;
        });
      },
      rows_and_classes, bit_equal(), Variant().steps(6)));
}

TEST(DataDependent, RecordingAgainMovesBatchNormStatisticsOnce) {
  EXPECT_TRUE(parity(
      [] {
        torch::nn::Sequential net(torch::nn::Linear(8, 16), torch::nn::BatchNorm1d(16),
                                  torch::nn::Dropout(0.5), torch::nn::Linear(16, 4));
        return program(net.ptr(), sgd(*net, 0.1), [net](const Batch& batch) mutable {
          auto x = net->forward(batch[0]);
          auto loss = F::cross_entropy(x, batch[1]);
          return batch[0].sum().item<float>() > 0 ? loss * 2 : loss;
        });
      },
      rows_and_classes, bit_equal(), Variant().steps(8)));
}

TEST(DataDependent, MicroBatchesThatAgreeAreRecordedAgainTogether) {
  EXPECT_TRUE(parity(classifier_with([](torch::Tensor x, const Batch& batch) {
                       auto loss = F::cross_entropy(x, batch[1]);
                       return batch[0].max().gt(0).item<bool>() ? loss * 2 : loss;
                     }),
                     [](int step) {
                       auto rows = torch::rand({8, 8});
                       return Batch{step % 2 == 0 ? rows : -rows, classes(4, {8})};
                     },
                     bit_equal(), Variant().steps(6).micro_batches(4)));
}

// How many elements a sparse tensor has was taken for a matter of shapes.
testing::AssertionResult with_zeros_later(const Loss& loss) {
  const MakeBatch batch = [](int step) {
    torch::Tensor rows = torch::rand({8, 8}) + 0.5;
    if (step >= 3) rows.narrow(1, 0, step - 2).zero_();
    return Batch{rows, classes(4, {8})};
  };
  const Variant variant = Variant().steps(7).differs_by_rows("each call counts its own rows");
  const Exactness rounding = within(1e-5, "sums over devices in another order");
  auto result = parity(classifier_with(loss), batch, bit_equal(), variant);
  for (const Variant& parts : {Variant(variant).devices(2), Variant(variant).micro_batches(2)}) {
    if (result) result = parity(classifier_with(loss), batch, rounding, parts);
  }
  return result;
}

// Nor does any operator read what was selected: its size alone is asked for.
TEST(DataDependent, SizeOfASelectionThatNobodyReads) {
  EXPECT_TRUE(with_zeros_later([](torch::Tensor x, const Batch& batch) {
    const torch::Tensor places = batch[0].nonzero().select(1, 0);
    return F::cross_entropy(x, batch[1]) * (8.0 / static_cast<double>(places.size(0)));
  }));
}

TEST(DataDependent, NumberOfElementsOfASparseTensor) {
  EXPECT_TRUE(with_zeros_later([](torch::Tensor x, const Batch& batch) {
    const auto elements = static_cast<double>(batch[0].to_sparse()._nnz());
    return F::cross_entropy(x, batch[1]) * (8 / elements);
  }));
}

TEST(DataDependent, SizeOfTheValuesOfASparseTensor) {
  EXPECT_TRUE(with_zeros_later([](torch::Tensor x, const Batch& batch) {
    const torch::Tensor values = batch[0].to_sparse().values();
    return F::cross_entropy(x, batch[1]) * (8.0 / static_cast<double>(values.numel()));
  }));
}

TEST(DataDependent, SizeOfTheIndicesOfACoalescedTensor) {
  EXPECT_TRUE(with_zeros_later([](torch::Tensor x, const Batch& batch) {
    const torch::Tensor places = batch[0].gt(0).to(torch::kLong).narrow(0, 0, 2);
    const torch::Tensor sum =
        torch::sparse_coo_tensor(places, torch::ones({8}), {2, 2}).coalesce();
    return F::cross_entropy(x, batch[1]) * (1.0 / static_cast<double>(sum.indices().size(1)));
  }));
}

}  // namespace
}  // namespace epl::parity

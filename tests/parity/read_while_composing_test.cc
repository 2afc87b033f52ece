// LibTorch's composite operators read some tensors by their address while they choose what to call:
// lengths of sequences, places to cut at. A recording once kept those of the first batch for ever.
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

namespace rnn = torch::nn::utils::rnn;
using torch::Tensor;

Tensor integers(std::vector<int64_t> values) { return torch::tensor(values, torch::kLong); }

TEST(ReadWhileComposing, LengthsOfCtcLoss) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<torch::nn::LinearImpl>(4, 5);
        return program(net, sgd(*net, 0.1), [net](const Batch& rows) {
          return torch::ctc_loss(net->forward(rows[0]).log_softmax(2), rows[1], rows[2], rows[3]);
        });
      },
      [](int step) {
        return Batch{torch::randn({6, 2, 4}), torch::randint(1, 5, {2, 3}, torch::kLong),
                     integers({6 - step % 3, 4}), integers({1 + step % 3, 2})};
      },
      bit_equal()));
}

// The sum and the maximum of the lengths stay, so that all shapes do.
TEST(ReadWhileComposing, LengthsOfPackedSequences) {
  const auto lengths = [](int step) {
    return step % 2 == 0 ? integers({5, 3, 1}) : integers({5, 2, 2});
  };
  for (const bool gated : {false, true}) {
    EXPECT_TRUE(parity(
        [gated] {
          auto lstm = std::make_shared<torch::nn::LSTMImpl>(4, 6);
          auto gru = std::make_shared<torch::nn::GRUImpl>(4, 6);
          const auto step = [=](const Batch& rows) {
            const auto packed =
                rnn::pack_padded_sequence(rows[0], rows[1], /*batch_first=*/false, true);
            const auto output = gated ? std::get<0>(gru->forward_with_packed_input(packed))
                                      : std::get<0>(lstm->forward_with_packed_input(packed));
            return std::get<0>(rnn::pad_packed_sequence(output)).square().sum();
          };
          return gated ? program(gru, sgd(*gru, 0.01), step)
                       : program(lstm, sgd(*lstm, 0.01), step);
        },
        [&](int step) {
          return Batch{torch::randn({5, 3, 4}), lengths(step)};
        },
        bit_equal()));
  }
}

TEST(ReadWhileComposing, PlacesWhereATensorIsSplit) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<torch::nn::LinearImpl>(4, 6);
        return program(net, sgd(*net, 0.1), [net](const Batch& rows) {
          const auto parts = net->forward(rows[0]).tensor_split(rows[1], 1);
          return parts[0].square().sum() + parts[1].sum() + parts[2].tanh().sum();
        });
      },
      [](int step) {
        return Batch{torch::randn({3, 4}), integers({1 + step % 2, 4})};
      },
      bit_equal()));
}

// Where no gradient is asked for, max_pool1d fills its result by itself.
TEST(ComputedUnseen, MaxPool1dOfTheBatch) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<torch::nn::LinearImpl>(4, 6);
        return program(net, sgd(*net, 0.1), [net](const Batch& rows) {
          return net->forward(torch::max_pool1d(rows[0], 2)).square().mean();
        });
      },
      [](int) {
        return Batch{torch::randn({3, 2, 8})};
      },
      bit_equal()));
}

// A penalty on the gradient in a tensor of the batch.
TEST(BatchThatRequiresAGradient, GivesIt) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<torch::nn::LinearImpl>(4, 6);
        return program(net, sgd(*net, 0.1), [net](const Batch& rows) {
          const Tensor y = net->forward(rows[0]).tanh();
          return y.square().mean() +
                 torch::autograd::grad({y.sum()}, {rows[0]}, {}, true, true)[0].square().mean();
        });
      },
      [](int) {
        return Batch{torch::randn({3, 4}).requires_grad_()};
      },
      within(1e-6, "sums in another order")));
}

}  // namespace
}  // namespace epl::parity

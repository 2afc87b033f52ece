// Workers whose batches take them to different steps: all go one way, or all hear of it at once.
#include <gmock/gmock.h>

#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

using torch::Tensor;

struct TwoHeads : torch::nn::Module {
  TwoHeads() : trunk(8, 8), left(8, 4), right(8, 4) {
    register_module("trunk", trunk);
    register_module("left", left);
    register_module("right", right);
  }
  torch::nn::Linear trunk, left, right;
};

using Head = std::function<Tensor(TwoHeads& net, const Tensor& hidden, const Batch& batch)>;

// From a step on the third tensor of each worker has another width and other numbers.
struct Apart {
  int from = 4;
  int first_width = 1;  // of worker 0
  int wider = 1;        // worker 1
};

void train_apart(const Head& head, const Apart& apart = {}) {
  run_on_workers({1, 1}, [&](int worker) {
    init();
    auto net = std::make_shared<TwoHeads>();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Trainer trainer(net, optimizer, [&](const Batch& batch) {
      const Tensor hidden = torch::tanh(net->trunk(batch[0]));
      return cross_entropy(head(*net, hidden, batch), batch[1]);
    });
    for (int step = 0; step < 7; ++step) {
      const bool differs = step >= apart.from;
      const int64_t width = differs ? apart.first_width + worker * apart.wider : 1;
      const Tensor third = torch::full({4, width}, differs ? worker : 0);
      trainer.step({torch::randn({4, 8}), classes(4, {4}), third});
    }
  });
}

testing::Matcher<const WorkersFailed&> says(const std::string& text) {
  return testing::Property(&WorkersFailed::what, testing::HasSubstr(text));
}

// Gradients of another head have the same shape: they were added to each other without a word.
TEST(WorkersApart, WithOtherLayersAreAnError) {
  EXPECT_THAT(
      [] {
        train_apart([](TwoHeads& net, const Tensor& hidden, const Batch& batch) {
          return batch[2].size(1) == 1 ? net.left(hidden) : net.right(hidden);
        });
      },
      testing::Throws<WorkersFailed>(says("workers have different gradients to reduce")));
}

// One waited for the gradients of the other, which waited for its report.
TEST(WorkersApart, OfWhichOneCannotReplayAreAnError) {
  EXPECT_THAT(
      [] {
        train_apart([](TwoHeads& net, const Tensor& hidden, const Batch& batch) {
          const bool reads = batch[2].size(1) == 2;
          return net.left(hidden) * (reads ? 1.0 + batch[1].accessor<int64_t, 1>()[0] : 1.0);
        });
      },
      testing::Throws<WorkersFailed>(testing::AnyOf(says("other workers replay theirs"),
                                                    says("workers have different gradients"))));
}

double first_label(const Batch& batch) {
  return static_cast<double>(batch[1].accessor<int64_t, 1>()[0]);
}

// One waited for the other's guards, which waited for its gradients.
TEST(WorkersApart, OfWhichOneCannotReplayAndOthersReadBackAreAnError) {
  const Head head = [](TwoHeads& net, const Tensor& hidden, const Batch& batch) {
    const int64_t width = batch[2].size(1);
    const double scale = width == 3   ? 1 + first_label(batch)
                         : width == 2 ? (batch[2].sum().item<double>() < 1 ? 2 : 3)
                                      : 1;
    return net.left(hidden) * scale;
  };
  EXPECT_THAT(
      [&] {
        train_apart(head, {4, 2, 1});
      },
      testing::Throws<WorkersFailed>(
          testing::AnyOf(says("other workers replay theirs"), says("recorded different steps"))));
}

TEST(WorkersApart, OfWhichOneReadsBackAreAnError) {
  const Head head = [](TwoHeads& net, const Tensor& hidden, const Batch& batch) {
    const bool reads = batch[2].size(1) == 2;
    return net.left(hidden) * (reads && batch[2].sum().item<double>() < 1 ? 2 : 1);
  };
  EXPECT_THAT([&] { train_apart(head); },
              testing::Throws<WorkersFailed>(testing::AnyOf(
                  says("recorded different steps"), says("different gradients to reduce"))));
}

// By the numbers that the first step reads only one worker comes to what cannot be replayed.
TEST(WorkersApart, InTheFirstStepRunPlainly) {
  const Head head = [](TwoHeads& net, const Tensor& hidden, const Batch& batch) {
    const bool reads = batch[2][0][0].item<double>() > 0;
    return net.left(hidden) * (reads ? 1 + first_label(batch) : 1.0);
  };
  train_apart(head, {0, 1, 0});
}

}  // namespace
}  // namespace epl::parity

// Metrics that a step returns. The count of right answers, the commonest metric there is, was
// averaged over micro batches and devices like a loss: 32 hits on one device were 15 on two, the
// half of them cut off to a whole number. Whatever the layout, a count is that of the whole batch.
#include "tests/parity/on_devices.h"
#include "tests/parity/pipelines.h"

namespace epl::parity {
namespace {

using torch::Tensor;

constexpr int64_t kRows = 24;

Tensor hits(const Tensor& scores, const Tensor& labels) {
  return scores.argmax(1).eq(labels).sum();
}

// Trains for some steps; `first` and `rows`: what this worker hands in of each batch.
void expect_counts_of_whole_batch(Stack& net, int64_t first, int64_t rows) {
  torch::manual_seed(1);
  torch::optim::SGD optimizer(net.parameters(), 0.5);
  Trainer trainer(net, optimizer, [&](const Batch& batch) {
    const Tensor scores = net.forward(batch[0]);
    const Tensor loss = cross_entropy(scores, batch[1]);
    const Tensor right = hits(scores, batch[1]);
    return StepOutput(loss, {{"right", right},
                             {"small", right.to(torch::kInt)},
                             {"never", scores.gt(1e6).sum()},
                             {"loss", loss}});
  });
  for (int step = 0; step < 3; ++step) {
    const Batch batch = parity::rows(kRows)(step);
    const torch::NoGradGuard no_grad;
    const Tensor scores = net.forward(batch[0]);
    const Tensor right = hits(scores, batch[1]);
    const auto result = trainer.step(
        {batch[0].narrow(0, first, rows).clone(), batch[1].narrow(0, first, rows).clone()});
    EXPECT_TRUE(same_tensor("right", right, result.metrics.at("right"), bit_equal()));
    EXPECT_TRUE(
        same_tensor("small", right.to(torch::kInt), result.metrics.at("small"), bit_equal()));
    EXPECT_EQ(result.metrics.at("never").item<int64_t>(), 0);
    EXPECT_NEAR(result.metrics.at("loss").item<double>(), result.loss, 1e-6);
  }
}

void expect_counts_on_devices(int devices, const std::vector<int>& stages, int micro_batches) {
  const OnDevices on(devices);
  init(Config{{"pipeline.num_micro_batch", micro_batches}});
  Stack net(stages);
  expect_counts_of_whole_batch(net, 0, kRows);
}

TEST(CountsAsMetrics, AreThoseOfAllMicroBatches) { expect_counts_on_devices(1, {1}, 4); }

TEST(CountsAsMetrics, AreThoseOfAllDevices) {
  expect_counts_on_devices(2, {1}, 1);
  expect_counts_on_devices(4, {1}, 3);
}

TEST(CountsAsMetrics, AreThoseOfAllSlicesOfAMicroBatch) {
  expect_counts_on_devices(2, {2}, 1);
  expect_counts_on_devices(4, {2}, 2);
}

TEST(CountsAsMetrics, AreThoseOfAllReplicasOfAPipeline) {
  expect_counts_on_devices(2, {1, 1}, 2);
  expect_counts_on_devices(4, {1, 1}, 3);
  expect_counts_on_devices(3, {1, 2}, 2);
}

TEST(CountsAsMetrics, AreThoseOfAllWorkers) {
  run_on_workers({1, 2}, [](int worker) {
    init(Config{{"pipeline.num_micro_batch", 2}});
    Stack net(1);
    expect_counts_of_whole_batch(net, worker == 0 ? 0 : kRows / 3,
                                 worker == 0 ? kRows / 3 : kRows / 3 * 2);
  });
}

TEST(CountsAsMetrics, AreCountedOnceWhereALayerIsSplit) {
  const OnDevices on(2);
  init();
  set_default_strategy(split(2));
  torch::manual_seed(1);
  torch::nn::Linear net(6, 6);
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  Trainer trainer(net, optimizer, [&](const Batch& batch) {
    const Tensor scores = net->forward(batch[0]);
    const Tensor right = hits(scores, batch[1]);
    return StepOutput(cross_entropy(scores, batch[1]), {{"right", right}, {"any", right.gt(0)}});
  });
  const Batch batch = parity::rows(kRows)(0);
  const Tensor right = hits(net->forward(batch[0]), batch[1]);
  const auto result = trainer.step(batch);
  EXPECT_TRUE(same_tensor("right", right, result.metrics.at("right"), bit_equal()));
  EXPECT_TRUE(same_tensor("any", right.gt(0), result.metrics.at("any"), bit_equal()));
}

// --- what cannot be merged
// ------------------------------------------------------------------------

std::string error_of(const std::function<StepOutput(const Tensor& loss)>& output,
                     int micro_batches) {
  init(Config{{"pipeline.num_micro_batch", micro_batches}});
  torch::nn::Linear net(6, 6);
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  Trainer trainer(net, optimizer, [&](const Batch& batch) {
    return output(cross_entropy(net->forward(batch[0]), batch[1]));
  });
  try {
    trainer.step(parity::rows(kRows)(0));
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Metrics, ThatAreTruthValuesAreNotAveraged) {
  const auto output = [](const Tensor& loss) {
    return StepOutput(loss, {{"finite", loss.isfinite().all()}});
  };
  EXPECT_EQ(error_of(output, 1), "none");
  EXPECT_EQ(error_of(output, 2),
            "epl: the metric \"finite\" is a truth value, and 2 parts of the batch give one each\n"
            "  asked by: epl::StepOutput\n"
            "  try:      a count: finite.to(torch::kLong) is summed; or "
            "epl::add_to_collection(GLOBAL_CONCAT, ...)");
}

TEST(Metrics, ThatAreWholeNumbersHaveNoMean) {
  const auto output = [](const Tensor& loss) {
    add_to_collection(collections::kGlobalMean, loss.gt(0).sum(), "hits");
    return loss;
  };
  EXPECT_EQ(error_of(output, 1),
            "epl: the mean of tensors of type Long is not of that type\n"
            "  asked by: epl::add_to_collection(\"GLOBAL_MEAN\", tensor, \"hits\")\n"
            "  try:      tensor.to(torch::kFloat), or the collection for sums");
}

TEST(Metrics, ThatOverflowTheirTypeAreSummedInAWiderOne) {
  init(Config{{"pipeline.num_micro_batch", 2}});
  torch::nn::Linear net(6, 6);
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  Trainer trainer(net, optimizer, [&](const Batch& batch) {
    return StepOutput(cross_entropy(net->forward(batch[0]), batch[1]),
                      {{"rows", torch::full({}, 200, torch::kByte)}});
  });
  EXPECT_EQ(trainer.step(parity::rows(kRows)(0)).metrics.at("rows").item<int64_t>(), 400);
}

}  // namespace
}  // namespace epl::parity

// epl::all_reduce and epl::barrier over workers that are processes.
#include <chrono>
#include <thread>

#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

using torch::Tensor;

TEST(AllReduce, MergesTheTensorsOfAllWorkers) {
  run_on_workers({1, 2, 1}, [](int worker) {
    init();
    const Tensor mine = torch::tensor({1.0 + worker, -2.0 * worker});
    EXPECT_TRUE(torch::equal(all_reduce(mine), torch::tensor({6.0, -6.0})));
    EXPECT_TRUE(torch::equal(all_reduce(mine, "mean"), torch::tensor({2.0, -2.0})));
    EXPECT_TRUE(torch::equal(all_reduce(mine, "max"), torch::tensor({3.0, 0.0})));
    EXPECT_TRUE(torch::equal(all_reduce(mine, "min"), torch::tensor({1.0, -4.0})));
    EXPECT_TRUE(torch::equal(all_reduce(mine, "prod"), torch::tensor({6.0, 0.0})));
    EXPECT_TRUE(torch::equal(mine, torch::tensor({1.0 + worker, -2.0 * worker})));
    EXPECT_EQ(all_reduce(torch::tensor(worker)).item<int64_t>(), 3);
    // In whatever order the elements lie.
    const Tensor turned = torch::arange(6).view({2, 3}).t() + worker;
    EXPECT_TRUE(torch::equal(all_reduce(turned), 3 * torch::arange(6).view({2, 3}).t() + 3));
  });
}

TEST(AllReduce, OfDifferentSizesIsAnErrorOnEveryWorker) {
  run_on_workers({1, 1}, [](int worker) {
    init();
    try {
      all_reduce(torch::ones({worker + 1}));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("all_reduce"), std::string::npos) << error.what();
    }
  });
}

TEST(Barrier, WaitsForAllWorkers) {
  run_on_workers({1, 1}, [](int worker) {
    init();
    barrier();
    const auto begin = std::chrono::steady_clock::now();
    if (worker == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    barrier();
    EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(190));
  });
}

// As docs/porting.md has it: each worker evaluates rows of its own, and the sums are those of all.
TEST(AllReduce, MergesAnEvaluation) {
  run_on_workers({1, 1}, [](int worker) {
    init();
    torch::manual_seed(0);
    torch::nn::Linear net(3, 2);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Trainer trainer(net, optimizer, [&](const Batch& batch) {
      return cross_entropy(net->forward(batch[0]), batch[1]);
    });
    const Tensor x = torch::randn({8, 3}), y = torch::arange(8) % 2;
    const auto sums = [&](const Batch& batch) {
      const Tensor scores = net->forward(batch[0]);
      const Tensor right = scores.argmax(1).eq(batch[1]).sum();
      return torch::stack({cross_entropy(scores, batch[1]) * batch[0].size(0), right});
    };
    const auto part = [&](const Tensor& all) { return all.chunk(2)[worker]; };
    const Tensor merged = all_reduce(trainer.evaluate(sums, {part(x), part(y)}).loss);
    const Tensor whole = trainer.evaluate(sums, {x, y}).loss;
    EXPECT_TRUE(torch::allclose(merged, whole));
  });
}

// A worker that leaves while another waits for it is named; nobody waits for ever.
TEST(Barrier, EndsWhereAWorkerHasLeft) {
  run_on_workers({1, 1}, [](int worker) {
    init();
    barrier();
    if (worker == 1) return;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THROW(barrier(), JobFailed);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  });
}

}  // namespace
}  // namespace epl::parity

// What other threads compute while a step is recorded.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "capture/test_capture.h"

namespace epl {
namespace {

using torch::Tensor;

// It was recorded as a constant: all later steps used what the first batch had given.
TEST(ForeignResults, OfABranchOnAnotherThreadCannotBeReplayed) {
  torch::nn::LinearImpl net(4, 4);
  const Capture capture = capture_with(net,
                                       [&](const Batch& batch) {
                                         const Tensor scale = std::async(std::launch::async, [&] {
                                                                return batch[0].exp().mean();
                                                              }).get();
                                         return (net.forward(batch[0]) * scale).sum();
                                       },
                                       {torch::ones({2, 4})});
  // Named is the operator that made the memory: aten::mean calls others.
  EXPECT_NE(
      capture.unreplayable.find("computed on another thread: a replay would not compute it again"),
      std::string::npos)
      << capture.unreplayable;
}

TEST(ForeignResults, OfALoaderBesideTheStepAreNoReason) {
  torch::nn::LinearImpl net(4, 4);
  std::atomic<bool> ends{false};
  std::atomic<int> loaded{0};
  std::thread loader([&] {
    while (!ends) {
      torch::randn({8, 4}).mul(2);
      ++loaded;
    }
  });
  for (int i = 0; i < 20 || loaded < 20; ++i) {
    const Capture capture = capture_with(
        net, [&](const Batch& batch) { return (net.forward(batch[0]) * torch::ones({4})).sum(); },
        {torch::ones({2, 4})});
    EXPECT_EQ(capture.unreplayable, "");
  }
  ends = true;
  loader.join();
}

}  // namespace
}  // namespace epl

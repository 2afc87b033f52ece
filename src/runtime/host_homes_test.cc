#include "runtime/host_homes.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/check.h"
#include "runtime/window_memory.h"

namespace epl {
namespace {

using Part = HostHomes::Part;
using Access = HostHomes::Access;

constexpr int64_t kBytes = 4 << 20;

torch::Tensor weight_of(int64_t bytes) { return torch::randn({bytes / 4}); }

void bring(HostHomes& homes, const torch::Tensor& tensor, Part part = Part::kParameter) {
  homes.fetch({tensor}, part, Access::kRead);
  homes.wait({tensor}, part, Access::kRead);
}

// Until the lane has closed what was stored; at most some seconds.
int64_t near_after(const HostHomes& homes, int64_t expected) {
  for (int i = 0; i < 5000 && homes.near() != expected; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return homes.near();
}

std::string text_of_error(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(WindowMemory, HoldsNothingOverFromOneOpeningToTheNext) {
  for (const int64_t bytes : {int64_t{100}, kBytes + 5}) {
    const auto window = WindowMemory::reserve(bytes);
    window->open();
    window->begin()[bytes - 1] = 7;
    window->close();
    window->open();
    EXPECT_EQ(window->begin()[bytes - 1], 0);
    window->close();
  }
}

TEST(WindowMemoryDeathTest, EndsTheProcessOfWhoeverReadsItWhileItIsClosed) {
  const auto window = WindowMemory::reserve(kBytes);
  const torch::Tensor over =
      torch::empty({0}).set_(window->storage(), 0, {kBytes / 4}, {1});  // keeps the addresses
  EXPECT_DEATH(static_cast<void>(over.sum().item<float>()), "");
}

TEST(HostHomes, AWindowHasWhatTheHomeHas) {
  HostHomes homes;
  const torch::Tensor weight = torch::randn({300, 100}).t();
  const void* const memory = weight.data_ptr();
  EXPECT_TRUE(homes.window(weight).is_same(weight));
  homes.take_in({weight});
  EXPECT_TRUE(homes.has(weight));
  EXPECT_EQ(weight.data_ptr(), memory);
  const torch::Tensor window = homes.window(weight);
  EXPECT_NE(window.data_ptr(), memory);
  EXPECT_EQ(window.strides(), weight.strides());
  for (int round = 0; round < 3; ++round) {
    weight.add_(1);  // between steps the program writes what it likes
    bring(homes, weight);
    EXPECT_EQ(homes.near(), WindowMemory::rounded(300 * 100 * 4));
    EXPECT_TRUE(window.equal(weight));
    homes.store({weight}, Part::kParameter);
    EXPECT_EQ(near_after(homes, 0), 0);
  }
}

TEST(HostHomes, WhatAnUpdateWritesComesHome) {
  HostHomes homes;
  const torch::Tensor weight = weight_of(kBytes);
  const torch::Tensor before = weight.clone();
  homes.take_in({weight});
  EXPECT_EQ(homes.to_be_written(weight.data_ptr()), weight.data_ptr());  // nobody has fetched it
  homes.fetch({weight}, Part::kParameter, Access::kWrite);
  const torch::Tensor window = homes.window(weight);
  EXPECT_EQ(homes.to_be_written(weight.data_ptr()), window.data_ptr());  // which waits for it
  window.add_(1);
  EXPECT_TRUE(weight.equal(before));
  homes.store({weight}, Part::kParameter);
  homes.write_back();
  EXPECT_TRUE(weight.equal(before + 1));
  // What was only read is not written back.
  bring(homes, weight);
  weight.zero_();
  homes.store({weight}, Part::kParameter);
  homes.write_back();
  EXPECT_TRUE(weight.equal(torch::zeros_like(weight)));
}

TEST(HostHomes, WhatIsNotStoredIsWrittenBackAsWell) {
  HostHomes homes;
  const torch::Tensor weight = torch::zeros({1024});
  homes.take_in({weight});
  bring(homes, weight);
  static_cast<float*>(homes.to_be_written(weight.data_ptr()))[3] = 5;
  homes.write_back();  // an exception came between
  EXPECT_EQ(weight[3].item<float>(), 5);
  EXPECT_EQ(homes.near(), 0);
  weight.fill_(9);
  homes.begin(0);
  EXPECT_EQ(weight[3].item<float>(), 9);
}

TEST(HostHomes, WhatSeveralHaveFetchedStaysUntilTheLastHasStored) {
  HostHomes homes;
  const torch::Tensor weight = weight_of(kBytes);
  homes.take_in({weight});
  bring(homes, weight);
  bring(homes, weight);
  homes.store({weight}, Part::kParameter);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(homes.window(weight).equal(weight));
  EXPECT_EQ(homes.near(), kBytes);
  homes.store({weight}, Part::kParameter);
  EXPECT_EQ(near_after(homes, 0), 0);
}

TEST(HostHomes, StatesBelongToTheirParameter) {
  HostHomes homes;
  const torch::Tensor weight = torch::randn({64, 64}).t();
  homes.take_in({weight});
  EXPECT_FALSE(homes.has(homes.zeros_for(weight)));  // outside of an update of it
  bring(homes, weight);
  const torch::Tensor state = homes.zeros_for(weight);
  EXPECT_TRUE(homes.has(state));
  EXPECT_EQ(state.strides(), weight.strides());
  const torch::Tensor window = homes.window(state);
  EXPECT_EQ(homes.to_be_written(state.data_ptr()), window.data_ptr());
  EXPECT_TRUE(window.equal(torch::zeros_like(weight)));
  window.fill_(3);
  homes.store({weight}, Part::kParameter);
  homes.store({weight}, Part::kStates);
  homes.write_back();
  EXPECT_TRUE(state.equal(torch::full_like(weight, 3)));
  bring(homes, weight, Part::kStates);
  EXPECT_EQ(homes.near(), 64 * 64 * 4);
  homes.rest();
  homes.set_states(weight, {});
  bring(homes, weight, Part::kStates);
  EXPECT_EQ(homes.near(), 0);
}

TEST(HostHomes, WindowsAreBounded) {
  HostHomes homes;
  std::vector<torch::Tensor> weights;
  for (int i = 0; i < 6; ++i) weights.push_back(weight_of(kBytes));
  homes.take_in(weights);
  homes.begin(2 * kBytes);
  homes.begin_lap();
  for (int i = 0; i < 6; ++i) {
    bring(homes, weights[static_cast<size_t>(i)]);
    EXPECT_TRUE(
        homes.window(weights[static_cast<size_t>(i)]).equal(weights[static_cast<size_t>(i)]));
    if (i > 0) homes.store({weights[static_cast<size_t>(i - 1)]}, Part::kParameter);
  }
  EXPECT_EQ(homes.most_near(), 2 * kBytes);
  homes.begin(2 * kBytes);
  bring(homes, weights[0]);
  bring(homes, weights[1]);
  homes.fetch({weights[2]}, Part::kParameter, Access::kRead);
  EXPECT_EQ(text_of_error([&] { homes.wait({weights[2]}, Part::kParameter, Access::kRead); }),
            "epl: out of memory on this device: a window of 4.0 MiB wanted, 8.0 MiB of windows in "
            "use, of 8.0 MiB that the plan has for them\n"
            "  asked by: offload.level\n"
            "  try:      smaller layers, or a higher memory.limit");
  homes.store({weights[0]}, Part::kParameter);
  homes.wait({weights[2]}, Part::kParameter, Access::kRead);
  EXPECT_TRUE(homes.window(weights[2]).equal(weights[2]));
}

// Several threads open and close windows at once.
TEST(HostHomes, ThreadsSeeWhatTheHomesHave) {
  HostHomes homes;
  std::vector<torch::Tensor> weights;
  for (int i = 0; i < 16; ++i) weights.push_back(weight_of(16384));
  homes.take_in(weights);
  homes.begin(8 * 16384);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t i = 0; i < 1000; ++i) {
        const torch::Tensor& weight = weights[4 * thread + i % 4];
        bring(homes, weight);
        const size_t bytes = weight.nbytes();
        if (std::memcmp(homes.window(weight).data_ptr(), weight.data_ptr(), bytes) != 0) ++wrong;
        homes.store({weight}, Part::kParameter);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// Small windows, so that whoever waits is mostly faster than the lane: what it has brought and
// stored, a lane that comes late does not bring again.
TEST(HostHomes, NothingStaysNearThatNobodyUses) {
  HostHomes homes;
  std::vector<torch::Tensor> weights;
  for (int i = 0; i < 8; ++i) weights.push_back(weight_of(4096));
  homes.take_in(weights);
  homes.begin(3 * 4096);
  for (int round = 0; round < 5000; ++round) {
    const torch::Tensor& weight = weights[static_cast<size_t>(round) % 8];
    const torch::Tensor& next = weights[static_cast<size_t>(round + 1) % 8];
    if (round == 0) homes.fetch({weight}, Part::kParameter, Access::kRead);
    homes.fetch({next}, Part::kParameter, Access::kRead);
    homes.wait({weight}, Part::kParameter, Access::kRead);  // or throws
    homes.store({weight}, Part::kParameter);
  }
  homes.rest();
  EXPECT_EQ(homes.near(), 0);
}

TEST(HostHomes, WhatIsAPartOfItsMemoryHasNoWindow) {
  HostHomes homes;
  const torch::Tensor whole = torch::randn({4, 1024});
  homes.take_in({whole[1], whole.slice(1, 0, 512)});
  EXPECT_FALSE(homes.has(whole[1]));
  homes.take_in({whole});
  EXPECT_TRUE(homes.has(whole));
  EXPECT_FALSE(homes.has(whole[0]));
  homes.let_go(whole);
  EXPECT_FALSE(homes.has(whole));
}

// An address may come back under another meaning.
TEST(HostHomes, WhatIsGoneIsForgotten) {
  HostHomes homes;
  torch::Tensor weight = weight_of(4096);
  homes.take_in({weight});
  const torch::Tensor window = homes.window(weight);  // outlives the home
  weight.set_data(weight_of(8192));
  EXPECT_FALSE(homes.has(weight));
  homes.take_in({weight});
  bring(homes, weight);
  EXPECT_TRUE(homes.window(weight).equal(weight));
  weight = torch::Tensor();
  homes.rest();
  EXPECT_EQ(homes.near(), 0);
}

}  // namespace
}  // namespace epl

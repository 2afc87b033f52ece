#include "runtime/device_team.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "runtime/random_skip.h"
#include "runtime/random_streams.h"

namespace epl {
namespace {

std::vector<CoreShare> anywhere(int devices) {
  return std::vector<CoreShare>(static_cast<size_t>(devices));
}

TEST(DeviceTeam, RunsEveryDeviceOnAThreadOfItsOwnAndTheFirstOnTheCallers) {
  DeviceTeam team(anywhere(4));
  std::vector<std::thread::id> threads(4);
  team.run([&](int device) { threads[static_cast<size_t>(device)] = std::this_thread::get_id(); });
  EXPECT_EQ(threads[0], std::this_thread::get_id());
  EXPECT_EQ(std::set<std::thread::id>(threads.begin(), threads.end()).size(), 4u);
}

TEST(DeviceTeam, WaitsForAllDevicesInEveryOfManyRuns) {
  DeviceTeam team(anywhere(3));
  std::vector<int> counts(3);
  for (int run = 0; run < 2000; ++run) {
    team.run([&](int device) { ++counts[static_cast<size_t>(device)]; });
    ASSERT_EQ(counts, std::vector<int>(3, run + 1));
  }
}

TEST(DeviceTeam, WakesDevicesThatSleep) {
  DeviceTeam team(anywhere(2));
  int woken = 0;
  for (int run = 0; run < 3; ++run) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // longer than they look
    team.run([&](int device) {
      if (device == 1) ++woken;
    });
  }
  EXPECT_EQ(woken, 3);
}

TEST(DeviceTeam, CountsTheMemoryOfEachDevice) {
  DeviceTeam team(anywhere(2));
  std::vector<at::Tensor> kept(2);
  team.run(
      [&](int device) { kept[static_cast<size_t>(device)] = at::zeros({1000 * (device + 1)}); });
  EXPECT_EQ(team.memory(0).account().in_use, 4032);
  EXPECT_EQ(team.memory(1).account().in_use, 8000);
}

TEST(DeviceTeam, ThrowsTheErrorOfTheLowestDeviceAndStaysUsable) {
  DeviceTeam team(anywhere(4));
  try {
    team.run([](int device) {
      if (device >= 2) throw std::runtime_error("device " + std::to_string(device));
    });
    FAIL() << "it does not throw";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "device 2");
    EXPECT_EQ(team.failed_device(), 2);
  }
  std::atomic<int> ran{0};
  team.run([&](int) { ++ran; });
  EXPECT_EQ(ran, 4);
}

TEST(DeviceTeam, CancelsDevicesThatWaitForOneThatFailed) {
  DeviceTeam team(anywhere(3));
  EXPECT_THROW(team.run([&](int device) {
    if (device == 2) throw std::out_of_range("the cause");
    while (!team.cancelled()) std::this_thread::yield();
    throw Cancelled();
  }),
               std::out_of_range);
  EXPECT_EQ(team.failed_device(), 2);
}

TEST(Cores, AreCutEvenlyOverDevices) {
  const auto shares = share_cores({0, 1, 2, 3, 8, 9, 10}, 3);
  EXPECT_EQ(shares[0].cores, (std::vector<unsigned>{0, 1}));
  EXPECT_EQ(shares[1].cores, (std::vector<unsigned>{2, 3}));
  EXPECT_EQ(shares[2].cores, (std::vector<unsigned>{8, 9, 10}));
  EXPECT_EQ(shares[2].threads, 3);
}

TEST(Cores, BindNobodyWhereThereAreMoreDevices) {
  for (const CoreShare& share : share_cores({0, 1}, 3)) {
    EXPECT_TRUE(share.cores.empty());
    EXPECT_EQ(share.threads, 1);
  }
}

TEST(Cores, BindAThreadWhileTheShareStands) {
  const std::vector<unsigned> before = allowed_cores();
  const int threads = at::get_num_threads();
  {
    const OnCores one({{before.back()}, 1});
    EXPECT_EQ(allowed_cores(), std::vector<unsigned>{before.back()});
    EXPECT_EQ(at::get_num_threads(), 1);
  }
  EXPECT_EQ(allowed_cores(), before);
  EXPECT_EQ(at::get_num_threads(), threads);
}

at::Tensor drawn(RandomStreams& streams) {
  return at::rand({4}, streams.default_generator(), at::TensorOptions());
}

// LibTorch's thread pool was gone before threads that were about to start had asked for it.
TEST(DeviceTeamDeathTest, MayEndWithTheProcessAtOnce) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // a process without a pool
  EXPECT_EXIT(
      {
        static std::unique_ptr<DeviceTeam> team;
        team = std::make_unique<DeviceTeam>(std::vector<CoreShare>(16));
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(RandomStreams, OfTheFirstDeviceAreTheProgramsOwn) {
  at::manual_seed(3);
  RandomStreams first(0);
  const at::Tensor here = drawn(first);
  at::manual_seed(3);
  EXPECT_TRUE(here.equal(at::rand({4})));
}

TEST(RandomStreams, OfOtherDevicesFollowFromSeedAndNumber) {
  at::manual_seed(3);
  RandomStreams second(1), again(1), third(2);
  const at::Tensor numbers = drawn(second);
  EXPECT_TRUE(numbers.equal(drawn(again)));
  EXPECT_FALSE(numbers.equal(drawn(third)));
  EXPECT_FALSE(numbers.equal(drawn(second)));
}

TEST(RandomStreams, FollowFromSeedAndStep) {
  at::manual_seed(3);
  RandomStreams second(1);
  const at::Tensor numbers = drawn(second);
  at::manual_seed(4);
  second.begin_step(0);
  EXPECT_FALSE(numbers.equal(drawn(second)));
  at::manual_seed(3);
  second.begin_step(1);
  EXPECT_FALSE(numbers.equal(drawn(second)));
  second.begin_step(0);
  EXPECT_TRUE(numbers.equal(drawn(second)));
}

TEST(RandomStreams, AreSetBackToAnEarlierState) {
  RandomStreams second(1);
  drawn(second);
  const auto states = second.states();
  const at::Tensor numbers = drawn(second);
  second.restore(states);
  EXPECT_TRUE(numbers.equal(drawn(second)));
}

// Generators of a new seed and such that are in the middle of a block.
TEST(RandomSkip, IsAsIfTheNumbersHadBeenDrawn) {
  for (int drawn_before : {0, 1, 623, 624, 700}) {
    at::mt19937 engine(7);
    for (int i = 0; i < drawn_before; ++i) engine();
    for (uint64_t draws : {0, 1, 2, 622, 623, 624, 625, 1248, 100000}) {
      at::mt19937 there = engine;
      for (uint64_t i = 0; i < draws; ++i) there();
      EXPECT_EQ(draws_between(engine.data(), there.data()), draws) << drawn_before;
      at::mt19937_data_pod state = engine.data();
      skip_draws(state, draws);
      at::mt19937 skipped;
      skipped.set_data(state);
      for (int i = 0; i < 700; ++i) ASSERT_EQ(skipped(), there()) << drawn_before << " " << draws;
    }
  }
  EXPECT_EQ(draws_between(at::mt19937(7).data(), at::mt19937(8).data()), 0U);
}

TEST(RandomStreams, CountWhatTheyDraw) {
  for (int device : {0, 1}) {
    RandomStreams streams(device);
    EXPECT_EQ(streams.take_drawn(), 0U);
    streams.begin_step(0);
    drawn(streams);
    EXPECT_EQ(streams.take_drawn(), 4U);  // a float is made of 24 bits of one number
    EXPECT_EQ(streams.take_drawn(), 0U);
  }
}

}  // namespace
}  // namespace epl

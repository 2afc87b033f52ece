#include "runtime/device_memory.h"

#include <c10/core/CPUAllocator.h>
#include <epl/error.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace epl {
namespace {

constexpr int64_t kMiB = 1 << 20;

c10::DataPtr allocate(size_t bytes) { return c10::GetCPUAllocator()->allocate(bytes); }

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Outlives main(): freed when the statics of this file are destroyed, long after its DeviceMemory.
torch::Tensor survivor;

TEST(DeviceMemory, ServesTheThreadOnWhichAUseStands) {
  DeviceMemory memory;
  torch::Tensor before = torch::ones({1024});
  EXPECT_EQ(memory.account().in_use, 0);
  torch::Tensor mine;
  {
    DeviceMemory::Use use(memory);
    mine = torch::ones({1024});
    std::thread([] { torch::ones({1024}); }).join();
    EXPECT_EQ(memory.account().in_use, 4096);
    EXPECT_EQ(memory.account().peak, 4096) << "the other thread has no Use";
  }
  torch::Tensor after = torch::ones({1024});
  EXPECT_EQ(memory.account().in_use, 4096);
  mine.reset();
  EXPECT_EQ(memory.account().in_use, 0);
}

TEST(DeviceMemory, LeavesAllocationsWithoutAUseAsTheyWere) {
  DeviceMemory memory;
  c10::Allocator* const own = c10::GetDefaultCPUAllocator();
  for (size_t bytes : {0, 1, 100, 5000000}) {
    const c10::DataPtr expected = own->allocate(bytes);
    const c10::DataPtr data = allocate(bytes);
    EXPECT_EQ(data.get_deleter(), expected.get_deleter());
    EXPECT_EQ(data.get_context(), data.get());
    EXPECT_EQ(data.get() == nullptr, expected.get() == nullptr);
    EXPECT_EQ(data.device(), expected.device());
  }
  EXPECT_EQ(memory.account().reserved, 0);
}

TEST(DeviceMemory, GivesNothingForZeroBytes) {
  DeviceMemory memory;
  DeviceMemory::Use use(memory);
  EXPECT_EQ(allocate(0).get(), nullptr);
  EXPECT_EQ(memory.reserve(0).get(), nullptr);
  torch::Tensor empty = torch::empty({0, 3});
  EXPECT_EQ(empty.numel(), 0);
  EXPECT_EQ(memory.account().reserved, 0);
}

TEST(DeviceMemory, AlignsEveryBlock) {
  DeviceMemory memory;
  DeviceMemory::Use use(memory);
  std::vector<c10::DataPtr> live;
  for (size_t bytes = 1; bytes < 40000; bytes += 97) {
    live.push_back(allocate(bytes));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(live.back().get()) % 64, 0u);
    std::memset(live.back().get(), 1, bytes);
  }
}

TEST(DeviceMemory, CountsBytesRoundedUpTo64) {
  DeviceMemory memory;
  DeviceMemory::Use use(memory);
  c10::DataPtr a = allocate(1);
  c10::DataPtr b = allocate(64);
  c10::DataPtr c = allocate(65);
  c10::DataPtr d = allocate(kMiB + 1);
  EXPECT_EQ(memory.account().in_use, 64 + 64 + 128 + kMiB + 64);
  d.clear();
  c10::DataPtr e = memory.reserve(100);
  EXPECT_EQ(memory.account().in_use, 64 + 64 + 128 + 128);
  EXPECT_EQ(memory.account().peak, 64 + 64 + 128 + kMiB + 64);
  memory.reset_peak();
  EXPECT_EQ(memory.account().peak, 64 + 64 + 128 + 128);
  a.clear(), b.clear(), c.clear(), e.clear();
  EXPECT_EQ(memory.account().in_use, 0);
  EXPECT_EQ(memory.account().peak, 64 + 64 + 128 + 128);
}

TEST(DeviceMemory, MapsNothingNewForAStepLikeTheLast) {
  DeviceMemory memory;
  DeviceMemory::Use use(memory);
  const auto step = [] {
    std::mt19937 random(3);
    std::vector<c10::DataPtr> live;
    std::vector<void*> places;
    for (int i = 0; i < 3000; ++i) {
      if (live.size() > 60 || (!live.empty() && random() % 3 == 0)) {
        live.erase(live.begin() + random() % live.size());
      } else {
        live.push_back(allocate(1 + random() % (1 << (random() % 23))));
        places.push_back(live.back().get());
      }
    }
    return places;
  };
  c10::DataPtr parameters = allocate(10 * kMiB);
  const std::vector<void*> places = step();
  const int64_t reserved = memory.account().reserved;
  EXPECT_EQ(step(), places);
  EXPECT_EQ(step(), places);
  EXPECT_EQ(memory.account().reserved, reserved);
}

TEST(DeviceMemory, TrimGivesFreeSegmentsBack) {
  DeviceMemory memory;
  DeviceMemory::Use use(memory);
  c10::DataPtr small = allocate(100);
  c10::DataPtr large = allocate(100 * kMiB);
  EXPECT_EQ(memory.account().reserved, 2 * kMiB + 102 * kMiB);
  large.clear();
  memory.trim();
  EXPECT_EQ(memory.account().reserved, 2 * kMiB);
  small.clear();
  memory.trim();
  EXPECT_EQ(memory.account().reserved, 0);
}

TEST(DeviceMemory, SaysWhatIsInUseWhenTheLimitIsReachedAndStaysUsable) {
  DeviceMemory memory;
  memory.set_limit(104 * kMiB);
  DeviceMemory::Use use(memory);
  c10::DataPtr plan = memory.reserve(100 * kMiB);
  const DeviceMemory::Account before = memory.account();
  EXPECT_EQ(error_of([] {
              torch::empty({3, kMiB});
            }),
            "epl: out of memory on this device: 12.0 MiB wanted, 100.0 MiB in use of a limit of "
            "104.0 MiB\n"
            "  try:      smaller micro batches, or a higher limit");
  EXPECT_EQ(memory.account().in_use, before.in_use);
  EXPECT_EQ(memory.account().peak, before.peak);
  torch::Tensor fits = torch::ones({kMiB});
  EXPECT_EQ(memory.account().in_use, 104 * kMiB) << "all of the limit can be used";
  EXPECT_NE(error_of([] { torch::ones({1}); }), "no error");
  fits.reset();
  EXPECT_EQ(torch::ones({1}).item<float>(), 1);
  memory.set_limit(0);
  EXPECT_EQ(torch::ones({3, kMiB}).numel(), 3 * kMiB);
}

TEST(DeviceMemory, SaysSoWhenTheSystemHasNoMoreAndStaysUsable) {
  DeviceMemory memory;
  DeviceMemory::Use use(memory);
  c10::DataPtr some = allocate(kMiB);
  EXPECT_EQ(error_of([] { allocate(size_t{1} << 50); }),
            "epl: out of memory on this device: 1.0 PiB wanted, 1.0 MiB in use, and the operating "
            "system gives no more\n"
            "  try:      smaller micro batches, or fewer devices on this machine");
  EXPECT_NE(error_of([] { allocate(size_t(-1)); }), "no error");
  EXPECT_EQ(memory.account().in_use, kMiB);
  EXPECT_EQ(torch::ones({kMiB}).sum().item<float>(), kMiB);
}

TEST(DeviceMemory, NestsUses) {
  DeviceMemory outer, inner;
  DeviceMemory::Use use(outer);
  c10::DataPtr a = allocate(64);
  {
    DeviceMemory::Use use(inner);
    c10::DataPtr b = allocate(128);
    EXPECT_EQ(inner.account().in_use, 128);
  }
  c10::DataPtr c = allocate(64);
  EXPECT_EQ(outer.account().in_use, 128);
  EXPECT_EQ(inner.account().peak, 128);
}

TEST(DeviceMemory, KeepsTheMemoryOfATensorThatOutlivesIt) {
  torch::Tensor tensor;
  {
    DeviceMemory memory;
    DeviceMemory::Use use(memory);
    tensor = torch::full({kMiB}, 3);
    survivor = torch::full({kMiB}, 4);
  }
  EXPECT_EQ(tensor.sum().item<int64_t>(), 3 * kMiB);
  tensor.reset();
  EXPECT_EQ(survivor.sum().item<int64_t>(), 4 * kMiB);
}

TEST(DeviceMemory, TakesBackFromAnyThread) {
  DeviceMemory memory;
  torch::Tensor tensor;
  std::thread([&] {
    DeviceMemory::Use use(memory);
    tensor = torch::ones({1000});
  }).join();
  EXPECT_EQ(memory.account().in_use, 4032);
  std::thread([moved = std::move(tensor)]() mutable { moved.reset(); }).join();
  EXPECT_EQ(memory.account().in_use, 0);
}

// The last block of an abandoned pool deletes it, whichever thread frees it.
TEST(DeviceMemory, GoesWithItsLastBlockOnWhateverThread) {
  for (int round = 0; round < 50; ++round) {
    std::vector<c10::DataPtr> blocks[3];
    {
      DeviceMemory memory;
      DeviceMemory::Use use(memory);
      for (int i = 0; i < 60; ++i) blocks[i % 3].push_back(allocate(64 << (i % 10)));
    }
    std::vector<std::thread> threads;
    for (auto& mine : blocks) threads.emplace_back([&mine] { mine.clear(); });
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(DeviceMemory, ServesTwoDevicesAtOnce) {
  DeviceMemory memories[2];
  std::vector<c10::DataPtr> left[2];  // freed by the other thread, while this one allocates
  std::atomic<int> made{0};
  const auto run = [&](int device) {
    DeviceMemory::Use use(memories[device]);
    for (int i = 0; i < 500; ++i) left[device].push_back(allocate(100 + i * 16));
    ++made;
    while (made < 2) std::this_thread::yield();
    std::mt19937 random(device);
    std::map<char*, std::pair<size_t, c10::DataPtr>> live;
    for (int i = 0; i < 20000; ++i) {
      std::vector<c10::DataPtr>& others = left[1 - device];
      if (!others.empty()) others.pop_back();
      if (live.size() < 50 || (live.size() < 200 && random() % 2 == 0)) {
        const size_t bytes = 1 + random() % (1 << (random() % 18));
        c10::DataPtr data = allocate(bytes);
        char* const begin = static_cast<char*>(data.get());
        std::memset(begin, device + 1, bytes);
        live[begin] = {bytes, std::move(data)};
      } else {
        const auto victim = std::next(live.begin(), random() % live.size());
        const size_t bytes = victim->second.first;
        for (size_t at : {size_t{0}, bytes / 2, bytes - 1}) {
          if (victim->first[at] != device + 1) return false;  // written by someone else
        }
        live.erase(victim);
      }
    }
    return true;
  };
  bool other = false;
  std::thread thread([&] { other = run(1); });
  EXPECT_TRUE(run(0));
  thread.join();
  EXPECT_TRUE(other);
  for (const DeviceMemory& memory : memories) EXPECT_EQ(memory.account().in_use, 0);
}

TEST(DeviceMemory, ServesOneDeviceToTwoThreads) {
  DeviceMemory memory;
  const auto run = [&] {
    DeviceMemory::Use use(memory);
    for (int i = 0; i < 5000; ++i) std::memset(allocate(1 + i).get(), 1, 1 + i);
  };
  std::thread thread(run);
  run();
  thread.join();
  EXPECT_EQ(memory.account().in_use, 0);
}

// raw_allocate() and raw_deallocate() know the address only, and may see different Uses.
TEST(DeviceMemory, SupportsTheRawInterfaceOfC10) {
  DeviceMemory memory;
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  void* const without = allocator->raw_allocate(100);
  void* within = nullptr;
  {
    DeviceMemory::Use use(memory);
    within = allocator->raw_allocate(100);
    EXPECT_EQ(memory.account().in_use, 128);
    allocator->raw_deallocate(without);
    allocator->raw_deallocate(nullptr);
  }
  allocator->raw_deallocate(within);
  EXPECT_EQ(memory.account().in_use, 0);

  DeviceMemory::Use use(memory);
  c10::DataPtr plan = memory.reserve(1000);
  char* const address = static_cast<char*>(plan.get());
  DeviceMemory::Expect expect;
  expect.add(address, 100);
  expect.add(address + 128, 200);
  allocator->raw_deallocate(allocator->raw_allocate(100));
  allocator->raw_deallocate(allocator->raw_allocate(200));
  EXPECT_EQ(memory.account().in_use, 1024) << "expected addresses stay the plan's";
}

class ExpectTest : public testing::Test {
 protected:
  DeviceMemory memory_;
  DeviceMemory::Use use_{memory_};
  c10::DataPtr plan_ = memory_.reserve(4096);
  char* const address_ = static_cast<char*>(plan_.get());
};

TEST_F(ExpectTest, PutsTheResultOfAnOperatorWhereThePlanWantsIt) {
  torch::Tensor input = torch::arange(-8, 8, torch::kFloat);
  const int64_t in_use = memory_.account().in_use;
  torch::Tensor result;
  {
    DeviceMemory::Expect expect;
    expect.add(address_, 64);
    result = torch::relu(input);
  }
  EXPECT_EQ(result.data_ptr(), address_);
  EXPECT_EQ(result.sum().item<float>(), 28);
  result.reset();
  EXPECT_EQ(memory_.account().in_use, in_use) << "neither making nor freeing it counted";
  EXPECT_EQ(memory_.account().hits, 1);
  EXPECT_EQ(memory_.account().misses, 0);
}

TEST_F(ExpectTest, MeetsExactSizesOnceInTheOrderAdded) {
  {
    DeviceMemory::Expect expect;
    expect.add(address_, 100);
    expect.add(address_ + 128, 200);
    expect.add(address_ + 512, 100);
    EXPECT_NE(allocate(128).get(), address_) << "rounded it would fit, but it is another size";
    EXPECT_EQ(allocate(200).get(), address_ + 128);
    EXPECT_EQ(allocate(100).get(), address_);
    EXPECT_EQ(allocate(100).get(), address_ + 512);
    EXPECT_NE(allocate(100).get(), address_);
  }
  EXPECT_EQ(memory_.account().hits, 3);
  EXPECT_EQ(memory_.account().misses, 0);
}

TEST_F(ExpectTest, CountsWhatWasNotMetAndEndsWithItsScope) {
  {
    DeviceMemory::Expect expect;
    for (int i = 0; i < 10; ++i) expect.add(address_ + 64 * i, 64);
    allocate(64);
  }
  EXPECT_EQ(memory_.account().hits, 1);
  EXPECT_EQ(memory_.account().misses, 9);
  EXPECT_NE(allocate(64).get(), address_ + 64);
}

TEST_F(ExpectTest, AsksTheInnerBeforeTheOuter) {
  DeviceMemory::Expect outer;
  outer.add(address_, 64);
  outer.add(address_ + 64, 128);
  {
    DeviceMemory::Expect inner;
    inner.add(address_ + 1024, 64);
    EXPECT_EQ(allocate(64).get(), address_ + 1024);
    EXPECT_EQ(allocate(128).get(), address_ + 64);
  }
  EXPECT_EQ(allocate(64).get(), address_);
}

TEST_F(ExpectTest, WaitsWhileAnInnerUseStands) {
  DeviceMemory other;
  {
    DeviceMemory::Expect expect;
    expect.add(address_, 64);
    {
      DeviceMemory::Use use(other);
      c10::DataPtr data = allocate(64);
      EXPECT_NE(data.get(), address_);
      EXPECT_EQ(other.account().in_use, 64);
    }
    EXPECT_EQ(allocate(64).get(), address_);
  }
  EXPECT_EQ(other.account().misses, 0);
  EXPECT_EQ(memory_.account().hits, 1);
}

TEST_F(ExpectTest, NeedsAUse) {
  std::thread([] { EXPECT_THROW(DeviceMemory::Expect(), InternalError); }).join();
}

std::vector<float> train_a_small_model() {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)),
                              torch::nn::BatchNorm2d(8), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                              torch::nn::Flatten(), torch::nn::Linear(8 * 8 * 8, 64),
                              torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})),
                              torch::nn::Linear(64, 10));
  torch::optim::AdamW optimizer(model->parameters(), 1e-3);
  std::vector<float> losses;
  for (int step = 0; step < 5; ++step) {
    torch::Tensor images = torch::randn({16, 3, 16, 16});
    torch::Tensor labels = torch::randint(10, {16}, torch::kLong);
    optimizer.zero_grad();
    torch::Tensor loss = torch::nn::functional::cross_entropy(model->forward(images), labels);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<float>());
  }
  return losses;
}

TEST(DeviceMemory, AccountsForAWholePlainProgram) {
  const std::vector<float> expected = train_a_small_model();
  DeviceMemory memory;
  std::vector<float> losses;
  {
    DeviceMemory::Use use(memory);
    losses = train_a_small_model();
  }
  EXPECT_EQ(losses, expected);
  EXPECT_EQ(memory.account().in_use, 0) << "the model and all that it made are gone";
  // Parameters, their gradients and two states of AdamW stand at once at the end of a step.
  const int64_t parameters = (8 * 27 + 8 + 8 + 8 + 512 * 64 + 64 + 64 + 64 + 64 * 10 + 10) * 4;
  EXPECT_GT(memory.account().peak, 4 * parameters);
  EXPECT_LT(memory.account().peak, 10 * parameters) << "the activations are smaller than that";

  const DeviceMemory::Account first = memory.account();
  {
    DeviceMemory::Use use(memory);
    train_a_small_model();
  }
  EXPECT_EQ(memory.account().peak, first.peak);
  EXPECT_EQ(memory.account().reserved, first.reserved);
}

TEST(DeviceMemory, GrowsATensorByResize) {
  DeviceMemory memory;
  DeviceMemory::Use use(memory);
  torch::Tensor tensor = torch::ones({16});
  tensor.resize_({4096});
  EXPECT_EQ(memory.account().in_use, 4096 * 4);
  EXPECT_EQ(tensor[15].item<float>(), 1);
}

TEST(DeviceMemory, LogLeavesOutWhatIsKeptAndCountsWhatIsFreed) {
  DeviceMemory memory;
  DeviceMemory::Use use(memory);
  c10::DataPtr older = allocate(3 * kMiB);
  c10::DataPtr kept, besides;
  const DeviceMemory::Log log;
  allocate(2 * kMiB).clear();
  kept = allocate(4 * kMiB);
  besides = allocate(kMiB);
  older.clear();  // makes no room for what is allocated meanwhile
  allocate(kMiB).clear();
  EXPECT_EQ(log.peak_besides({kept.get()}), 2 * kMiB);
  EXPECT_EQ(log.peak_besides({}), 6 * kMiB);
}

// The temporary lies where the result comes to lie later.
TEST(DeviceMemory, LogTellsBlocksOfOneAddressApart) {
  DeviceMemory memory;
  DeviceMemory::Use use(memory);
  const DeviceMemory::Log log;
  c10::DataPtr first = allocate(kMiB);
  void* const address = first.get();
  first.clear();
  const c10::DataPtr second = allocate(kMiB);
  ASSERT_EQ(second.get(), address);
  EXPECT_EQ(log.peak_besides({address}), kMiB);
}

// A temporary of the result's size takes the place that waits for the result.
TEST(DeviceMemory, LogKnowsWhoMeetsExpectations) {
  DeviceMemory memory;
  DeviceMemory::Use use(memory);
  const DeviceMemory::Log log;
  allocate(kMiB).clear();
  const c10::DataPtr besides = allocate(kMiB);
  const c10::DataPtr result = allocate(kMiB);
  EXPECT_EQ(log.peak_besides({result.get()}), 2 * kMiB);
}

TEST(DeviceMemory, TrimGivesBackPagesInWhichNothingLies) {
  DeviceMemory memory;
  DeviceMemory::Use use(memory);
  torch::Tensor large = torch::ones({16 << 20}, torch::kByte);
  const torch::Tensor small = torch::ones({64 << 10}, torch::kByte);  // keeps the segment
  const void* const data = large.data_ptr();
  large = torch::Tensor();
  EXPECT_EQ(DeviceMemory::resident(data, 16 * kMiB), 16 * kMiB);
  memory.trim();
  EXPECT_LE(DeviceMemory::resident(data, 16 * kMiB), 4 * kMiB);
  EXPECT_EQ(small.sum().item<int64_t>(), 64 << 10);
}

TEST(DeviceMemory, LapsHaveAPeakOfTheirOwn) {
  DeviceMemory memory;
  DeviceMemory::Use use(memory);
  allocate(4 * kMiB).clear();
  memory.begin_lap();
  const c10::DataPtr held = allocate(kMiB);
  EXPECT_EQ(memory.account().lap_peak, kMiB);
  EXPECT_EQ(DeviceMemory::account_here().lap_peak, kMiB);
  EXPECT_EQ(memory.account().peak, 4 * kMiB);
}

TEST(DeviceMemory, KnowsWhatItCounts) {
  DeviceMemory memory;
  const torch::Tensor outside = torch::ones({1024});
  DeviceMemory::Use use(memory);
  const torch::Tensor inside = torch::ones({1024});
  const c10::DataPtr pages = DeviceMemory::map_pages(kMiB);
  EXPECT_FALSE(DeviceMemory::counts(outside.data_ptr()));
  EXPECT_TRUE(DeviceMemory::counts(inside.data_ptr()));
  EXPECT_TRUE(DeviceMemory::counts(pages.get()));
  EXPECT_EQ(DeviceMemory::resident(outside.data_ptr(), 4096), 4096);
  EXPECT_EQ(DeviceMemory::resident(pages.get(), kMiB), 0);
}

}  // namespace
}  // namespace epl

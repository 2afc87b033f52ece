#include "comm/lane.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <vector>

#include "comm/communicator.h"

namespace epl::comm {
namespace {

TEST(Lane, MakesCallsInTheOrderOfTheirStart) {
  Watch watch;
  Lane lane("order", watch);
  std::vector<int> order;
  std::vector<std::shared_ptr<Work>> works;
  for (int i = 0; i < 100; ++i) works.push_back(lane.start([&order, i] { order.push_back(i); }));
  works.back()->wait();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  for (const auto& work : works) EXPECT_TRUE(work->done());
}

TEST(Lane, RethrowsWhatACallThrewAndGoesOn) {
  Watch watch;
  Lane lane("errors", watch);
  const auto bad = lane.start([] { throw std::out_of_range("of the call"); });
  const auto good = lane.start([] {});
  EXPECT_THROW(bad->wait(), std::out_of_range);
  EXPECT_THROW(bad->wait(), std::out_of_range) << "and again";
  EXPECT_NO_THROW(good->wait());
}

TEST(Lane, NamesItsThread) {
  Watch watch;
  Lane lane("a name that is too long", watch);
  std::string name;
  lane.start([&] {
        char letters[16] = {};
        pthread_getname_np(pthread_self(), letters, sizeof letters);
        name = letters;
      })
      ->wait();
  EXPECT_EQ(name, "a name that is ");
}

TEST(Lane, EndsItsCallsBeforeItEnds) {
  Watch watch;
  int calls = 0;
  {
    Lane lane("drained", watch);
    for (int i = 0; i < 10; ++i) lane.start([&] { ++calls; });
  }
  EXPECT_EQ(calls, 10);
}

TEST(Lane, GivesUpAtTheDeadline) {
  Watch watch;
  std::promise<void> end;
  Lane lane("late", watch, std::chrono::milliseconds(20));
  const auto work = lane.start([&] { end.get_future().wait(); });
  std::thread releases([&] {
    // The waiter gives the call time to end: its tensors are in use until then.
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    end.set_value();
  });
  EXPECT_THROW(work->wait(), JobFailed);
  EXPECT_TRUE(work->done());
  releases.join();
}

TEST(Lane, EndsWaitingCallsWhenTheWatchFails) {
  Watch watch;
  const auto ends = make_local_communicators(2, watch, {"test", std::chrono::minutes(1)});
  Lane lane("fails", watch);
  const auto waits = lane.start([&] { ends[0]->barrier(); });
  bool begun = false;
  const auto not_begun = lane.start([&] { begun = true; });
  watch.fail(JobFailed("worker 1 is gone"));
  EXPECT_THROW(waits->wait(), JobFailed);
  EXPECT_THROW(not_begun->wait(), JobFailed);
  EXPECT_FALSE(begun);
}

TEST(Lane, CommunicatesWhileTheDeviceComputes) {
  Watch watch;
  const auto ends = make_local_communicators(2, watch, {"test", std::chrono::minutes(1)});
  std::vector<std::thread> devices;
  for (const auto& end : ends) {
    devices.emplace_back([&end, &watch] {
      Lane lane("lane", watch);
      std::vector<at::Tensor> tensors;
      std::vector<std::shared_ptr<Work>> works;
      for (int i = 0; i < 50; ++i) {
        tensors.push_back(at::full({100}, end->rank() + i, at::kFloat));
        works.push_back(lane.start(
            [&, i] { end->all_reduce({tensors[static_cast<size_t>(i)]}, ReduceOp::kSum); }));
        works.back()->wait();
        EXPECT_EQ(tensors.back()[0].item<float>(), static_cast<float>(2 * i + 1));
      }
    });
  }
  for (auto& device : devices) device.join();
}

}  // namespace
}  // namespace epl::comm

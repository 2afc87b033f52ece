// Groups of devices over the devices of one and of several workers, which are real processes.
#include "runtime/device_groups.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <stdexcept>

#include "base/text.h"
#include "job/job.h"
#include "runtime/collectives.h"
#include "runtime/connections.h"
#include "tests/parity/parity.h"

namespace epl {
namespace {

using parity::run_on_workers;
using Groups = std::vector<std::vector<int>>;

at::Tensor all_reduce(const at::Tensor& x, const std::string& axis = kPartAxis) {
  std::vector<c10::IValue> stack = {x, "sum", axis};
  c10::Dispatcher::singleton().findSchemaOrThrow("epl::all_reduce", "").callBoxed(&stack);
  return stack.at(0).toTensor();
}

at::Tensor all_gather(const at::Tensor& x, int64_t dim, const std::vector<int64_t>& pieces) {
  std::vector<c10::IValue> stack = {x, dim, pieces, kPartAxis};
  c10::Dispatcher::singleton().findSchemaOrThrow("epl::all_gather", "").callBoxed(&stack);
  return stack.at(0).toTensor();
}

// Each device of a group hands in its number.
void check_group(Communicator& end, const std::vector<int>& group, int device) {
  const CollectiveScope scope({{kPartAxis, &end}});
  EXPECT_EQ(end.size(), static_cast<int>(group.size()));
  EXPECT_EQ(group[static_cast<size_t>(end.rank())], device);
  const int sum = std::accumulate(group.begin(), group.end(), 0);
  for (int i = 0; i < 5; ++i) {
    const at::Tensor total = all_reduce(at::full({3, 500}, device + i, at::kFloat));
    EXPECT_TRUE(total.eq(sum + i * end.size()).all().item<bool>()) << device << ", " << i;
  }
  std::vector<int64_t> pieces;
  std::vector<at::Tensor> parts;
  for (const int each : group) {
    pieces.push_back(each % 3);
    parts.push_back(at::full({2, each % 3}, each, at::kFloat));
  }
  const at::Tensor mine = parts[static_cast<size_t>(end.rank())];
  EXPECT_TRUE(all_gather(mine, 1, pieces).equal(at::cat(parts, 1))) << device;
}

void run_groups(const std::vector<int>& workers, const Groups& groups) {
  SCOPED_TRACE(join(workers, ", "));
  run_on_workers(workers, [&](int worker) {
    epl::init();
    const std::shared_ptr<Job> job = Job::current();
    DeviceGroups ends(job->links(Config()), groups);
    const int first = std::accumulate(workers.begin(), workers.begin() + worker, 0);
    job->team().run([&](int local) {
      const int device = first + local;
      Communicator* end = ends.of(device);
      for (const std::vector<int>& group : groups) {
        if (std::count(group.begin(), group.end(), device) == 0) continue;
        ASSERT_NE(end, nullptr);
        check_group(*end, group, device);
        return;
      }
      EXPECT_EQ(end, nullptr);
    });
    if (job->workers() != nullptr) job->workers()->barrier();
  });
}

TEST(DeviceGroups, TalkWithinAndAcrossWorkers) {
  run_groups({2}, {{0, 1}});
  run_groups({2}, {{1, 0}});
  run_groups({3}, {{0}, {1, 2}});
  run_groups({1, 1}, {{0, 1}});
  run_groups({1, 1, 1}, {{2, 0}});
  run_groups({2, 2}, {{0, 1, 2, 3}});
  run_groups({2, 2}, {{0, 1}, {2, 3}});
  run_groups({2, 2}, {{0, 2}, {1, 3}});
  run_groups({2, 2}, {{3, 1}, {0, 2}});
  run_groups({1, 3}, {{0, 1, 2, 3}});
  run_groups({1, 3}, {{0, 3}, {1, 2}});
}

// Two replicas of two parts. Each device hands in its number, first to those of its replica, then
// to those of its part.
void run_along_axes(const std::vector<int>& workers, bool by_replica) {
  SCOPED_TRACE(join(workers, ", "));
  run_on_workers(workers, [&](int worker) {
    epl::init();
    const std::shared_ptr<Job> job = Job::current();
    Placement placement;
    placement.replicas = 2;
    placement.role_devices = {1, 1};
    placement.role_stages = {0, 0};
    placement.by_replica = by_replica;
    Connections connections(job->links(Config()), placement);
    connections.make_groups_along(kReplicaAxis);
    const int first = std::accumulate(workers.begin(), workers.begin() + worker, 0);
    job->team().run([&](int local) {
      const int device = first + local;
      const CollectiveScope scope(connections.groups_of(device));
      for (const char* axis : {kPartAxis, kReplicaAxis}) {
        const std::vector<int> group = placement.group_along(axis, device);
        const int sum = std::accumulate(group.begin(), group.end(), 0);
        const at::Tensor total = all_reduce(at::full({3}, device, at::kLong), axis);
        EXPECT_TRUE(total.eq(sum).all().item<bool>()) << device << " along " << axis;
      }
    });
    if (job->workers() != nullptr) job->workers()->barrier();
  });
}

TEST(DeviceGroups, TalkAlongTheAxesOfTheirMesh) {
  for (const std::vector<int>& workers : {std::vector<int>{4}, {2, 2}, {1, 3}}) {
    run_along_axes(workers, true);
    run_along_axes(workers, false);
  }
}

// A device that fails in the middle of a step, while another one waits for it.
TEST(DeviceGroups, EndAtOnceWhereADeviceOfTheWorkerFails) {
  run_on_workers({3}, [&](int) {
    epl::init();
    const std::shared_ptr<Job> job = Job::current();
    DeviceGroups groups(job->links(Config{{"communication.wait_seconds", 3600}}), {{0, 1, 2}});
    for (int round = 0; round < 3; ++round) {
      std::atomic<int> cancelled{0};
      const auto work = [&](int device) {
        const CollectiveScope scope({{kPartAxis, groups.of(device)}});
        try {
          // The others may hear of it before they have left this one.
          all_reduce(at::ones({10}));
          if (device == 1) throw std::runtime_error("device 1 cannot go on");
          all_reduce(at::ones({10}));
        } catch (const Cancelled&) {
          ++cancelled;
          throw;
        }
      };
      EXPECT_THAT([&] { job->team().run(work); },
                  ::testing::ThrowsMessage<std::runtime_error>("device 1 cannot go on"));
      EXPECT_EQ(cancelled, 2);
      groups.renew();
      job->team().run([&](int device) { check_group(*groups.of(device), {0, 1, 2}, device); });
    }
  });
}

// The device that fails and the one that waits are in different groups, each over two workers.
TEST(DeviceGroups, EndOnAllWorkersWhereADeviceFails) {
  run_on_workers({2, 2}, [&](int worker) {
    epl::init();
    const std::shared_ptr<Job> job = Job::current();
    DeviceGroups groups(job->links(Config{{"communication.wait_seconds", 3600}}), {{0, 2}, {1, 3}});
    const auto work = [&](int local) {
      const int device = worker * 2 + local;
      const CollectiveScope scope({{kPartAxis, groups.of(device)}});
      all_reduce(at::ones({10}));
      if (device == 1) throw std::runtime_error("device 1 cannot go on");
      if (device == 2) return;
      try {
        all_reduce(at::ones({10}));  // device 0 waits for 2, 3 for 1
      } catch (const Cancelled&) {
        EXPECT_EQ(device, 0);
        throw;
      }
    };
    try {
      job->team().run(work);
      ADD_FAILURE() << "worker " << worker << " did not hear of it";
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("device 1 cannot go on"));
      job->membership()->report_failure(error.what());
    }
  });
}

}  // namespace
}  // namespace epl

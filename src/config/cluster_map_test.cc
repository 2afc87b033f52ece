#include "config/cluster_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/text.h"

namespace epl {
namespace {

class RandomClusters {
 public:
  explicit RandomClusters(unsigned seed) : random_(seed) {}

  ClusterDescription next() {
    ClusterDescription cluster;
    cluster.name = "random";
    for (int64_t kind = 0, kinds = count(3); kind < kinds; ++kind) {
      DeviceKind& made = cluster.kinds.emplace_back();
      made.name = concat("kind ", kind);
      made.flops["f32"] = static_cast<double>(1 + kind);
      made.memory_gbps = 1;
    }
    cluster.links.resize(3);
    int64_t hosts = 0;
    for (int64_t run = 0, runs = count(4); run < runs; ++run) {
      HostRun& made = cluster.hosts.emplace_back();
      made.count = count(5);
      hosts += made.count;
      for (int64_t i = 0, devices = count(3); i < devices; ++i) {
        made.devices.push_back({static_cast<size_t>(count(cluster.kinds.size())) - 1, count(4)});
      }
    }
    int64_t joined = 1;
    while (joined < hosts) {
      joined *= 1 + count(3);
      cluster.levels.push_back({joined, static_cast<size_t>(count(3)) - 1});
    }
    if (count(2) == 1) cluster.workers = ClusterDescription::Workers::kHost;
    return cluster;
  }

  int64_t count(int64_t most) { return 1 + static_cast<int64_t>(random_() % most); }

 private:
  std::mt19937 random_;
};

// Device by device, host by host.
std::vector<DevicePlace> places_by_loops(const ClusterDescription& cluster) {
  std::vector<DevicePlace> places;
  int64_t host = 0;
  for (size_t run = 0; run < cluster.hosts.size(); ++run) {
    for (int64_t i = 0; i < cluster.hosts[run].count; ++i, ++host) {
      int64_t index = 0;
      for (const DevicesOfKind& devices : cluster.hosts[run].devices) {
        for (int64_t k = 0; k < devices.count; ++k) {
          places.push_back({host, index++, devices.kind, run});
        }
      }
    }
  }
  return places;
}

TEST(ClusterMap, FindsPlacesAsLoopsDo) {
  RandomClusters clusters(1);
  for (int round = 0; round < 2000; ++round) {
    const ClusterDescription cluster = clusters.next();
    const ClusterMap map(cluster);
    const std::vector<DevicePlace> places = places_by_loops(cluster);
    ASSERT_EQ(map.devices(), static_cast<int64_t>(places.size()));
    ASSERT_EQ(map.hosts(), places.back().host + 1);
    for (size_t device = 0; device < places.size(); ++device) {
      const auto number = static_cast<int64_t>(device);
      const DevicePlace found = map.place_of(number);
      ASSERT_EQ(found.host, places[device].host);
      ASSERT_EQ(found.index, places[device].index);
      ASSERT_EQ(found.kind, places[device].kind);
      ASSERT_EQ(found.run, places[device].run);
      ASSERT_EQ(map.run_of(found.host), found.run);
      ASSERT_EQ(map.first_device_of(found.host) + found.index, number);
    }
  }
}

TEST(ClusterMap, FindsLevelsAsLoopsDo) {
  RandomClusters clusters(2);
  for (int round = 0; round < 2000; ++round) {
    const ClusterDescription cluster = clusters.next();
    const ClusterMap map(cluster);
    const std::vector<DevicePlace> places = places_by_loops(cluster);
    for (int pair = 0; pair < 20; ++pair) {
      const int64_t a = clusters.count(map.devices()) - 1;
      const int64_t b = clusters.count(map.devices()) - 1;
      const int64_t host_a = places[static_cast<size_t>(a)].host;
      const int64_t host_b = places[static_cast<size_t>(b)].host;
      int level = 0;  // the first one in which some group has both hosts
      bool joined = host_a == host_b;
      while (!joined) {
        const int64_t hosts = cluster.levels.at(static_cast<size_t>(level++)).hosts;
        for (int64_t first = 0; first < map.hosts() && !joined; first += hosts) {
          joined = first <= std::min(host_a, host_b) && std::max(host_a, host_b) < first + hosts;
        }
      }
      ASSERT_EQ(map.level_between(a, b), level);
    }
  }
}

TEST(ClusterMap, GivesTheShapeThatCompileTakes) {
  RandomClusters clusters(3);
  for (int round = 0; round < 2000; ++round) {
    const ClusterDescription cluster = clusters.next();
    const ClusterMap map(cluster);
    const std::vector<DevicePlace> places = places_by_loops(cluster);
    const ClusterShape shape = shape_of(map);
    const bool by_host = cluster.workers == ClusterDescription::Workers::kHost;
    ASSERT_EQ(shape.total_gpu_num, map.devices());
    ASSERT_EQ(shape.worker_num, by_host ? map.hosts() : map.devices());
    size_t device = 0;
    for (size_t worker = 0; worker < shape.worker_devices.size(); ++worker) {
      double slowest = 1e9;
      for (int i = 0; i < shape.worker_devices[worker]; ++i, ++device) {
        slowest = std::min(slowest, static_cast<double>(1 + places[device].kind));
        if (shape.worker_num > 1) {
          ASSERT_EQ(shape.worker_hosts[worker], concat("host ", places[device].host));
        }
      }
      ASSERT_EQ(shape.worker_speeds[worker].flops_per_second, slowest);
    }
    ASSERT_EQ(device, places.size());
  }
}

TEST(ClusterMap, InterpolatesEfficiencyAndNeverMakesMoreWorkFaster) {
  const EfficiencyCurve curve = {{100, 0.9}, {10, 0.5}, {1, 0.1}};
  EXPECT_DOUBLE_EQ(efficiency_at({}, 5), 1);
  EXPECT_DOUBLE_EQ(efficiency_at(curve, 1e6), 0.9);
  EXPECT_DOUBLE_EQ(efficiency_at(curve, 100), 0.9);
  EXPECT_DOUBLE_EQ(efficiency_at(curve, 10), 0.5);
  EXPECT_NEAR(efficiency_at(curve, std::sqrt(1000.0)), std::sqrt(0.45), 1e-12);
  EXPECT_DOUBLE_EQ(efficiency_at(curve, 0.01), 0.1);
  double before = 0;
  for (double size = 0.001; size < 1e4; size *= 1.01) {
    const double time = size / efficiency_at(curve, size);
    EXPECT_GE(time, before);
    before = time;
  }
}

TEST(ClusterMap, GivesAJobTheSpeedsOfTheFirstDevices) {
  ClusterDescription cluster;
  cluster.kinds.resize(2);
  cluster.kinds[0].flops["f32"] = 10;
  cluster.kinds[1].flops["f32"] = 3;
  cluster.links.resize(2);
  cluster.links[1].gbps = 7;
  cluster.hosts.resize(1);
  cluster.hosts[0].devices = {{0, 1}, {1, 3}};
  cluster.hosts[0].between_workers = 1;
  ClusterShape job;
  job.worker_num = 2;
  job.total_gpu_num = 3;
  job.worker_devices = {1, 2};
  describe_speeds(job, ClusterMap(cluster), "a test");
  ASSERT_EQ(job.worker_speeds.size(), 2u);
  EXPECT_EQ(job.worker_speeds[0].flops_per_second, 10);
  EXPECT_EQ(job.worker_speeds[1].flops_per_second, 3);
  EXPECT_EQ(job.link_in_host.bytes_per_second, 7e9);
  EXPECT_EQ(job.worker_num, 2);  // what the job is stays
  // What memory moves is read and written.
  cluster.links[1].algorithm = LinkAlgorithm::kSharedMemory;
  describe_speeds(job, ClusterMap(cluster), "a test");
  EXPECT_DOUBLE_EQ(job.link_in_host.bytes_per_second, 7e9 / 5);
  EXPECT_DOUBLE_EQ(job.link_in_host.sent_bytes_per_second, 7e9 / 2);
}

}  // namespace
}  // namespace epl

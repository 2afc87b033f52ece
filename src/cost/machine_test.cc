#include "cost/machine.h"

#include <gtest/gtest.h>

namespace epl {
namespace {

// Workers of 2, 1 and 1 devices; the first two on one host.
ClusterShape three_workers() {
  ClusterShape cluster;
  cluster.worker_num = 3;
  cluster.total_gpu_num = 4;
  cluster.worker_devices = {2, 1, 1};
  cluster.worker_hosts = {"a", "a", "b"};
  cluster.link_in_worker.bytes_per_second = 3;
  cluster.link_in_host.bytes_per_second = 2;
  cluster.link_between_hosts.bytes_per_second = 1;
  cluster.worker_speeds = {{100, 10, 1}, {50, 20, 2}};
  return cluster;
}

TEST(Machine, HasTheLinkOfItsFarthestDevices) {
  const ClusterShape cluster = three_workers();
  EXPECT_EQ(machine_of(cluster, {0, 1}).link.bytes_per_second, 3);
  EXPECT_EQ(machine_of(cluster, {1, 2}).link.bytes_per_second, 2);
  EXPECT_EQ(machine_of(cluster, {2, 3}).link.bytes_per_second, 1);
  EXPECT_EQ(machine_of(cluster).link.bytes_per_second, 1);
}

TEST(Machine, IsAsSlowAsItsSlowestDevice) {
  const ClusterShape cluster = three_workers();
  EXPECT_EQ(machine_of(cluster, {0, 1}).device.flops_per_second, 100);
  const Machine both = machine_of(cluster, {1, 2});
  EXPECT_EQ(both.device.flops_per_second, 50);
  EXPECT_EQ(both.device.bytes_per_second, 10);
  EXPECT_EQ(both.device.seconds_per_call, 2);
  EXPECT_EQ(machine_of(cluster, {3}).device.flops_per_second, 50);  // as the one before
}

TEST(Machine, HasDevicesThatTheClusterHasNot) {
  EXPECT_EQ(machine_of(ClusterShape(), {0, 1, 2, 3}).link.bytes_per_second,
            Link().bytes_per_second);
}

}  // namespace
}  // namespace epl

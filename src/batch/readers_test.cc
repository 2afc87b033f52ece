#include "batch/readers.h"

#include <gtest/gtest.h>

namespace epl {
namespace {

Cluster cluster_of(std::vector<int> devices, int worker) {
  Cluster cluster;
  cluster.worker_num = static_cast<int>(devices.size());
  cluster.worker_index = worker;
  cluster.total_gpu_num = 0;
  for (int each : devices) cluster.total_gpu_num += each;
  cluster.worker_hosts.assign(devices.size(), "");
  cluster.worker_devices = std::move(devices);
  return cluster;
}

Placement two_stages(int replicas, int first_stage_devices = 1) {
  Placement placement;
  placement.replicas = replicas;
  placement.role_devices = {first_stage_devices, 1};
  placement.role_stages = {0, 1};
  return placement;
}

TEST(Readers, AWorkerWithoutAFirstStageHasTheOneThatFeedsIt) {
  const Placement placement = two_stages(1);
  for (int worker : {0, 1}) {
    EXPECT_EQ(reader_for(worker, placement, cluster_of({1, 1}, worker)), 0);
  }
  EXPECT_FALSE(reads_rows(1, placement, cluster_of({1, 1}, 0)));
}

TEST(Readers, AWorkerWithoutAFirstStageRecordsByTheShapeOfThoseThatRead) {
  const Placement placement = two_stages(1, 2);
  const Shares reading = shares_here(placement, cluster_of({2, 1}, 0), Config());
  const Shares fed = shares_here(placement, cluster_of({2, 1}, 1), Config());
  EXPECT_EQ(reading.slices, 2);
  EXPECT_EQ(fed.slices, 2);
  EXPECT_EQ(fed.replicas, 1);
}

TEST(Readers, DevicesThatOperatorsAreCutOverShareAMicroBatch) {
  Placement placement;
  placement.replicas = 2;
  placement.role_devices = {1, 1};
  placement.role_stages = {0, 0};
  const Shares shares = shares_here(placement, cluster_of({4}, 0), Config());
  EXPECT_EQ(shares.slices, 1);
  EXPECT_EQ(shares.replicas, 2);
}

TEST(Readers, ADeviceWorksOnTheBatchOfItsReplica) {
  const Cluster cluster = cluster_of({4}, 0);
  std::vector<size_t> batches;
  for (int device = 0; device < 4; ++device) {
    batches.push_back(batch_of(device, two_stages(2), cluster).value());
  }
  EXPECT_EQ(batches, (std::vector<size_t>{0, 0, 1, 1}));
}

TEST(Readers, ADeviceWhoseRowsAnotherWorkerReadsHasNoBatch) {
  EXPECT_EQ(batch_of(0, two_stages(1), cluster_of({1, 1}, 1)), std::nullopt);
}

}  // namespace
}  // namespace epl

#include "compile/placement.h"

#include <gmock/gmock.h>

#include "config/test_environment.h"

namespace epl {
namespace {

using testing::HasSubstr;

Cluster cluster_of(std::vector<int> devices) {
  Cluster cluster;
  cluster.worker_num = static_cast<int>(devices.size());
  cluster.total_gpu_num = 0;
  for (int each : devices) cluster.total_gpu_num += each;
  cluster.worker_hosts.assign(devices.size(), "");
  cluster.worker_devices = std::move(devices);
  return cluster;
}

Placement found(const std::vector<Strategy>& strategies, std::vector<int> devices,
                const Config& config = {}) {
  return find_placement(strategies, cluster_of(std::move(devices)), config);
}

std::vector<int> roles_of_devices(const Placement& placement) {
  std::vector<int> roles;
  for (int device = 0; device < placement.devices(); ++device) {
    roles.push_back(placement.place(device).role);
    EXPECT_EQ(placement.device(placement.place(device)), device);
  }
  return roles;
}

TEST(Placement, GivesEveryDeviceAReplicaWhereNothingIsAsked) {
  EXPECT_EQ(found({}, {2, 1}).replicas, 3);
  EXPECT_EQ(found({}, {2, 1}).role_devices, std::vector<int>{1});
}

TEST(Placement, RepeatsReplicasOfSeveralDevicesOverTheRest) {
  const Placement placement = found({replicate(2)}, {4, 4});
  EXPECT_EQ(placement.replicas, 4);
  EXPECT_EQ(placement.role_devices, std::vector<int>{2});
}

TEST(Placement, OfStagesLiesSideBySideOrStageByStage) {
  const std::vector<Strategy> two{replicate(1, "a"), replicate(1, "b")};
  EXPECT_EQ(roles_of_devices(found(two, {4})), (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(found(two, {8}).replicas, 4);
  const Config apart{{"cluster.device_place_prefer_intra_node", false}};
  EXPECT_EQ(roles_of_devices(found(two, {4}, apart)), (std::vector<int>{0, 0, 1, 1}));
  const std::vector<Strategy> uneven{replicate(2, "a"), replicate(1, "b")};
  EXPECT_EQ(roles_of_devices(found(uneven, {6})), (std::vector<int>{0, 0, 1, 0, 0, 1}));
  EXPECT_EQ(roles_of_devices(found(uneven, {6}, apart)), (std::vector<int>{0, 0, 0, 0, 1, 1}));
}

TEST(Placement, KnowsTheWorkersOfARole) {
  const Placement placement = found({replicate(1, "a"), replicate(1, "b")}, {1, 2, 1});
  const Cluster cluster = cluster_of({1, 2, 1});
  EXPECT_EQ(placement.workers_of(0, cluster), (std::vector<int>{0, 1}));
  EXPECT_EQ(placement.workers_of(1, cluster), (std::vector<int>{1, 2}));
  EXPECT_EQ(placement.devices_of(0, 1, cluster), std::vector<int>{2});
}

using Groups = std::vector<std::vector<int>>;

TEST(Placement, HasAMeshForEachStage) {
  const Placement placement = found({replicate(1, "a"), split(2, "b")}, {6});
  EXPECT_EQ(placement.mesh(0).str(), "replica 2 x part 1");
  EXPECT_EQ(placement.mesh(1).str(), "replica 2 x part 2");
}

TEST(Placement, GroupsDevicesAlongAxes) {
  const std::vector<Strategy> stages{replicate(1, "a"), split(2, "b")};
  const Placement near = found(stages, {6});
  EXPECT_EQ(near.group_along(kPartAxis, 5), (std::vector<int>{4, 5}));
  EXPECT_EQ(near.group_along(kReplicaAxis, 5), (std::vector<int>{2, 5}));
  EXPECT_EQ(near.groups_along(kPartAxis), (Groups{{0}, {1, 2}, {3}, {4, 5}}));
  EXPECT_EQ(near.groups_along(kReplicaAxis), (Groups{{0, 3}, {1, 4}, {2, 5}}));
  const Placement apart =
      found(stages, {6}, Config{{"cluster.device_place_prefer_intra_node", false}});
  EXPECT_EQ(apart.groups_along(kPartAxis), (Groups{{0}, {1}, {2, 4}, {3, 5}}));
  EXPECT_EQ(apart.groups_along(kReplicaAxis), (Groups{{0, 1}, {2, 3}, {4, 5}}));
}

// Rows of a stage are cut over devices that share a role.
TEST(Placement, GroupsTheDevicesOfARole) {
  const Placement placement = found({replicate(2)}, {4});
  EXPECT_EQ(placement.mesh(0).str(), "replica 2 x part 2");
  EXPECT_EQ(placement.groups_along(kPartAxis), (Groups{{0, 1}, {2, 3}}));
  EXPECT_EQ(placement.groups_along(kReplicaAxis), (Groups{{0, 2}, {1, 3}}));
}

TEST(Placement, DealsTaskGraphsOutToStages) {
  const Config config{{"pipeline.strategy", "Interleaved"}, {"pipeline.num_stages", 2}};
  const std::vector<Strategy> four{replicate(1, "a"), replicate(1, "b"), replicate(1, "c"),
                                   replicate(1, "d")};
  EXPECT_EQ(found(four, {2}, config).stages(), 2);
  EXPECT_EQ(found(four, {2}, config).chunks_per_stage, 2);
  const Config unsaid{{"pipeline.strategy", "Interleaved"}};
  EXPECT_THAT(error_of([&] { found(four, {2}, unsaid); }),
              HasSubstr("the Interleaved schedule deals 4 TaskGraphs out to stages, but not said "
                        "to how many"));
  const Config three{{"pipeline.strategy", "Interleaved"}, {"pipeline.num_stages", 3}};
  EXPECT_THAT(error_of([&] { found(four, {3}, three); }),
              HasSubstr("4 TaskGraphs cannot be dealt out evenly to 3 stages"));
}

TEST(Placement, RefusesParts) {
  EXPECT_THAT(error_of([] {
                found({replicate(2)}, {3, 3});
              }),
              HasSubstr("a replica of 2 devices cannot lie on workers with 3, 3 devices"));
  EXPECT_THAT(error_of([] { found({replicate(2)}, {3}); }),
              HasSubstr("3 devices cannot be shared out over model replicas of 2 devices"));
}

TEST(Placement, GivesEachDeviceThatOperatorsAreCutOverARole) {
  const Placement placement = found({replicate(1, "a"), split(2, "b")}, {6});
  EXPECT_EQ(placement.replicas, 2);
  EXPECT_EQ(placement.role_devices, (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(placement.role_stages, (std::vector<int>{0, 1, 1}));
  EXPECT_EQ(placement.stages(), 2);
  EXPECT_EQ(placement.parts(1), 2);
  EXPECT_TRUE(placement.splits());
  EXPECT_EQ(placement.place(5).replica, 1);
  EXPECT_EQ(placement.place(5).role, 2);
}

TEST(Placement, OfOneSplitScopeIsNoPipeline) {
  const Placement placement = found({split(2)}, {4});
  EXPECT_EQ(placement.replicas, 2);
  EXPECT_FALSE(placement.is_pipeline());
  EXPECT_TRUE(placement.has_roles());
  EXPECT_EQ(placement.devices_of_stage(0), 2);
}

}  // namespace
}  // namespace epl

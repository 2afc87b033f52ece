#include "layout/mesh.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace epl {
namespace {

TEST(Mesh, CountsItsDevicesAlongTheLastAxisFirst) {
  const Mesh mesh = mesh_of_stage(2, 3);
  EXPECT_EQ(mesh.size(), 6);
  EXPECT_EQ(mesh.str(), "replica 2 x part 3");
  int next = 0;
  for (int replica : {0, 1}) {
    for (int part : {0, 1, 2}) {
      EXPECT_EQ(mesh.index({replica, part}), next);
      EXPECT_EQ(mesh.coordinates(next++), (std::vector<int>{replica, part}));
    }
  }
}

TEST(Mesh, FindsItsAxesByName) {
  const Mesh mesh = mesh_of_stage(2, Axis(2, {3, 1}));
  ASSERT_NE(mesh.find(kPartAxis), nullptr);
  EXPECT_EQ(mesh.find(kPartAxis)->shares, (std::vector<double>{3, 1}));
  EXPECT_EQ(mesh.find(kReplicaAxis)->size, 2);
  EXPECT_EQ(mesh.find("column"), nullptr);
}

TEST(Mesh, RefusesWhatItDoesNotHave) {
  EXPECT_THROW(mesh_of_stage(2, 3).index({0, 3}), InternalError);
  EXPECT_THROW(mesh_of_stage(2, 3).index({0}), InternalError);
  EXPECT_THROW(mesh_of_stage(2, 3).coordinates(6), InternalError);
  EXPECT_THROW(Mesh({2, 3}), InternalError);  // both are called "part"
}

TEST(Axis, RefusesSharesThatAreNotOfItsDevices) {
  EXPECT_THROW(Axis(3, {1, 2}), InternalError);
  EXPECT_THROW(Axis(2, {1, 0}), InternalError);
}

TEST(PiecesOf, SharesFollowThem) {
  using Lengths = std::vector<int64_t>;
  const Axis unequal(2, {3, 1});
  EXPECT_EQ(pieces_of(8, unequal), (Lengths{6, 2}));
  EXPECT_EQ(pieces_of(9, unequal), (Lengths{7, 2}));   // 6.75 and 2.25
  EXPECT_EQ(pieces_of(10, unequal), (Lengths{8, 2}));  // 7.5 and 2.5: the first of equal ones
  EXPECT_EQ(pieces_of(0, unequal), (Lengths{0, 0}));
  EXPECT_EQ(pieces_of(8, Axis(3, {2, 1, 1})), (Lengths{4, 2, 2}));
  EXPECT_EQ(pieces_of(10, Axis(3, {1, 5, 1})), (Lengths{2, 7, 1}));  // 1.43, 7.14, 1.43
}

TEST(PiecesOf, SharesLeaveNobodyWithoutAnElement) {
  using Lengths = std::vector<int64_t>;
  EXPECT_EQ(pieces_of(2, Axis(2, {3, 1})), (Lengths{1, 1}));
  EXPECT_EQ(pieces_of(4, Axis(3, {1, 100, 1})), (Lengths{1, 2, 1}));
  EXPECT_EQ(pieces_of(2, Axis(3, {1, 100, 1})), (Lengths{0, 2, 0}));  // there are too few
}

TEST(PiecesOf, SharesThatAreEqualGiveEvenPieces) {
  for (int parts : {1, 2, 3, 7}) {
    const Axis equal(parts, std::vector<double>(static_cast<size_t>(parts), 90e9));
    for (int64_t size : {7, 8, 100, 1001}) {
      EXPECT_EQ(pieces_of(size, equal), pieces_of(size, parts)) << size << " over " << parts;
    }
  }
}

TEST(Axis, SpeedsUpByWhatTheSlowestDeviceIsSpared) {
  EXPECT_EQ(Axis(3).speedup(), 3);
  EXPECT_EQ(Axis(2, {3, 1}).speedup(), 4);
}

}  // namespace
}  // namespace epl

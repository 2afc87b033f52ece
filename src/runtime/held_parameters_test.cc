#include "runtime/held_parameters.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

namespace epl {
namespace {

// Two workers, as threads, with a stage of a pipeline each.
void on_two_workers(const std::function<void(const Connections& connections)>& work) {
  Watch watch;
  CommunicatorOptions options;
  options.deadline = std::chrono::seconds(60);
  auto ends = make_local_communicators(2, watch, options);
  const auto run = [&](int index) {
    Cluster cluster;
    cluster.worker_num = 2;
    cluster.worker_index = index;
    cluster.total_gpu_num = 2;
    cluster.worker_devices = {1, 1};
    cluster.worker_hosts = {"", ""};
    DeviceTeam team(std::vector<CoreShare>(1));
    const std::vector<Route> none;
    Placement placement;
    placement.role_devices = {1, 1};
    placement.role_stages = {0, 1};
    placement.role_asked_by = {"", ""};
    const Connections connections({cluster, watch, team, nullptr,
                                   ends[static_cast<size_t>(index)].get(), none, options.deadline},
                                  placement);
    work(connections);
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
}

// A leaf that role 0 updates; a worker that has not got it sees -1.
HeldParameter held_by_role_0(int leaf, const Connections& connections) {
  HeldParameter held;
  held.leaf = leaf;
  held.roles = {0};
  held.readers = {0};
  held.parameter = at::full({3}, connections.cluster().worker_index == 0 ? leaf : -1, at::kFloat);
  return held;
}

float seen(const HeldParameter& held) { return held.parameter[0].item<float>(); }

TEST(Gathering, BringsWhatTheInstructionsOfAProgramName) {
  Instruction nothing;
  nothing.kind = Instruction::Kind::kGather;
  Instruction gather = nothing;
  gather.leaves = {5};
  EndPhase phase;
  phase.kind = Instruction::Kind::kGather;
  phase.instructions = {{0, &nothing}, {1, &gather}};
  on_two_workers([&](const Connections& connections) {
    const HeldParameters held = {held_by_role_0(4, connections), held_by_role_0(5, connections),
                                 held_by_role_0(-1, connections)};
    gathering_of(connections, held, phase, Gather::kRead).run();
    const bool first = connections.cluster().worker_index == 0;
    EXPECT_EQ(seen(held[0]), first ? 4 : -1) << "nobody names it";
    EXPECT_EQ(seen(held[1]), 5);
  });
}

TEST(Gathering, BringsAllOrWhatIsRead) {
  on_two_workers([&](const Connections& connections) {
    const bool first = connections.cluster().worker_index == 0;
    HeldParameters held = {held_by_role_0(4, connections), held_by_role_0(5, connections)};
    held[1].readers = {0, 1};
    gathering_of(connections, held, Gather::kRead).run();
    EXPECT_EQ(seen(held[0]), first ? 4 : -1);
    EXPECT_EQ(seen(held[1]), 5);
    gathering_of(connections, held, Gather::kAll).run();
    EXPECT_EQ(seen(held[0]), 4);
  });
}

// Each worker has one half, and gets the other.
TEST(Gathering, BringsPieces) {
  on_two_workers([&](const Connections& connections) {
    const int here = connections.cluster().worker_index;
    HeldParameter held;
    held.leaf = 0;
    held.roles = {0, 1};
    held.shards = {{1, {0, 2}, 4}, {1, {2, 2}, 4}};
    held.parameter = at::full({3, 4}, -1, at::kFloat);
    held.parameter.narrow(1, 2 * here, 2).fill_(here);
    gathering_of(connections, {held}, Gather::kRead).run();
    EXPECT_EQ(held.parameter.sum().item<float>(), here == 0 ? -6 : 0) << "nobody reads the other";
    gathering_of(connections, {held}, Gather::kAll).run();
    EXPECT_TRUE(held.parameter.narrow(1, 0, 2).eq(0).all().item<bool>());
    EXPECT_TRUE(held.parameter.narrow(1, 2, 2).eq(1).all().item<bool>());
    EXPECT_EQ(bytes_of_others(connections, {held}), 3 * 2 * 4);
  });
}

}  // namespace
}  // namespace epl

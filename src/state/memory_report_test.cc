#include "state/memory_report.h"

#include <gtest/gtest.h>

#include "program/test_plan.h"

namespace epl {
namespace {

constexpr int64_t kWeight = 4096 * 1024 * 4;  // bytes of a large parameter

TensorType f32(std::vector<int64_t> sizes) { return test_plan::type(std::move(sizes)); }

ClusterShape cluster_of(std::vector<int> devices) {
  ClusterShape cluster;
  cluster.worker_num = static_cast<int>(devices.size());
  cluster.worker_devices = std::move(devices);
  return cluster;
}

// A program with the gradients of some leaves, each in a buffer of its own.
Program program_of(const std::vector<PlanLeaf>& leaves, const std::vector<int>& gradients) {
  Program program;
  program.arena_bytes = 1024;
  for (const PlanLeaf& leaf : leaves) {
    PlanLeaf& made = program.leaves.emplace_back(leaf);
    made.slot = static_cast<SlotId>(program.slots.size());
    program.slots.push_back(
        {Slot::Where::kLeaf, static_cast<int>(program.leaves.size()) - 1, f32({4})});
  }
  for (int leaf : gradients) {
    program.gradients.push_back({leaf, program.leaves[static_cast<size_t>(leaf)].slot});
  }
  return program;
}

PlanLeaf leaf(const std::string& name, Shard shard = {}) {
  PlanLeaf made;
  made.name = name;
  made.shard = shard;
  return made;
}

StateMap map_of(const std::vector<std::string>& names) {
  StateMap map;
  for (const std::string& name : names) {
    map.add({name, StateKind::kParameter, f32({4096, 1024})});
    map.add({name + "/exp_avg", StateKind::kOptimizerState, f32({4096, 1024}), StateMedium::kPages,
             name});
  }
  return map;
}

MemoryReport report_of(const Plan& plan, const Placement& placement, const ClusterShape& cluster,
                       StateMap map, bool releases = false) {
  map.place(plan);
  MemorySources sources{plan, placement, cluster, map};
  sources.releases_others = releases;
  return forecast_memory(sources);
}

// Two stages, the first trains "a", the second "b".
Plan two_stages() {
  Plan plan;
  plan.programs = {program_of({leaf("a"), leaf("b")}, {0}),
                   program_of({leaf("a"), leaf("b")}, {1})};
  plan.programs[1].stage = 1;
  return plan;
}

Placement placement_of_two(bool stages) {
  Placement placement;
  placement.role_devices = {1, 1};
  placement.role_stages = {0, stages ? 1 : 0};
  placement.role_asked_by = {"", ""};
  return placement;
}

TEST(MemoryReport, CountsWhatDevicesShareOnce) {
  const MemoryReport report =
      report_of(two_stages(), placement_of_two(true), cluster_of({2}), map_of({"a", "b"}));
  ASSERT_EQ(report.workers.size(), 1U);
  const auto& worker = report.workers[0];
  EXPECT_EQ(worker.shared[MemoryKind::kParameters], 2 * kWeight);
  EXPECT_EQ(worker.shared[MemoryKind::kOptimizerState], 2 * kWeight);
  ASSERT_EQ(worker.devices.size(), 2U);
  EXPECT_EQ(worker.devices[0].bytes.total(), 1024);
  EXPECT_EQ(worker.peak(), 4 * kWeight + 2 * 1024);
}

TEST(MemoryReport, PutsStatesWhereTheirParametersAreUpdated) {
  const MemoryReport report =
      report_of(two_stages(), placement_of_two(true), cluster_of({1, 1}), map_of({"a", "b"}));
  for (const auto& worker : report.workers) {
    EXPECT_EQ(worker.shared[MemoryKind::kParameters], 2 * kWeight);
    EXPECT_EQ(worker.shared[MemoryKind::kOptimizerState], kWeight);
  }
}

TEST(MemoryReport, LeavesOutParametersOfOthersWhereTheyAreReleased) {
  const MemoryReport report = report_of(two_stages(), placement_of_two(true), cluster_of({1, 1}),
                                        map_of({"a", "b"}), /*releases=*/true);
  for (const auto& worker : report.workers) {
    EXPECT_EQ(worker.shared[MemoryKind::kParameters], kWeight);
  }
}

TEST(MemoryReport, CountsPiecesOfWhatIsCutOverWorkers) {
  Plan plan;
  plan.programs = {program_of({leaf("a", {0, {0, 1024}, 4096})}, {0}),
                   program_of({leaf("a", {0, {1024, 3072}, 4096})}, {0})};
  const MemoryReport report =
      report_of(plan, placement_of_two(false), cluster_of({1, 1}), map_of({"a"}));
  EXPECT_EQ(report.workers[0].shared[MemoryKind::kOptimizerState], kWeight / 4);
  EXPECT_EQ(report.workers[1].shared[MemoryKind::kOptimizerState], kWeight / 4 * 3);
}

TEST(MemoryReport, KnowsCopiesOfStateThatDevicesWrite) {
  Plan plan;
  plan.replicas = 2;
  plan.programs = {program_of({leaf("a"), leaf("mean")}, {0})};
  plan.programs[0].written_leaves = {1};
  Placement placement;
  placement.replicas = 2;
  StateMap map = map_of({"a"});
  map.add({"mean", StateKind::kBuffer, f32({4})});
  const MemoryReport report = report_of(plan, placement, cluster_of({2}), map);
  const auto& devices = report.workers[0].devices;
  EXPECT_EQ(devices[0].bytes[MemoryKind::kBuffers], 0) << "it has the user's own";
  EXPECT_EQ(devices[1].bytes[MemoryKind::kBuffers], 16);
  EXPECT_EQ(report.workers[0].shared[MemoryKind::kBuffers], 16);
}

TEST(MemoryReport, SumsLettersThatNobodyHasTaken) {
  Plan plan = two_stages();
  plan.micro_batches = 2;
  plan.transfers = {{0, 1, "forward 0 to forward 1", {{-1}}}};
  for (int micro_batch : {0, 1}) {
    Instruction send = test_plan::instruction(Instruction::Kind::kSend, micro_batch);
    send.slots = {0};
    plan.programs[0].instructions.push_back(send);
    send.kind = Instruction::Kind::kReceive;
    plan.programs[1].instructions.push_back(send);
  }
  const auto letters = [&](std::vector<int> workers) {
    std::vector<int64_t> bytes;
    const MemoryReport report =
        report_of(plan, placement_of_two(true), cluster_of(std::move(workers)), map_of({"a", "b"}));
    for (const auto& worker : report.workers) {
      for (const auto& device : worker.devices) {
        bytes.push_back(device.bytes[MemoryKind::kCommunication]);
      }
    }
    return bytes;
  };
  EXPECT_EQ(letters({2}), (std::vector<int64_t>{32, 0}));
  EXPECT_EQ(letters({1, 1}), (std::vector<int64_t>{32, 32})) << "on both workers";
}

TEST(MemoryReport, PrintsATable) {
  MemoryReport report =
      report_of(two_stages(), placement_of_two(true), cluster_of({2}), map_of({"a", "b"}));
  auto& worker = report.workers[0];
  worker.devices[1].bytes[MemoryKind::kSaved] = 3072;
  worker.measured_shared = 64 << 20;
  worker.devices[0].measured = 1 << 20;
  worker.devices[1].measured = 2 << 20;
  report.recording = 5 << 20;
  EXPECT_EQ(report.str(), R"(worker 0: 64.0 MiB (measured 67.0 MiB)
                            shared    device 0    device 1
  parameters              32.0 MiB           -           -
  optimizer state         32.0 MiB           -           -
  saved activations              -           -     3.0 KiB
  fragmentation                  -     1.0 KiB     1.0 KiB
  peak                    64.0 MiB     1.0 KiB     4.0 KiB
  measured                64.0 MiB     1.0 MiB     2.0 MiB
  device 0: most lives at the begin of the step
while recording: 5.0 MiB
)");
}

}  // namespace
}  // namespace epl

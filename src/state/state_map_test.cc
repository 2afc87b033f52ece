// Where things lie, as text, for plans of each layout.
#include "state/state_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "program/test_plan.h"

namespace epl {
namespace {

TensorType f32(std::vector<int64_t> sizes) { return test_plan::type(std::move(sizes)); }

// A program that reads these leaves and has a gradient of those that are marked so.
struct Use {
  std::string name;
  bool gradient = false;
  bool written = false;
  Shard shard = {};
};

// All programs know all leaves, by the same numbers.
Plan plan_of(const std::vector<std::string>& leaves,
             const std::vector<std::vector<Use>>& programs) {
  Plan plan;
  for (const auto& uses : programs) {
    Program& program = plan.programs.emplace_back();
    program.segments.emplace_back();
    for (const std::string& name : leaves) {
      PlanLeaf& leaf = program.leaves.emplace_back();
      leaf.name = name;
    }
    for (const Use& use : uses) {
      const auto at = std::find(leaves.begin(), leaves.end(), use.name);
      const auto index = static_cast<int>(at - leaves.begin());
      PlanLeaf& leaf = program.leaves[static_cast<size_t>(index)];
      leaf.shard = use.shard;
      leaf.slot = static_cast<SlotId>(program.slots.size());
      Slot& slot = program.slots.emplace_back();
      slot.where = Slot::Where::kLeaf;
      slot.index = index;
      program.segments[0].calls.push_back(
          test_plan::call("aten::relu", "", {test_plan::slots({leaf.slot})}, {}));
      if (use.gradient) program.gradients.push_back({index, leaf.slot});
      if (use.written) program.written_leaves.push_back(index);
    }
  }
  return plan;
}

// Two parameters with a momentum buffer each, and a buffer.
StateMap small_map() {
  StateMap map;
  for (const std::string name : {"first", "second"}) {
    map.add({name, StateKind::kParameter, f32({8, 4})});
    map.add({name + "/momentum_buffer", StateKind::kOptimizerState, f32({8, 4}),
             StateMedium::kPages, name});
  }
  map.add({"mean", StateKind::kBuffer, f32({4})});
  return map;
}

const std::vector<std::string> kLeaves{"first", "second", "mean"};

Cluster workers(const std::vector<int>& devices) {
  Cluster cluster;
  cluster.worker_num = static_cast<int>(devices.size());
  cluster.worker_devices = devices;
  cluster.worker_hosts.assign(devices.size(), "");
  cluster.total_gpu_num = std::accumulate(devices.begin(), devices.end(), 0);
  return cluster;
}

Placement roles(int programs, int replicas = 1) {
  Placement placement;
  placement.replicas = replicas;
  placement.role_devices.assign(static_cast<size_t>(programs), 1);
  placement.role_stages.clear();
  for (int i = 0; i < programs; ++i) placement.role_stages.push_back(i);
  return placement;
}

TEST(StateMap, BeforeAnyStepHasEverythingEverywhere) {
  EXPECT_EQ(print_state_map(small_map(), Placement(), workers({1, 1})),
            "parameter first f32[8,4]: R on all workers, memory\n"
            "state first/momentum_buffer f32[8,4]: R on all workers, pages\n"
            "parameter second f32[8,4]: R on all workers, memory\n"
            "state second/momentum_buffer f32[8,4]: R on all workers, pages\n"
            "buffer mean f32[4]: R on all workers, memory\n");
  EXPECT_FALSE(small_map().layout_of("first").has_value());
}

TEST(StateMap, OfReplicasHasTheOneProgramOfAllWorkers) {
  StateMap map = small_map();
  map.place(plan_of(kLeaves, {{{"first", true}, {"second"}, {"mean", false, true}}}));
  Placement placement;
  placement.replicas = 2;
  EXPECT_EQ(print_state_map(map, placement, workers({1, 1})),
            "parameter first f32[8,4]: R in role 0 on workers 0 1, memory\n"
            "state first/momentum_buffer f32[8,4]: R in role 0 on workers 0 1, pages\n"
            "parameter second f32[8,4]: R on all workers, memory, read by role 0\n"
            "state second/momentum_buffer f32[8,4]: R on all workers, pages\n"
            "buffer mean f32[4]: R in role 0 on workers 0 1, memory\n");
  EXPECT_EQ(map.layout_of("first"), Layout::whole());
}

TEST(StateMap, OfAPipelineHasAParameterWhereItsStagesAreAndATiedOneInBoth) {
  StateMap map = small_map();
  map.place(plan_of(kLeaves, {{{"first", true}, {"mean", false, true}},
                              {{"first", true}, {"second", true}, {"mean"}}}));
  EXPECT_EQ(print_state_map(map, roles(2), workers({1, 1})),
            "parameter first f32[8,4]: R in roles 0 1 on workers 0 1, memory\n"
            "state first/momentum_buffer f32[8,4]: R in roles 0 1 on workers 0 1, pages\n"
            "parameter second f32[8,4]: R in role 1 on worker 1, memory\n"
            "state second/momentum_buffer f32[8,4]: R in role 1 on worker 1, pages\n"
            "buffer mean f32[4]: R in role 0 on worker 0, memory, read by role 1\n");
}

TEST(StateMap, OfASplitHasThePieceOfEachProgram) {
  StateMap map = small_map();
  const Shard front{0, {0, 5}, 8};
  const Shard back{0, {5, 3}, 8};
  map.place(plan_of(kLeaves, {{{"first", true, false, front}, {"second", true}},
                              {{"first", true, false, back}, {"second"}}}));
  EXPECT_EQ(map.layout_of("first"), Layout::cut(0));
  EXPECT_EQ(map.layout_of("first/momentum_buffer"), Layout::cut(0));
  EXPECT_EQ(print_state_map(map, roles(2), workers({2})),
            "parameter first f32[8,4]: S(0) in roles 0 [0:5 of 8 in dim 0] on worker 0, "
            "1 [5:8 of 8 in dim 0] on worker 0, memory\n"
            "state first/momentum_buffer f32[8,4]: S(0) in roles 0 [0:5 of 8 in dim 0] on "
            "worker 0, 1 [5:8 of 8 in dim 0] on worker 0, pages\n"
            "parameter second f32[8,4]: R in role 0 on worker 0, memory, read by role 1\n"
            "state second/momentum_buffer f32[8,4]: R in role 0 on worker 0, pages\n"
            "buffer mean f32[4]: R on all workers, memory\n");
}

TEST(StateMap, OfPiecesOverWorkersSaysWhoHasWhichWithTwoReplicas) {
  StateMap map;
  map.add({"first", StateKind::kParameter, f32({8, 4})});
  const Shard front{1, {0, 2}, 4};
  const Shard back{1, {2, 2}, 4};
  map.place(plan_of({"first"}, {{{"first", true, false, front}}, {{"first", true, false, back}}}));
  EXPECT_EQ(print_state_map(map, roles(2, /*replicas=*/2), workers({1, 1, 1, 1})),
            "parameter first f32[8,4]: S(1) in roles 0 [0:2 of 4 in dim 1] on workers 0 2, "
            "1 [2:4 of 4 in dim 1] on workers 1 3, memory\n");
  const StateEntry& entry = *map.find("first");
  EXPECT_EQ(StateMap::workers_of(entry, roles(2, 2), workers({1, 1, 1, 1})),
            (std::vector<int>{0, 1, 2, 3}));
}

TEST(StateMap, LeavesWhereItIsWhatAPlanDoesNotChange) {
  StateMap map = small_map();
  map.place("second", Home{{1}});
  map.place(plan_of(kLeaves, {{{"first", true}}, {{"first"}}}));
  EXPECT_EQ(map.find("second")->home->roles, std::vector<int>{1});
  EXPECT_EQ(map.find("second/momentum_buffer")->home->roles, std::vector<int>{1});
  EXPECT_EQ(map.find("first")->home->roles, std::vector<int>{0});
  EXPECT_EQ(map.find("first")->readers, (std::vector<int>{0, 1}));
}

// Programs of another placement have other numbers.
TEST(StateMap, SaysHowAndNotWhereAnotherTrainerHasPutSomething) {
  StateMap map = small_map();
  map.place("first", Home{{}, {{0, {0, 4}, 8}}});
  EXPECT_EQ(map.layout_of("first"), Layout::cut(0));
  EXPECT_EQ(StateMap::workers_of(*map.find("first"), Placement(), workers({1, 1})),
            (std::vector<int>{0, 1}));
  EXPECT_EQ(print_state_map(map, Placement(), workers({1, 1})).substr(0, 75),
            "parameter first f32[8,4]: S(0) in roles of another trainer, memory\nstate fi");
}

TEST(StateMap, TellsNamesApart) {
  StateMap map;
  map.add({"a", StateKind::kParameter, f32({1})});
  map.add({"a/sum", StateKind::kBuffer, f32({1})});
  map.add({"a/sum", StateKind::kOptimizerState, f32({1}), StateMedium::kPages, "a"});
  EXPECT_EQ(map.find("a/sum")->kind, StateKind::kBuffer);
  EXPECT_EQ(map.find("a/sum'")->kind, StateKind::kOptimizerState);
  map.place("a", Home{{1}});
  EXPECT_FALSE(map.find("a/sum")->home.has_value());
  EXPECT_TRUE(map.find("a/sum'")->home.has_value());
  EXPECT_EQ(map.find("b"), nullptr);
}

TEST(HomesOf, AreThoseOfThePlansGradients) {
  const Shard front{0, {0, 4}, 8};
  const Shard back{0, {4, 4}, 8};
  const auto homes = homes_of(plan_of(kLeaves, {{{"first", true}, {"second", true, false, front}},
                                                {{"first", true}, {"second", true, false, back}}}));
  EXPECT_EQ(homes.size(), 2);
  EXPECT_TRUE(homes.at(0) == (Home{{0, 1}}));
  EXPECT_TRUE(homes.at(1) == (Home{{0, 1}, {{0, {0, 4}, 8}, {0, {4, 4}, 8}}}));
}

}  // namespace
}  // namespace epl

// A step that this process records is compiled for clusters of which it is no part.
#include <epl/epl.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "capture/capture.h"
#include "compile/compile.h"
#include "config/test_environment.h"
#include "layout/shard.h"
#include "program/text.h"
#include "program/verify.h"

namespace epl {
namespace {

// A layer for each scope, and a loss in the last one.
class ForeignCluster : public testing::Test {
 protected:
  Graph recorded(const std::vector<Strategy>& scopes) {
    init(Config());
    std::vector<torch::nn::Linear> layers;
    NamedTensors parameters;
    for (size_t i = 0; i < scopes.size(); ++i) {
      layers.emplace_back(16, 16);
      for (const auto& entry : layers.back()->named_parameters()) {
        parameters.emplace_back(concat("layer", i, ".", entry.key()), entry.value());
      }
    }
    const StepFunction step = [&](const Batch& batch) {
      torch::Tensor x = batch[0];
      for (size_t i = 0; i < scopes.size(); ++i) {
        const With scope(scopes[i]);
        x = torch::relu(layers[i](x));
        if (i + 1 == scopes.size()) x = x.square().mean();
      }
      return x;
    };
    return capture_step({step, {torch::randn({8, 16})}, parameters, {}}).graph;
  }

  static Cluster workers(int count, int devices) {
    Cluster cluster;
    cluster.worker_num = count;
    cluster.total_gpu_num = count * devices;
    cluster.worker_devices.assign(static_cast<size_t>(count), devices);
    cluster.worker_hosts.clear();
    for (int i = 0; i < count; ++i) cluster.worker_hosts.push_back(concat("host", i));
    return cluster;
  }
};

TEST_F(ForeignCluster, Of64DevicesGetsAPlanFromAProcessThatHasOne) {
  const Graph graph = recorded({split(4, "a"), split(4, "b")});
  const CompiledStep step = compile(graph, workers(8, 8), Config{{"pipeline.num_micro_batch", 4}});
  EXPECT_EQ(step.placement.devices(), 64);
  EXPECT_EQ(step.plan.replicas, 8);
  EXPECT_EQ(step.plan.roles(), 8U);          // two stages of four devices
  EXPECT_LE(step.plan.programs.size(), 4U);  // the first of each, and the three others
  EXPECT_NO_THROW(verify_plan(step.plan));
  for (const Program& program : step.plan.programs) {
    for (const PlanLeaf& leaf : program.leaves) {
      if (leaf.name == "layer0.weight") {
        EXPECT_EQ(leaf.shard.piece.length, program.stage == 0 ? 4 : 0);
      }
    }
  }
}

TEST_F(ForeignCluster, WithoutStrategiesHasAReplicaOnEachDevice) {
  const Graph graph = recorded({replicate(1, "all")});
  const CompiledStep step = compile(graph, workers(16, 4), Config());
  EXPECT_EQ(step.plan.replicas, 64);
  EXPECT_EQ(step.plan.programs.size(), 1U);
  EXPECT_DOUBLE_EQ(step.plan.seed, 1.0 / 64);
}

TEST_F(ForeignCluster, LooksAlikeFromEachOfItsWorkers) {
  const Graph graph = recorded({split(2, "a"), replicate(1, "b")});
  std::string first;
  for (int worker : {0, 3, 7}) {
    Cluster cluster = workers(8, 3);
    cluster.worker_index = worker;
    const CompiledStep step = compile(graph, cluster, Config{{"pipeline.num_micro_batch", 2}});
    const std::string text = print_plan(step.plan);
    if (first.empty()) first = text;
    EXPECT_EQ(text, first) << "as worker " << worker << " sees it";
  }
}

// Two workers of one device; the first is three times as fast.
Cluster unequal_workers() {
  Cluster cluster;
  cluster.worker_num = 2;
  cluster.total_gpu_num = 2;
  cluster.worker_devices = {1, 1};
  cluster.worker_hosts = {"fast", "slow"};
  cluster.worker_speeds = {DeviceSpeed(), DeviceSpeed()};
  cluster.worker_speeds[0].flops_per_second *= 3;
  return cluster;
}

std::string shard_of_leaf(const Program& program, const std::string& name) {
  for (const PlanLeaf& leaf : program.leaves) {
    if (leaf.name == name) return print_shard(leaf.shard);
  }
  return "not there";
}

// Workers read as many rows each, and gather those of the others.
TEST_F(ForeignCluster, OfUnequalWorkersIsCutByTheirSpeeds) {
  const Graph graph = recorded({split(2, "a")});
  const CompiledStep step = compile(graph, unequal_workers(), Config());
  ASSERT_EQ(step.plan.programs.size(), 2U);
  EXPECT_NO_THROW(verify_plan(step.plan));
  const Program& fast = step.plan.programs[0];
  const Program& slow = step.plan.programs[1];
  EXPECT_EQ(shard_of_leaf(fast, "layer0.weight"), " [0:12 of 16 in dim 0]");
  EXPECT_EQ(shard_of_leaf(slow, "layer0.weight"), " [12:16 of 16 in dim 0]");
  EXPECT_EQ(print_shard(fast.leaves[0].shard), " [0:4 of 8 in dim 0]");
  EXPECT_EQ(print_shard(slow.leaves[0].shard), " [4:8 of 8 in dim 0]");
  const std::string text = print_plan(step.plan);
  EXPECT_NE(text.find("0, [4, 4], \"part\")"), std::string::npos) << text;
}

TEST_F(ForeignCluster, OfUnequalWorkersKeepsThePiecesOfEarlierSteps) {
  const Graph graph = recorded({split(2, "a")});
  StateEntry entry;
  entry.name = "layer0.weight";
  entry.home = Home{{0, 1}, {{0, {0, 8}, 16}, {0, {8, 8}, 16}}};
  CompileOptions options;
  options.state.add(entry);
  const CompiledStep step = compile(graph, unequal_workers(), Config(), options);
  EXPECT_EQ(shard_of_leaf(step.plan.programs[0], "layer0.weight"), " [0:8 of 16 in dim 0]");
}

// Rows under replicate are even, and so is what lies with them.
TEST_F(ForeignCluster, OfUnequalWorkersCannotCutUnevenPiecesEvenly) {
  const Graph graph = recorded({replicate(2, "a"), split(2, "b")});
  const Config config{{"cluster.colocate_split_and_replicate", true}};
  const CompiledStep even = compile(graph, unequal_workers(), config);
  EXPECT_EQ(shard_of_leaf(even.plan.programs[0], "layer1.weight"), " [0:8 of 16 in dim 0]");
  StateEntry entry;
  entry.name = "layer1.weight";
  entry.home = Home{{0, 1}, {{0, {0, 12}, 16}, {0, {12, 4}, 16}}};
  CompileOptions options;
  options.state.add(entry);
  EXPECT_NE(error_of([&] { compile(graph, unequal_workers(), config, options); }).find("speeds"),
            std::string::npos);
}

// Each part of the second stage is on a fast worker in one replica and on a slow one in the other.
TEST_F(ForeignCluster, WhosePartsAreAsSlowAsEachOtherIsCutEvenly) {
  const Graph graph = recorded({replicate(1, "a"), split(2, "b")});
  Cluster cluster = workers(6, 1);
  cluster.worker_speeds.assign(6, DeviceSpeed());
  cluster.worker_speeds[1].flops_per_second *= 3;
  cluster.worker_speeds[5].flops_per_second *= 3;
  const CompiledStep step = compile(graph, cluster, Config{{"pipeline.num_micro_batch", 2}});
  EXPECT_EQ(shard_of_leaf(step.plan.programs[1], "layer1.weight"), " [0:8 of 16 in dim 0]");
  cluster.worker_speeds[4].flops_per_second *= 3;
  const CompiledStep faster = compile(graph, cluster, Config{{"pipeline.num_micro_batch", 2}});
  EXPECT_EQ(shard_of_leaf(faster.plan.programs[1], "layer1.weight"), " [0:12 of 16 in dim 0]");
}

TEST_F(ForeignCluster, ThatDoesNotFitIsRefused) {
  const Graph graph = recorded({split(4, "a")});
  EXPECT_NE(error_of([&] { compile(graph, workers(3, 2), Config()); }).find("6 devices"),
            std::string::npos);
}

TEST_F(ForeignCluster, WhoseWorkersShareASplitFirstStageIsRefused) {
  const Graph graph = recorded({split(2, "a"), replicate(1, "b")});
  const std::string error = error_of([&] { compile(graph, workers(3, 1), Config()); });
  EXPECT_NE(error.find("the first stage of a pipeline is split over devices of several workers"),
            std::string::npos)
      << error;
  EXPECT_EQ(error_of([&] { compile(graph, workers(1, 3), Config()); }), "no error");
}

TEST_F(ForeignCluster, IsCutWhereEplChoseToCut) {
  init(Config());
  const torch::Tensor weight = torch::randn({16, 16}, torch::requires_grad());
  const StepFunction step = [&](const Batch& batch) {
    return torch::mm(torch::sin(torch::mm(batch[0], weight)), weight).square().mean();
  };
  StepRecording recording(capture_step({step, {torch::randn({8, 16})}, {{"w", weight}}, {}}).graph);
  recording.cuts = {2};
  const CompiledStep compiled =
      compile(recording, workers(2, 4), Config{{"pipeline.num_micro_batch", 2}});
  EXPECT_EQ(compiled.plan.programs.size(), 2U);
  EXPECT_EQ(compiled.plan.replicas, 4);
  EXPECT_EQ(compiled.plan.tied.size(), 1U);  // both stages use the weight
}

}  // namespace
}  // namespace epl

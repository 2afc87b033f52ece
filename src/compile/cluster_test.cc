// A step that this process records is compiled for clusters of which it is no part.
#include <epl/epl.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "capture/capture.h"
#include "compile/compile.h"
#include "config/test_environment.h"
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
  ASSERT_EQ(step.plan.programs.size(), 8U);  // two stages of four devices
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

TEST_F(ForeignCluster, ThatDoesNotFitIsRefused) {
  const Graph graph = recorded({split(4, "a")});
  EXPECT_NE(error_of([&] { compile(graph, workers(3, 2), Config()); }).find("6 devices"),
            std::string::npos);
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

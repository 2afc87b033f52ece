// Plans of one small model in every way that it can be spread over devices, byte for byte; each is
// read back as well. Beside each plan stands where the model's state lies.
//
//   EPL_UPDATE_GOLDEN=1 build/bin/test_golden
#include <epl/epl.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "config/test_environment.h"
#include "program/parse.h"
#include "program/text.h"
#include "program/verify.h"
#include "tests/golden/golden_file.h"
#include "tests/parity/parity.h"

namespace epl {
namespace {

using golden::expect_golden;
using torch::Tensor;

constexpr int64_t kWidth = 4;
constexpr int64_t kRows = 8;

// A linear layer and a ReLU for each strategy, under it; without any, two of them in no scope.
struct Layers : torch::nn::Module {
  explicit Layers(std::vector<Strategy> strategies = {}, int64_t columns = kWidth)
      : scopes(std::move(strategies)), width(columns) {
    const size_t count = scopes.empty() ? 2 : scopes.size();
    for (size_t i = 0; i < count; ++i) {
      layers.push_back(register_module(concat("layer", i), torch::nn::Linear(width, width)));
    }
  }

  Tensor layer(size_t i, const Tensor& x) { return torch::relu(layers[i](x)); }

  virtual Tensor forward(Tensor x) {
    for (size_t i = 0; i < layers.size(); ++i) {
      if (scopes.empty()) {
        x = layer(i, x);
      } else {
        const With scope(scopes[i]);
        x = layer(i, x);
      }
    }
    return x;
  }

  std::vector<Strategy> scopes;
  const int64_t width;
  std::vector<torch::nn::Linear> layers;
};

// The last stage uses the weight of the first once more.
struct TiedLayers : Layers {
  TiedLayers() : Layers({replicate(1, "first"), replicate(1, "last")}) {}

  Tensor forward(Tensor x) override {
    {
      const With scope(scopes[0]);
      x = layer(0, x);
    }
    const With scope(scopes[1]);
    return torch::nn::functional::linear(layer(1, x), layers[0]->weight);
  }
};

std::vector<Strategy> stages(int count) {
  std::vector<Strategy> result;
  for (int i = 0; i < count; ++i) result.push_back(replicate(1, concat("stage_", i)));
  return result;
}

struct Spread {
  std::string plan;
  std::string state;
};

// After one step on the devices of this job.
Spread layout_after_a_step(const std::shared_ptr<Layers>& net) {
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.5));
  Trainer trainer(net, optimizer, [net](const Batch& batch) {
    return torch::nn::functional::cross_entropy(net->forward(batch[0]), batch[1]);
  });
  const Tensor x = torch::arange(kRows * net->width, torch::kFloat).view({kRows, net->width});
  trainer.step({x, torch::arange(kRows, torch::kLong) % kWidth});
  return {trainer.plan(), trainer.state()};
}

void expect_layout(const std::string& name, const Spread& made) {
  expect_golden(name + ".plan", made.plan);
  expect_golden(name + ".state", made.state);
  const Plan parsed = parse_plan(made.plan);
  EXPECT_EQ(print_plan(parsed), made.plan);
  EXPECT_NO_THROW(verify_plan(parsed));
}

struct LayoutGolden : EnvironmentFixture {
  ~LayoutGolden() override {
    clear();
    init();  // ends the threads of devices: a test that follows may fork
  }

  static void expect_on_devices(const std::string& name, int devices, const Config& config,
                                const std::shared_ptr<Layers>& net) {
    set("EPL_DEVICES", std::to_string(devices));
    init(config);
    expect_layout(name, layout_after_a_step(net));
  }

  static Config pipeline(const std::string& strategy, int micro_batches) {
    return Config{{"pipeline.strategy", strategy}, {"pipeline.num_micro_batch", micro_batches}};
  }
};

TEST_F(LayoutGolden, ReplicasOnTwoDevices) {
  expect_on_devices("replicas", 2, Config(), std::make_shared<Layers>());
}

TEST_F(LayoutGolden, TwoSlicesOfTwoMicroBatches) {
  const std::vector<Strategy> scopes{replicate(2, "all"), replicate(2, "all")};
  expect_on_devices("slices", 2, Config{{"pipeline.num_micro_batch", 2}},
                    std::make_shared<Layers>(scopes));
}

TEST_F(LayoutGolden, PipelineOfTwoStages) {
  expect_on_devices("pipeline", 2, pipeline("PreferBackward", 4),
                    std::make_shared<Layers>(stages(2)));
}

TEST_F(LayoutGolden, InterleavedPipelineOfFourChunks) {
  Config config{{"pipeline.strategy", "Interleaved"},
                {"pipeline.num_stages", 2},
                {"pipeline.num_micro_batch", 2}};
  expect_on_devices("pipeline_interleaved", 2, config, std::make_shared<Layers>(stages(4)));
}

TEST_F(LayoutGolden, PipelineThatSplitsBackward) {
  expect_on_devices("pipeline_zero_bubble", 2, pipeline("ZeroBubble", 2),
                    std::make_shared<Layers>(stages(2)));
}

TEST_F(LayoutGolden, PipelineWithAStageWhoseOperatorsAreCut) {
  const std::vector<Strategy> scopes{split(2, "cut"), replicate(1, "whole")};
  expect_on_devices("pipeline_split_stage", 3, pipeline("PreferBackward", 2),
                    std::make_shared<Layers>(scopes));
}

TEST_F(LayoutGolden, PipelineWithAStageOfTwoSlices) {
  const std::vector<Strategy> scopes{replicate(2, "sliced"), replicate(1, "whole")};
  expect_on_devices("pipeline_sliced_stage", 3, pipeline("PreferBackward", 1),
                    std::make_shared<Layers>(scopes));
}

TEST_F(LayoutGolden, PipelineWhoseStagesShareAParameter) {
  expect_on_devices("pipeline_tied", 2, pipeline("PreferBackward", 2),
                    std::make_shared<TiedLayers>());
}

// Both workers have the same plan: it knows no rank.
TEST_F(LayoutGolden, TwoReplicasOfAPipelineOnTwoWorkers) {
  parity::run_on_workers({2, 2}, [](int worker) {
    init(pipeline("PreferBackward", 2));
    const Spread made = layout_after_a_step(std::make_shared<Layers>(stages(2)));
    if (worker == 0 || !golden::kUpdate) expect_layout("pipeline_workers", made);
  });
}

TEST_F(LayoutGolden, StatesThatTwoWorkersShareOut) {
  parity::run_on_workers({1, 1}, [](int worker) {
    init(Config{{"zero.level", "v0"}});
    const Spread made = layout_after_a_step(std::make_shared<Layers>());
    if (worker == 0 || !golden::kUpdate) expect_layout("zero_workers", made);
  });
}

TEST_F(LayoutGolden, GradientsThatTwoWorkersShareOut) {
  parity::run_on_workers({1, 1}, [](int worker) {
    init(Config{{"zero.level", "v1"}, {"pipeline.num_micro_batch", 2}});
    const Spread made = layout_after_a_step(std::make_shared<Layers>());
    if (worker == 0 || !golden::kUpdate) expect_layout("zero_gradients", made);
  });
}

TEST_F(LayoutGolden, UpdatesWhileTheStepRuns) {
  init(Config{{"optimizer.update_early", true}});
  expect_layout("update_early", layout_after_a_step(std::make_shared<Layers>()));
}

TEST_F(LayoutGolden, ParametersThatTwoWorkersShareOut) {
  parity::run_on_workers({1, 1}, [](int worker) {
    init(Config{{"zero.level", "v2"}});
    constexpr int64_t kWide = 256;  // what is smaller goes to one worker
    const Spread made =
        layout_after_a_step(std::make_shared<Layers>(std::vector<Strategy>(), kWide));
    if (worker == 0 || !golden::kUpdate) expect_layout("spread_workers", made);
  });
}

}  // namespace
}  // namespace epl

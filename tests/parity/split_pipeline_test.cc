// Stages of a pipeline whose operators are cut over devices, with and without other stages.
#include "tests/parity/pipelines.h"
#include "tests/parity/split_models.h"

namespace epl::parity {
namespace {

const Exactness kRounding = within(2e-5, "sums over devices have another order");

// Linear layers in pairs, each pair a stage: replicate(n) or split(n).
struct Staged : torch::nn::Module {
  explicit Staged(std::vector<Strategy> strategies) : stages(std::move(strategies)) {
    for (size_t i = 0; i < 2 * stages.size(); ++i) {
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(8, 8)));
    }
  }

  torch::Tensor loss(const Batch& batch) {
    torch::Tensor x = batch[0];
    for (size_t i = 0; i < stages.size(); ++i) {
      const With scope(stages[i]);
      x = torch::tanh(layers[2 * i + 1](torch::relu(layers[2 * i](x))));
    }
    return cross_entropy(x, batch[1]);
  }

  std::vector<Strategy> stages;
  std::vector<torch::nn::Linear> layers;
};

MakeProgram staged(const std::vector<Strategy>& strategies) {
  return [=] {
    auto net = std::make_shared<Staged>(strategies);
    return program(net, sgd(*net, 0.1, 0.9),
                   [net](const Batch& batch) { return net->loss(batch); });
  };
}

MakeBatch wide_rows(int64_t count) {
  return [count](int) -> Batch { return {torch::randn({count, 8}), classes(8, {count})}; };
}

struct Layout {
  std::string name;
  std::vector<Strategy> strategies;

  std::vector<int> devices() const {
    std::vector<int> counts;
    for (const auto& each : strategies) counts.push_back(each.device_count);
    return counts;
  }
};

const Layout kLayouts[] = {
    {"one_and_two_parts", {replicate(1, "a"), split(2, "b")}},
    {"two_parts_and_one", {split(2, "a"), replicate(1, "b")}},
    {"two_slices_and_two_parts", {replicate(2, "a"), split(2, "b")}},
    {"two_parts_and_two_slices", {split(2, "a"), replicate(2, "b")}},
    {"two_and_three_parts", {split(2, "a"), split(3, "b")}},
    {"parts_between_stages", {replicate(1, "a"), split(2, "b"), replicate(1, "c")}},
};

class SplitStages : public testing::TestWithParam<Layout> {
 protected:
  testing::AssertionResult trains(int micro_batches, int replicas, const std::string& schedule) {
    const std::vector<int> devices = GetParam().devices();
    const int all = std::accumulate(devices.begin(), devices.end(), 0);
    const Variant variant = Variant()
                                .steps(3)
                                .stages(devices)
                                .devices(all * replicas)
                                .micro_batches(micro_batches)
                                .with("pipeline.strategy", schedule);
    return parity(staged(GetParam().strategies), wide_rows(32), kRounding, variant);
  }
};

TEST_P(SplitStages, Train) { EXPECT_TRUE(trains(1, 1, "PreferBackward")); }

TEST_P(SplitStages, TrainByEverySchedule) {
  for (const auto& schedule : schedules()) EXPECT_TRUE(trains(4, 1, schedule)) << schedule;
}

TEST_P(SplitStages, TrainInReplicas) { EXPECT_TRUE(trains(2, 2, "PreferBackward")); }

// A stage a worker, a device a worker, and parts of one stage on two workers.
TEST(SplitStagesOnWorkers, Train) {
  const std::vector<Strategy> strategies = {replicate(1, "a"), split(2, "b")};
  for (const std::vector<int>& workers : {std::vector<int>{1, 2}, {1, 1, 1}, {2, 1}}) {
    const Variant variant =
        Variant().steps(3).stages({1, 2}).workers(workers).micro_batches(4).without_states();
    EXPECT_TRUE(parity(staged(strategies), wide_rows(32), kRounding, variant));
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, SplitStages, testing::ValuesIn(kLayouts),
                         [](const auto& layout) { return layout.param.name; });

}  // namespace
}  // namespace epl::parity

// Offload: parameters, and states of optimizers, that rest in a file, or in the memory of the host
// with windows for devices, give the bits of a run that has them in memory. Every model, in every
// layout; and whatever a program does to them between steps.
#include <sys/stat.h>

#include <filesystem>
#include <regex>

#include "tests/models/mlp.h"
#include "tests/models/programs.h"
#include "tests/parity/on_devices.h"
#include "tests/parity/pipeline_models.h"
#include "tests/parity/split_models.h"

namespace epl::parity {
namespace {

constexpr const char* kLevel = "offload.level";
constexpr const char* kPath = "offload.path";

enum class Medium : uint8_t { kFile, kHost };

Variant offloaded(const Variant& variant, const char* level, Medium medium) {
  Variant away = Variant(variant).with(kLevel, level);
  return medium == Medium::kFile ? away.with(kPath, testing::TempDir()) : away;
}

std::vector<Trace> train(const MakeProgram& make, const MakeBatch& batch, const Variant& variant) {
  if (variant.worker_devices().size() > 1) return train_on_workers(make, batch, variant);
  return {train_on_devices(make, batch, variant)};
}

testing::AssertionResult same_bits(const std::vector<Trace>& in_memory,
                                   const std::vector<Trace>& away, const std::string& how) {
  for (size_t i = 0; i < in_memory.size(); ++i) {
    const auto same = compare(in_memory[i], away[i], bit_equal());
    if (!same) return testing::AssertionFailure() << how << ": " << same.message();
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult trains_alike(const MakeProgram& make, const MakeBatch& batch,
                                      const Variant& variant) {
  const std::vector<Trace> in_memory = train(make, batch, variant);
  for (const Medium medium : {Medium::kFile, Medium::kHost}) {
    for (const char* level : {"v0", "v1"}) {
      const auto away = train(make, batch, offloaded(variant, level, medium));
      const std::string how = level + std::string(medium == Medium::kFile ? ", file" : ", host");
      const auto same = same_bits(in_memory, away, how);
      if (!same) return same;
    }
  }
  return testing::AssertionSuccess();
}

class Offloaded : public testing::TestWithParam<std::string> {
 protected:
  static testing::AssertionResult trains(const Variant& variant, int rows) {
    return trains_alike(models::program_named(GetParam()), models::batches_named(GetParam(), rows),
                        variant);
  }
};

TEST_P(Offloaded, OnOneDevice) { EXPECT_TRUE(trains(Variant().steps(3), 1)); }
TEST_P(Offloaded, InMicroBatches) { EXPECT_TRUE(trains(Variant().steps(3).micro_batches(4), 4)); }
TEST_P(Offloaded, OnTwoDevices) { EXPECT_TRUE(trains(Variant().steps(4).devices(2), 2)); }

INSTANTIATE_TEST_SUITE_P(Models, Offloaded, testing::ValuesIn(models::names_with_rows()),
                         models::test_name);

class OffloadedStages : public testing::TestWithParam<std::string> {};

TEST_P(OffloadedStages, ByEverySchedule) {
  const StagedModel& model = staged_model(GetParam());
  for (const std::string& schedule : schedules()) {
    const Variant variant = pipeline(model.stages, 4).with("pipeline.strategy", schedule);
    EXPECT_TRUE(trains_alike(model.make, model.batch, variant)) << schedule;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, OffloadedStages, testing::ValuesIn(staged_model_names()),
                         models::test_name);

class OffloadedParts : public testing::TestWithParam<std::string> {};

TEST_P(OffloadedParts, OfTwoDevices) {
  const SplitModel& model = split_models().at(GetParam());
  Variant variant = split_over(2, 2);
  if (model.colocated) variant.with("cluster.colocate_split_and_replicate", true);
  EXPECT_TRUE(trains_alike([&] { return model.make(2); }, model.batch, variant));
}

INSTANTIATE_TEST_SUITE_P(Models, OffloadedParts, testing::ValuesIn(split_model_names()),
                         models::test_name);

// Layers of some pages each, so that what is near is a part of all.
struct Deep : torch::nn::Module {
  explicit Deep(int layers, int width = 64) {
    for (int i = 0; i < layers; ++i) {
      linear.push_back(
          register_module("layer" + std::to_string(i), torch::nn::Linear(width, width)));
    }
    register_module("norm", norm = torch::nn::BatchNorm1d(width));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& layer : linear) x = torch::tanh(norm(layer->forward(x)));
    return x;
  }
  std::vector<torch::nn::Linear> linear;
  torch::nn::BatchNorm1d norm{nullptr};
};

Batch wide_rows(int) { return {torch::randn({8, 64}), classes(64, {8})}; }

MakeProgram deep(int layers) {
  return [layers] {
    auto net = std::make_shared<Deep>(layers);
    return program(
        net, std::make_shared<torch::optim::AdamW>(net->parameters(), 1e-2),
        [net](const Batch& batch) { return cross_entropy(net->forward(batch[0]), batch[1]); });
  };
}

TEST(Offload, OnWorkers) {
  EXPECT_TRUE(trains_alike(deep(6), wide_rows, Variant().steps(4).workers({1, 1})));
  const StagedModel& model = staged_networks().begin()->second;
  EXPECT_TRUE(trains_alike(model.make, model.batch,
                           Variant(pipeline(model.stages, 4))
                               .workers(std::vector<int>(static_cast<size_t>(model.stages), 1))));
}

TEST(Offload, WithRecomputationGroupsAndClipping) {
  for (const int micro_batches : {1, 2}) {
    const Variant variant = Variant().steps(3).micro_batches(micro_batches);
    EXPECT_TRUE(trains_alike(deep(6), wide_rows,
                             Variant(variant).with("gradient_checkpoint.type", "auto")));
    EXPECT_TRUE(trains_alike(deep(6), wide_rows, Variant(variant).apply_groups(3)));
    EXPECT_TRUE(trains_alike(deep(6), wide_rows, Variant(variant).clip_norm(0.1)));
  }
}

TEST(Offload, UnderReplicate) {
  EXPECT_TRUE(trains_alike(deep(4), wide_rows, Variant().steps(3).devices(2).slices(2)));
}

TEST(Offload, IsVerified) {
  for (const Medium medium : {Medium::kFile, Medium::kHost}) {
    for (const char* level : {"v0", "v1"}) {
      const Variant variant =
          offloaded(Variant().steps(3), level, medium).with("debug.verify_steps", 3);
      const auto same = compare(train_on_devices(deep(4), wide_rows, Variant().steps(3)),
                                train_on_devices(deep(4), wide_rows, variant), bit_equal());
      EXPECT_TRUE(same) << same.message();
    }
  }
}

}  // namespace
}  // namespace epl::parity

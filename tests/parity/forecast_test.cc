// What a plan says it needs of memory is what its devices hold when it runs: the models of all
// kinds, in every layout.
#include "tests/models/programs.h"
#include "tests/parity/on_devices.h"
#include "tests/parity/pipeline_models.h"
#include "tests/parity/split_models.h"

namespace epl::parity {
namespace {

// Within 1 % or 256 KiB.
testing::AssertionResult is_near(int64_t forecast, int64_t measured) {
  const int64_t allowed = std::max<int64_t>(256 << 10, measured / 100);
  if (std::abs(forecast - measured) <= allowed) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "forecast " << forecast << " bytes, measured " << measured;
}

// Trains on the devices of this process and compares worker and devices.
void check_forecast(const MakeProgram& make, const MakeBatch& batch, const Variant& variant) {
  const OnDevices devices(variant.all_devices());
  std::vector<Setting> settings = variant.settings();
  settings.emplace_back("pipeline.num_micro_batch", variant.micro_batches());
  init(Config(settings));
  torch::manual_seed(1);
  const Program program = make();
  const Turn& turn = program.turns.at(0);
  OptimizerList optimizers;
  for (const OptimizerPointer& optimizer : turn.optimizers) optimizers.emplace_back(*optimizer);
  Trainer trainer(turn.modules, optimizers, turn.step);
  const MemoryReport before = trainer.forecast(batch(0));
  for (int step = 0; step < 4; ++step) trainer.step(batch(step));
  const MemoryReport after = trainer.memory();
  ASSERT_EQ(after.workers.size(), 1U);
  const MemoryReport::Worker& worker = after.workers[0];
  EXPECT_EQ(before.workers.at(0).peak(), worker.peak()) << before.str() << after.str();
  ASSERT_TRUE(worker.measured().has_value());
  EXPECT_TRUE(is_near(worker.peak(), *worker.measured())) << after.str();
  EXPECT_TRUE(is_near(worker.shared.total(), *worker.measured_shared)) << after.str();
  for (const auto& device : worker.devices) {
    EXPECT_TRUE(is_near(device.bytes.total(), *device.measured)) << after.str();
  }
}

class ModelForecast : public testing::TestWithParam<std::string> {
 protected:
  static void check(int devices, int micro_batches) {
    check_forecast(models::program_named(GetParam()),
                   models::batches_named(GetParam(), devices * micro_batches),
                   Variant().devices(devices).micro_batches(micro_batches));
  }
};

TEST_P(ModelForecast, OfOneDevice) { check(1, 1); }
TEST_P(ModelForecast, OfTwoDevices) { check(2, 1); }
TEST_P(ModelForecast, OfMicroBatches) { check(1, 4); }
TEST_P(ModelForecast, OfMicroBatchesOnTwoDevices) { check(2, 2); }
INSTANTIATE_TEST_SUITE_P(All, ModelForecast, testing::ValuesIn(models::names_with_rows()),
                         models::test_name);

class PipelineForecast : public testing::TestWithParam<std::string> {
 protected:
  static void check(int micro_batches, int replicas) {
    const StagedModel& model = staged_model(GetParam());
    check_forecast(model.make, model.batch, pipeline(model.stages, micro_batches, replicas));
  }
};

TEST_P(PipelineForecast, OfOneReplica) { check(4, 1); }
TEST_P(PipelineForecast, OfTwoReplicas) { check(2, 2); }
INSTANTIATE_TEST_SUITE_P(All, PipelineForecast, testing::ValuesIn(staged_model_names()),
                         models::test_name);

class SplitForecast : public testing::TestWithParam<std::string> {
 protected:
  static void check(int micro_batches) {
    const SplitModel& model = split_models().at(GetParam());
    Variant variant = split_over(2, micro_batches);
    if (model.colocated) variant.with("cluster.colocate_split_and_replicate", true);
    check_forecast([&] { return model.make(2); }, model.batch, variant);
  }
};

TEST_P(SplitForecast, OfOneMicroBatch) { check(1); }
TEST_P(SplitForecast, OfTwoMicroBatches) { check(2); }
INSTANTIATE_TEST_SUITE_P(All, SplitForecast, testing::ValuesIn(split_model_names()),
                         models::test_name);

}  // namespace
}  // namespace epl::parity

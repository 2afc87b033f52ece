// Pipelines whose stages lie on several workers, which are processes: the same parameters on all of
// them, and those of the plain loop.
#include "tests/models/programs.h"
#include "tests/parity/pipeline_models.h"

namespace epl::parity {
namespace {

const Exactness kRounding = within(1e-5, "sums over workers in another order");

// Which workers there are, by their devices, and how many stages.
struct Layout {
  std::vector<int> workers;
  int stages;
  bool by_replica = true;

  Variant variant(int micro_batches) const {
    return Variant()
        .steps(3)
        .stages(stages)
        .workers(workers)
        .micro_batches(micro_batches)
        .with("cluster.device_place_prefer_intra_node", by_replica);
  }
};

class PipelineWorkers : public testing::TestWithParam<Layout> {};

TEST_P(PipelineWorkers, TrainByEverySchedule) {
  const int stages = GetParam().stages;
  const Variant variant = GetParam().variant(4);
  const Trace plain = train_plain(stack(stages), rows(32), variant);
  Trace first;
  for (const std::string& schedule : schedules()) {
    SCOPED_TRACE(schedule);
    std::vector<Trace> traces = train_on_workers(
        stack(stages), rows(32), Variant(variant).with("pipeline.strategy", schedule));
    complete(traces);
    if (first.empty()) first = traces[0];
    for (const Trace& trace : traces) {
      EXPECT_TRUE(compare(plain, trace, kRounding, variant));
      EXPECT_TRUE(same_traces(first, trace));
    }
  }
}

TEST_P(PipelineWorkers, TrainWithoutMicroBatches) {
  EXPECT_TRUE(parity(stack(GetParam().stages), rows(32), kRounding, GetParam().variant(1)));
}

TEST_P(PipelineWorkers, TrainInterleaved) {
  const Variant variant = GetParam()
                              .variant(2)
                              .with("pipeline.strategy", "Interleaved")
                              .with("pipeline.num_stages", GetParam().stages);
  EXPECT_TRUE(parity(stack(2 * GetParam().stages), rows(32), kRounding, variant));
}

INSTANTIATE_TEST_SUITE_P(Layouts, PipelineWorkers,
                         testing::Values(Layout{{1, 1}, 2}, Layout{{2, 2}, 2},
                                         Layout{{2, 2}, 2, false}, Layout{{2, 2}, 4},
                                         Layout{{1, 1, 1}, 3}, Layout{{2, 1, 1}, 4},
                                         Layout{{2, 1, 1}, 2}, Layout{{1, 1, 1, 1}, 4},
                                         Layout{{1, 1, 1, 1}, 2}, Layout{{1, 1, 1, 1}, 2, false}),
                         [](const auto& info) {
                           std::string name = "Devices";
                           for (int devices : info.param.workers)
                             name += "_" + std::to_string(devices);
                           return name + "_stages_" + std::to_string(info.param.stages) +
                                  (info.param.by_replica ? "" : "_by_stage");
                         });

class StagedModelsOnWorkers : public testing::TestWithParam<std::string> {};

TEST_P(StagedModelsOnWorkers, TrainWithAStageAWorker) {
  const StagedModel& model = staged_models().at(GetParam());
  const Layout layout{std::vector<int>(static_cast<size_t>(model.stages), 1), model.stages};
  EXPECT_TRUE(parity(model.make, model.batch, kRounding, layout.variant(4)));
}

TEST_P(StagedModelsOnWorkers, TrainInReplicas) {
  const StagedModel& model = staged_models().at(GetParam());
  const Layout layout{{model.stages, model.stages}, model.stages, false};
  EXPECT_TRUE(parity(model.make, model.batch, kRounding, layout.variant(2)));
}

INSTANTIATE_TEST_SUITE_P(All, StagedModelsOnWorkers, testing::ValuesIn(staged_model_names()),
                         models::test_name);

// --- options ------------------------------------------------------------------------------------

Variant a_stage_a_worker() { return Layout{{1, 1}, 2}.variant(4); }
Variant replicas_of_workers() { return Layout{{1, 1, 1, 1}, 2}.variant(2); }

TEST(PipelineWorkers, ClipReducedGradients) {
  for (const Variant& variant : {a_stage_a_worker(), replicas_of_workers()}) {
    EXPECT_TRUE(
        parity(stack(2), rows(32), kRounding, Variant(variant).clip_norm(0.1).clip_after()));
    EXPECT_TRUE(
        parity(stack(2), rows(32), kRounding, Variant(variant).clip_value(0.003).clip_after()));
  }
}

TEST(PipelineWorkers, ClipTheReplicasOfTheirOwn) {
  EXPECT_TRUE(parity(stack(2), rows(32), kRounding, Layout{{2, 2}, 2}.variant(2).clip_norm(0.1)));
}

TEST(PipelineWorkers, SumInsteadOfMean) {
  EXPECT_TRUE(parity(stack(2), rows(32), kRounding, replicas_of_workers().sum()));
}

TEST(PipelineWorkers, DrawMicroBatchesFromASource) {
  EXPECT_TRUE(parity(stack(2), rows(32), kRounding, a_stage_a_worker().from_source()));
  EXPECT_TRUE(parity(stack(2), rows(32), kRounding, replicas_of_workers().from_source()));
}

TEST(PipelineWorkers, TakeABatchOfAnotherShape) {
  const MakeBatch batch = [](int step) { return rows(step % 2 == 0 ? 32 : 16)(step); };
  EXPECT_TRUE(parity(stack(2), batch, kRounding, a_stage_a_worker().steps(4)));
}

// The stages of a replica have 2 and 1 devices, or 1 and 2.
TEST(PipelineWorkers, CutRowsAnew) {
  for (const std::vector<int>& stages : {std::vector<int>{2, 1}, std::vector<int>{1, 2}}) {
    const MakeProgram make = [&] {
      auto net = std::make_shared<Stack>(stages);
      return program(net, sgd(*net, 0.1), classification(net));
    };
    for (const std::vector<int>& workers : {std::vector<int>{1, 1, 1}, std::vector<int>{2, 1},
                                            std::vector<int>{1, 2}, std::vector<int>{3, 3}}) {
      const Variant variant = Variant().steps(2).stages(stages).workers(workers).micro_batches(2);
      EXPECT_TRUE(parity(make, rows(48), kRounding, variant))
          << stages[0] << " to " << stages[1] << " on " << workers[0] << ", " << workers[1];
    }
  }
}

}  // namespace
}  // namespace epl::parity

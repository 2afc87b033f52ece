// Pipelines whose stages lie on several workers, which are processes: the same parameters on all of
// them, and those of the plain loop.
#include <gmock/gmock.h>
#include <unistd.h>

#include "config/test_environment.h"
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
                                         Layout{{2, 1, 1}, 2}, Layout{{3, 1}, 2},
                                         Layout{{1, 2, 1}, 2}, Layout{{1, 1, 2}, 2, false},
                                         Layout{{1, 1, 1, 1}, 4}, Layout{{1, 1, 1, 1}, 2},
                                         Layout{{1, 1, 1, 1}, 2, false}),
                         [](const auto& info) {
                           std::string name = "Devices";
                           for (int devices : info.param.workers)
                             name += "_" + std::to_string(devices);
                           return name + "_stages_" + std::to_string(info.param.stages) +
                                  (info.param.by_replica ? "" : "_by_stage");
                         });

class StagedModelsOnWorkers : public testing::TestWithParam<std::string> {
 protected:
  static Variant of_model(Variant variant) {
    return GetParam() == "gradient penalty" ? variant.differs_by_rows(kPenalty) : variant;
  }
};

TEST_P(StagedModelsOnWorkers, TrainWithAStageAWorker) {
  const StagedModel& model = staged_model(GetParam());
  const Layout layout{std::vector<int>(static_cast<size_t>(model.stages), 1), model.stages};
  EXPECT_TRUE(parity(model.make, model.batch, kRounding, of_model(layout.variant(4))));
}

// Stage by stage, but where random numbers are drawn: the plain loop knows those of the other
// order.
TEST_P(StagedModelsOnWorkers, TrainInReplicas) {
  const StagedModel& model = staged_model(GetParam());
  const Layout layout{{model.stages, model.stages}, model.stages, GetParam() == "noise"};
  EXPECT_TRUE(parity(model.make, model.batch, kRounding, of_model(layout.variant(2))));
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

TEST(PipelineWorkers, ClipTiedParameters) {
  const StagedModel& staged = staged_model("tied embedding");
  for (const Layout& layout : {Layout{{1, 1, 1}, 3}, Layout{{3, 3}, 3, false}}) {
    EXPECT_TRUE(parity(staged.make, staged.batch, kRounding,
                       layout.variant(2).clip_norm(0.05).clip_after()));
  }
}

TEST(PipelineWorkers, GradientsTravelAsHalf) {
  EXPECT_TRUE(parity(stack(2), rows(32), within(2e-2, "half precision has 11 bits"),
                     replicas_of_workers().with("communication.fp16", true)));
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

// --- what a user does besides
// ---------------------------------------------------------------------

struct Training {
  explicit Training(int stages) : net(std::make_shared<Stack>(stages)) {}

  void step(int number) {
    torch::manual_seed(100 + number);
    trainer.step(rows(8)(number));
  }
  std::vector<torch::Tensor> parameters() const {
    std::vector<torch::Tensor> copies;
    for (const torch::Tensor& each : net->parameters()) copies.push_back(each.detach().clone());
    return copies;
  }

  std::shared_ptr<Stack> net;
  torch::optim::Adam optimizer{net->parameters(), 0.1};
  Trainer trainer{net, optimizer, classification(net)};
};

// The states of the optimizer lie with their stages; in the file they are all together.
TEST(PipelineWorkers, GoOnFromAFile) {
  const std::string path = testing::TempDir() + "epl_pipeline_" + std::to_string(getpid()) + ".pt";
  run_on_workers({1, 1, 1}, [&](int) {
    epl::init(Config{{"pipeline.num_micro_batch", 2}});
    Training first(3);
    for (int i = 0; i < 3; ++i) first.step(i);
    first.trainer.save(path);
    for (int i = 3; i < 6; ++i) first.step(i);
    Training second(3);
    second.step(0);
    second.trainer.load(path);
    for (int i = 3; i < 6; ++i) second.step(i);
    const auto expected = first.parameters(), found = second.parameters();
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(expected[i].equal(found[i])) << i;
  });
  unlink(path.c_str());
}

// Those of the replica that the worker has a stage of, wherever they were made.
TEST(PipelineWorkers, MergeMetrics) {
  run_on_workers({1, 1, 1, 1}, [](int worker) {
    epl::init(Config{{"pipeline.num_micro_batch", 2}});
    auto net = std::make_shared<Stack>(2);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Trainer trainer(net, optimizer, [net](const Batch& batch) {
      for (int i : {0, 1}) {
        const With scope(stage(i));
        const torch::Tensor made = batch[1] * (i + 1);
        const std::string name = i == 0 ? "first" : "last";
        add_to_collection(collections::kLocalConcat, made, name + " local");
        add_to_collection(collections::kGlobalConcat, made, name + " global");
      }
      return cross_entropy(net->forward(batch[0]), batch[1]);
    });
    const int replica = worker / 2;
    const torch::Tensor all = torch::arange(8) % 6;
    const torch::Tensor own = all.slice(0, 4 * replica, 4 * replica + 4);
    const auto metrics = trainer.step({torch::randn({4, 6}), own}).metrics;
    EXPECT_TRUE(metrics.at("first local").equal(own));
    EXPECT_TRUE(metrics.at("last local").equal(own * 2));
    EXPECT_TRUE(metrics.at("first global").equal(all));
    EXPECT_TRUE(metrics.at("last global").equal(all * 2));
  });
}

// Two trainers take turns, each a pipeline.
TEST(PipelineWorkers, TakeTurns) {
  const MakeProgram make = [] {
    Program both = stack(2)();
    both.turns.push_back(stack(2)().turns[0]);
    both.turns[0].modules[0].name = "one";
    both.turns[1].modules[0].name = "other";
    return both;
  };
  EXPECT_TRUE(parity(make, rows(32), kRounding, a_stage_a_worker()));
}

// Without gathering, the workers still agree in what they have to.
TEST(PipelineWorkers, LeaveParametersWithTheirStages) {
  for (const std::string model : {"read elsewhere", "tied embedding", "skips", "code outside"}) {
    const StagedModel& staged = staged_model(model);
    const Layout layout{std::vector<int>(static_cast<size_t>(staged.stages), 1), staged.stages};
    const Variant variant = layout.variant(2).with("pipeline.gather_parameters", false);
    const Trace plain = train_plain(staged.make, staged.batch, variant);
    for (const Trace& trace : train_on_workers(staged.make, staged.batch, variant)) {
      for (size_t i = 0; i < plain.size(); ++i) {
        EXPECT_NEAR(plain[i].losses[0], trace[i].losses[0], 1e-5) << model << ", step " << i;
      }
    }
  }
}

TEST(PipelineWorkers, GatherParametersWhenTheyAreAsked) {
  run_on_workers({1, 1}, [](int worker) {
    epl::init(Config{{"pipeline.gather_parameters", false}});
    Training training(2);
    const std::string other = worker == 0 ? "layers.1.weight" : "layers.0.weight";
    const torch::Tensor far = training.net->named_parameters()[other];
    for (int i = 0; i < 2; ++i) training.step(i);  // recorded, and looked at again
    const torch::Tensor before = far.detach().clone();
    training.step(2);
    EXPECT_TRUE(far.equal(before));
    training.trainer.gather_parameters();
    EXPECT_FALSE(far.equal(before));
  });
}

// Each would go on without what the optimizer has learnt on the others.
TEST(PipelineWorkers, RefuseOtherStagesThanThoseThatHaveTheState) {
  run_on_workers({1, 1, 1, 1}, [](int) {
    epl::init();
    Training first(2);
    first.step(0);
    first.net->devices = {2, 2};
    Trainer second(first.net, first.optimizer, classification(first.net));
    EXPECT_THAT(error_of([&] { second.step(rows(8)(1)); }),
                testing::HasSubstr("lie on stages of 1 + 1 devices, where another trainer put "
                                   "them, and this step has 2 + 2"));
  });
}

TEST(PipelineWorkers, CannotFollowValuesThatAreReadBack) {
  const MakeProgram make = parts(2, [](Parts& net, const Batch& batch) -> StepOutput {
    torch::Tensor x;
    {
      const With scope(stage(0));
      x = net(0, batch[0]);
    }
    const With scope(stage(1));
    return cross_entropy(x.max().item<float>() > 100 ? x : net(1, x), batch[1]);
  });
  testing::internal::CaptureStderr();
  EXPECT_ANY_THROW(train_on_workers(make, rows(32), a_stage_a_worker()));
  const std::string said = testing::internal::GetCapturedStderr();
  for (const char* who : {"worker 0: ", "worker 1: "}) {
    EXPECT_NE(
        said.find(std::string(who) +
                  "epl: the step reads values back into C++ (aten::_local_scalar_dense), which "
                  "stages and parts on several workers cannot follow: they would have to record "
                  "again together\n"),
        std::string::npos)
        << said;
  }
}

}  // namespace
}  // namespace epl::parity

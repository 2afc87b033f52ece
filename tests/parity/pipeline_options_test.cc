// Pipelines under every option of a training: optimizers, clipping, sums, sources, statistics.
#include "tests/parity/on_devices.h"
#include "tests/parity/pipelines.h"

namespace epl::parity {
namespace {

using torch::Tensor;

const Exactness kRounding = within(1e-5, "the order of a sum is free");

MakeProgram stack_with(const std::function<OptimizerPointer(const Stack&)>& optimizer) {
  return [=] {
    auto net = std::make_shared<Stack>(2);
    return program(net, optimizer(*net), classification(net));
  };
}

TEST(PipelineOptions, AdamWUpdatesEachStage) {
  const MakeProgram make = stack_with([](const Stack& net) {
    return std::make_shared<torch::optim::AdamW>(
        net.parameters(), torch::optim::AdamWOptions(0.01).weight_decay(0.1));
  });
  EXPECT_TRUE(parity(make, rows(32), kRounding, pipeline(2, 4, 2)));
}

TEST(PipelineOptions, AnyOptimizerUpdatesEachStage) {
  const MakeProgram make = stack_with([](const Stack& net) {
    return std::make_shared<torch::optim::RMSprop>(
        net.parameters(), torch::optim::RMSpropOptions(0.01).momentum(0.9).centered(true));
  });
  EXPECT_TRUE(parity(make, rows(32), kRounding, pipeline(2, 4)));
}

TEST(PipelineOptions, TheNormIsThatOfAllStages) {
  for (int replicas : {1, 2}) {
    const Variant variant = pipeline(3, 4, replicas).clip_norm(0.1);
    EXPECT_TRUE(parity(stack(3), rows(32), kRounding, variant)) << replicas;
    EXPECT_TRUE(parity(stack(3), rows(32), kRounding, Variant(variant).clip_after())) << replicas;
    EXPECT_TRUE(
        parity(stack(3), rows(32), kRounding, pipeline(3, 2, replicas).clip_norm(0.05, INFINITY)));
  }
}

TEST(PipelineOptions, ValuesAreClipped) {
  const Variant variant = pipeline(2, 4, 2).clip_value(0.003);
  EXPECT_TRUE(parity(stack(2), rows(32), kRounding, variant));
  EXPECT_TRUE(parity(stack(2), rows(32), kRounding, Variant(variant).clip_after()));
}

TEST(PipelineOptions, GradientsAreSummed) {
  for (int replicas : {1, 2}) {
    EXPECT_TRUE(parity(stack(2), rows(32), kRounding, pipeline(2, 4, replicas).sum())) << replicas;
  }
}

TEST(PipelineOptions, TheUpdateRunsInGroups) {
  for (int groups : {2, 3, 100}) {
    EXPECT_TRUE(parity(stack(3), rows(32), bit_equal(), pipeline(3, 4).apply_groups(groups)));
  }
}

TEST(PipelineOptions, MicroBatchesComeFromASource) {
  for (int replicas : {1, 2}) {
    EXPECT_TRUE(parity(stack(2), rows(32), bit_equal(), pipeline(2, 4, replicas).from_source()));
  }
}

TEST(PipelineOptions, ABatchOfAnotherShapeComesInBetween) {
  const MakeBatch batch = [](int step) { return rows(step == 1 ? 8 : step == 3 ? 64 : 32)(step); };
  EXPECT_TRUE(parity(stack(3), batch, bit_equal(), pipeline(3, 4, 2).steps(6)));
}

TEST(PipelineOptions, StepsAreVerified) {
  for (int replicas : {1, 2}) {
    EXPECT_TRUE(parity(stack(3), rows(32), bit_equal(),
                       pipeline(3, 4, replicas).with("debug.verify_steps", 3)));
  }
}

// --- batch norm ---------------------------------------------------------------------------------

struct Normed : torch::nn::Module {
  explicit Normed(int stages) {
    for (int i = 0; i < stages; ++i) {
      layers->push_back(torch::nn::Linear(6, 6));
      norms->push_back(torch::nn::BatchNorm1d(6));
    }
    register_module("layers", layers);
    register_module("norms", norms);
  }
  Tensor forward(Tensor x) {
    for (size_t i = 0; i < layers->size(); ++i) {
      const With scope(stage(static_cast<int>(i)));
      x = norms[i]->as<torch::nn::BatchNorm1d>()->forward(
          layers[i]->as<torch::nn::Linear>()->forward(x));
    }
    return x;
  }

  torch::nn::ModuleList layers;
  torch::nn::ModuleList norms;
};

Program normed() {
  auto net = std::make_shared<Normed>(3);
  return program(net, sgd(*net, 0.1), classification(net));
}

TEST(PipelineOptions, BatchNormTakesTheStatisticsOfEachMicroBatch) {
  for (const std::string& schedule : schedules()) {
    const Variant variant = pipeline(3, 4).with("pipeline.strategy", schedule);
    EXPECT_TRUE(parity(normed, rows(32), bit_equal(), variant)) << schedule;
  }
}

TEST(PipelineOptions, RunningStatisticsAreTheMeanOfTheReplicas) {
  EXPECT_TRUE(parity(normed, rows(32), kRounding, pipeline(3, 2, 2)));
  EXPECT_TRUE(parity(normed, rows(64), kRounding, pipeline(3, 2, 4)));
}

// The parts by which strategies are found out must not be smaller than a micro batch.
TEST(PipelineOptions, BatchNormTakesMicroBatchesOfAFewRows) {
  EXPECT_TRUE(parity(normed, rows(12), bit_equal(), pipeline(3, 4)));
  EXPECT_TRUE(parity(normed, rows(24), kRounding, pipeline(3, 4, 2)));
}

// --- random numbers -----------------------------------------------------------------------------

// Dropout in the first stage, or in the last one.
MakeProgram dropping(int where) {
  return [where] {
    auto net = std::make_shared<Stack>(2);
    return program(net, sgd(*net, 0.1), [net, where](const Batch& batch) {
      Tensor x = batch[0];
      for (int i : {0, 1}) {
        const With scope(stage(i));
        x = net->layers[static_cast<size_t>(i)]->as<torch::nn::Linear>()->forward(x);
        if (i == where) x = torch::dropout(x, 0.5, true);
      }
      return cross_entropy(x, batch[1]);
    });
  };
}

TEST(PipelineOptions, TheFirstStageDrawsTheNumbersOfThePlainLoop) {
  for (const std::string& schedule : schedules()) {
    const Variant variant = pipeline(2, 4).with("pipeline.strategy", schedule);
    EXPECT_TRUE(parity(dropping(0), rows(32), bit_equal(), variant)) << schedule;
  }
  EXPECT_TRUE(parity(dropping(0), rows(32), bit_equal(), pipeline(2, 4, 2)));
}

TEST(PipelineOptions, OtherStagesDrawTheSameNumbersInEveryRun) {
  const Variant variant = pipeline(2, 4, 2);
  const Trace first = train_on_devices(dropping(1), rows(32), variant);
  for (const std::string& schedule : schedules()) {
    const Variant other = Variant(variant).with("pipeline.strategy", schedule);
    EXPECT_TRUE(same_traces(first, train_on_devices(dropping(1), rows(32), other))) << schedule;
  }
  EXPECT_FALSE(same_traces(first, train_plain(dropping(1), rows(32), variant)));
}

struct Scale : torch::nn::Module {
  Tensor first = register_parameter("first", torch::full({6}, 0.75));
  Tensor last = register_parameter("last", torch::full({6}, 0.5));
};

// Whether forward and backward of a micro batch have the same mask: the sum over rows of what was
// not dropped, over the parameter, is its gradient.
TEST(PipelineOptions, BackwardHasTheMaskOfItsForward) {
  const OnDevices devices(2);
  for (const std::string& schedule : schedules()) {
    epl::init(Config{{"pipeline.num_micro_batch", 4}, {"pipeline.strategy", schedule}});
    torch::manual_seed(1);
    auto net = std::make_shared<Scale>();
    torch::optim::SGD optimizer(net->parameters(), 1.0);
    Trainer trainer(net, optimizer, [net](const Batch& batch) {
      Tensor x;
      {
        const With scope(stage(0));
        x = batch[0] * net->first;
      }
      const With scope(stage(1));
      const Tensor dropped = torch::dropout(x * net->last, 0.5, true);
      add_to_collection(collections::kGlobalConcat, dropped, "dropped");
      return dropped.sum();
    });
    for (int step = 0; step < 3; ++step) {
      const Tensor first = net->first.detach().clone(), last = net->last.detach().clone();
      const Tensor dropped = trainer.step({torch::rand({32, 6}) + 0.5}).metrics.at("dropped");
      const int64_t kept = dropped.ne(0).sum().item<int64_t>();
      EXPECT_TRUE(kept > 32 && kept < 160) << kept;
      EXPECT_TRUE(torch::allclose(first - net->first, dropped.sum(0) / first / 4)) << schedule;
      EXPECT_TRUE(torch::allclose(last - net->last, dropped.sum(0) / last / 4)) << schedule;
    }
  }
}

// --- metrics ------------------------------------------------------------------------------------

// Each collection has one made in the first stage and one in the last; the batch alone decides.
StepOutput with_metrics(Stack& net, const Batch& batch) {
  Tensor x;
  const auto collect = [&](const std::string& at, const Tensor& rows) {
    for (const char* each : {"MEAN", "SUM"}) {
      add_to_collection(std::string("GLOBAL_") + each, rows.sum(), at + " GLOBAL_" + each);
      add_to_collection(std::string("LOCAL_") + each, rows.sum(), at + " LOCAL_" + each);
    }
    add_to_collection(collections::kGlobalConcat, rows, at + " GLOBAL_CONCAT");
    add_to_collection(collections::kLocalConcat, rows, at + " LOCAL_CONCAT");
  };
  {
    const With scope(stage(0));
    x = net.layers[0]->as<torch::nn::Linear>()->forward(batch[0]);
    collect("first", batch[0].sum(1));
  }
  const With scope(stage(1));
  x = net.layers[1]->as<torch::nn::Linear>()->forward(x);
  collect("last", batch[1].to(torch::kFloat) * 2);
  add_to_collection(collections::kGlobalConcat, batch[1], "of the batch");
  return cross_entropy(x, batch[1]);
}

TEST(PipelineOptions, MetricsOfAllStagesAreMerged) {
  for (int replicas : {1, 2}) {
    const OnDevices devices(2 * replicas);
    epl::init(Config{{"pipeline.num_micro_batch", 2}});
    auto net = std::make_shared<Stack>(2);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Trainer trainer(net, optimizer,
                    [net](const Batch& batch) { return with_metrics(*net, batch); });
    for (int step = 0; step < 2; ++step) {
      const Batch batch = rows(16)(step);
      const auto metrics = trainer.step(batch).metrics;
      EXPECT_EQ(metrics.size(), 13u);
      EXPECT_TRUE(metrics.at("of the batch").equal(batch[1]));
      const std::map<std::string, Tensor> expected = {{"first", batch[0].sum(1)},
                                                      {"last", batch[1].to(torch::kFloat) * 2}};
      for (const auto& [at, all] : expected) {
        const Tensor local = all.slice(0, 0, 16 / replicas);
        const auto near = [&](const std::string& name, const Tensor& value) {
          return torch::allclose(metrics.at(name), value);
        };
        EXPECT_TRUE(near(at + " GLOBAL_MEAN", all.sum() / (2 * replicas))) << at;
        EXPECT_TRUE(near(at + " GLOBAL_SUM", all.sum())) << at;
        EXPECT_TRUE(near(at + " LOCAL_MEAN", local.sum() / 2)) << at;
        EXPECT_TRUE(near(at + " LOCAL_SUM", local.sum())) << at;
        EXPECT_TRUE(near(at + " GLOBAL_CONCAT", all)) << at;
        EXPECT_TRUE(near(at + " LOCAL_CONCAT", local)) << at;
      }
    }
  }
}

// --- stages that EPL chooses --------------------------------------------------------------------

// No scope: dropout in the first operators, state that is written, a tensor that the step closes
// over, a metric, and, where `tied`, a layer that comes twice. In double: where the stages are cut
// is measured, and some cuts sum in another order than others.
MakeProgram without_scopes(bool tied) {
  return [tied] {
    struct Net : torch::nn::Module {
      Net() {
        for (int i = 0; i < 4; ++i) layers->push_back(torch::nn::Linear(6, 6));
        register_module("layers", layers);
        register_module("norm", norm);
      }
      torch::nn::ModuleList layers;
      torch::nn::BatchNorm1d norm{6};
    };
    auto net = std::make_shared<Net>();
    net->to(torch::kDouble);
    const Tensor scale = torch::linspace(0.5, 1.5, 6, torch::kDouble);
    return program(net, sgd(*net, 0.1, 0.9), [=](const Batch& batch) -> StepOutput {
      Tensor x = torch::dropout(batch[0].to(torch::kDouble), 0.2, /*train=*/true);
      for (size_t i = 0; i < 4; ++i) {
        const auto& layer = net->layers[tied ? i % 3 : i];
        x = torch::tanh(layer->as<torch::nn::Linear>()->forward(x).mul_(scale));
      }
      x = net->norm(x);
      return {cross_entropy(x, batch[1]), {{"size", x.abs().mean()}}};
    });
  };
}

TEST(PipelineOptions, StagesThatEplChoosesTrainLikeThePlainLoop) {
  for (int stages : {2, 3}) {
    const Variant variant =
        pipeline(stages, 4).with("auto.auto_parallel", true).with("pipeline.num_stages", stages);
    SCOPED_TRACE(stages);
    EXPECT_TRUE(parity(without_scopes(/*tied=*/false), rows(32), bit_equal(), variant));
    const Exactness rounding = within(1e-10, "the order of a sum is free");
    EXPECT_TRUE(parity(without_scopes(/*tied=*/true), rows(32), rounding, variant));
  }
}

// Found by the fuzzer: one value is the gradient of parameters in two stages. ZeroBubble adds the
// next micro batch to the first one's gradient before the task of the weights reads it.
struct SharedGradient : torch::nn::Module {
  Tensor forward(const Batch& batch) {
    Tensor x;
    {
      const With scope(stage(0));
      first(batch[0]);
    }
    {
      const With scope(stage(1));
      x = middle(table);
    }
    const With scope(stage(2));
    return (x + last).pow(2).sum();
  }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 4));
  torch::nn::Linear middle = register_module("middle", torch::nn::Linear(4, 3));
  Tensor last = register_parameter("last", torch::randn({3}));
  Tensor table = register_buffer("table", torch::randn({4}));
};

TEST(PipelineOptions, AGradientThatAnotherTaskReads) {
  const MakeProgram make = [] {
    auto net = std::make_shared<SharedGradient>();
    return program(net, sgd(*net, 0.1), [net](const Batch& batch) { return net->forward(batch); });
  };
  for (const std::string& schedule : schedules()) {
    EXPECT_TRUE(parity(make, rows(18), within(1e-5, "summed in micro batches"),
                       Variant().steps(2).stages(3).devices(3).micro_batches(3).with(
                           "pipeline.strategy", schedule)))
        << schedule;
  }
}

}  // namespace
}  // namespace epl::parity

// amp.level = "O1": training in mixed precision gives the plain loop's parameters, where the plain
// loop computes under the same AmpScope. The loss scale is a power of two: it changes no bit.
#include <algorithm>
#include <map>

#include "capture/amp_scope.h"
#include "runtime/tile_products.h"
#include "tests/models/programs.h"
#include "tests/parity/parity.h"
#include "tests/parity/pipeline_models.h"
#include "tests/parity/split_models.h"

namespace epl::parity {
namespace {

// Before any test: once oneDNN has run something it is too late.
const bool kWithoutTiles = (avoid_tile_products(), true);

// Nested in the trainer's own scope the one of the program changes nothing.
MakeProgram in_amp(const MakeProgram& make) {
  return [make] {
    Program program = make();
    for (Turn& turn : program.turns) {
      turn.step = [step = turn.step](const Batch& batch) {
        const AmpScope scope(torch::kBFloat16);
        return step(batch);
      };
    }
    return program;
  };
}

Variant amp(Variant variant) {
  return variant.with("amp.level", "O1")
      .differs_by_rows("sums over the rows of a part are rounded to bfloat16");
}

class ModelInMixedPrecision : public testing::TestWithParam<std::string> {
 protected:
  static Exactness exactness() {
    if (GetParam() == "bag of words") return within(1e-6, "the order of a sparse sum is its own");
    if (GetParam() == "gru") return within(1e-6, "the sum over time has another order");
    return bit_equal();
  }
  testing::AssertionResult trains(int devices, int micro_batches) {
    Variant variant = Variant().steps(3).devices(devices).micro_batches(micro_batches);
    // It has a backward of its own, which would see the scale.
    if (GetParam() == "quantised") variant.with("amp.loss_scale", 1);
    return parity(in_amp(models::program_named(GetParam())),
                  models::batches_named(GetParam(), devices * micro_batches), exactness(),
                  amp(variant));
  }
};

TEST_P(ModelInMixedPrecision, TrainsOnOneDevice) { EXPECT_TRUE(trains(1, 1)); }
TEST_P(ModelInMixedPrecision, TrainsOnTwoWithAccumulation) { EXPECT_TRUE(trains(2, 2)); }

// Casts are among what runs again.
TEST_P(ModelInMixedPrecision, HasTheSameBitsWithCheckpoints) {
  Variant variant = amp(Variant().steps(3).micro_batches(2));
  if (GetParam() == "quantised") variant.with("amp.loss_scale", 1);
  const MakeProgram make = models::program_named(GetParam());
  const MakeBatch batch = models::batches_named(GetParam(), 2);
  const Trace kept = train_on_devices(make, batch, variant);
  EXPECT_TRUE(
      compare(kept, train_on_devices(make, batch, variant.with("gradient_checkpoint.type", "auto")),
              bit_equal()));
}

// Casts read what rests in a file, or windows.
TEST_P(ModelInMixedPrecision, HasTheSameBitsOffloaded) {
  Variant variant = amp(Variant().steps(3).micro_batches(2));
  if (GetParam() == "quantised") variant.with("amp.loss_scale", 1);
  const MakeProgram make = models::program_named(GetParam());
  const MakeBatch batch = models::batches_named(GetParam(), 2);
  const Trace in_memory = train_on_devices(make, batch, variant);
  Variant away = Variant(variant).with("offload.level", "v1");
  EXPECT_TRUE(compare(in_memory, train_on_devices(make, batch, away), bit_equal()));
  away.with("offload.path", testing::TempDir());
  EXPECT_TRUE(compare(in_memory, train_on_devices(make, batch, away), bit_equal()));
}

INSTANTIATE_TEST_SUITE_P(All, ModelInMixedPrecision, testing::ValuesIn(models::names_with_rows()),
                         models::test_name);

class PipelineInMixedPrecision : public testing::TestWithParam<std::string> {};

TEST_P(PipelineInMixedPrecision, Trains) {
  const StagedModel& model = staged_model(GetParam());
  EXPECT_TRUE(
      parity(in_amp(model.make), model.batch, model.exactness, amp(pipeline(model.stages, 2))));
}

INSTANTIATE_TEST_SUITE_P(All, PipelineInMixedPrecision, testing::ValuesIn(staged_model_names()),
                         models::test_name);

class SplitInMixedPrecision : public testing::TestWithParam<std::string> {};

TEST_P(SplitInMixedPrecision, Trains) {
  SplitModel model = split_models().at(GetParam());
  // A batch norm over few rows makes more of it.
  const double bound = GetParam() == "conv" ? 0.15 : 5e-2;
  model.exactness = within(bound, "parts of a sum are rounded to bfloat16, which has 8 bits");
  model.make = [make = model.make](int devices) { return in_amp([&] { return make(devices); })(); };
  EXPECT_TRUE(trains_split(model, 2, amp(split_over(2))));
}

// How far apart two trainings moved a parameter, as a part of how far the first one did: of the
// worst parameter. The weights themselves would hide a sum that lacks a part: few steps move them
// by little.
double apart_by_updates(const Trace& one, const Trace& other) {
  using ByName = std::map<std::string, torch::Tensor>;
  const ByName first(other.front().tensors.begin(), other.front().tensors.end());
  const ByName last(other.back().tensors.begin(), other.back().tensors.end());
  double worst = 0;
  for (size_t i = 0; i < one.front().tensors.size(); ++i) {
    const auto& [name, before] = one.front().tensors[i];
    if (!before.is_floating_point()) continue;
    const torch::Tensor moved = one.back().tensors[i].second - before;
    const double size = moved.norm().item<double>();
    const double apart = (moved - (last.at(name) - first.at(name))).norm().item<double>();
    if (size > 0) worst = std::max(worst, apart / size);
  }
  return worst;
}

TEST_P(SplitInMixedPrecision, MovesParametersAsThePlainLoopDoes) {
  const SplitModel& model = split_models().at(GetParam());
  const MakeProgram make = in_amp([&] { return model.make(2); });
  Variant variant = amp(split_over(2));
  if (model.colocated) variant.with("cluster.colocate_split_and_replicate", true);
  const Trace plain = train_plain(make, model.batch, variant);
  const double bound = GetParam() == "conv" ? 0.15 : 3e-2;
  EXPECT_LT(apart_by_updates(plain, train_on_devices(make, model.batch, variant)), bound);
}

// What the bound is worth: with gradients that lack a tenth it does not hold.
TEST(MixedPrecision, UpdatesTellOfGradientsThatLackATenth) {
  const SplitModel& model = split_models().at("mlp");
  const MakeProgram make = in_amp([&] { return model.make(2); });
  const MakeProgram lacking = [&] {
    Program program = make();
    for (Turn& turn : program.turns) {
      turn.step = [step = turn.step](const Batch& batch) -> StepOutput {
        return step(batch).loss * 0.9;
      };
    }
    return program;
  };
  const Variant variant = amp(split_over(2));
  EXPECT_GT(apart_by_updates(train_plain(make, model.batch, variant),
                             train_plain(lacking, model.batch, variant)),
            3e-2);
}

INSTANTIATE_TEST_SUITE_P(All, SplitInMixedPrecision, testing::ValuesIn(split_model_names()),
                         models::test_name);

TEST(MixedPrecision, TrainsWithSlices) {
  EXPECT_TRUE(parity(in_amp(models::program_named("mlp")), models::batches_named("mlp", 4),
                     within(5e-2, "parts of a sum are rounded to bfloat16, which has 8 bits"),
                     amp(Variant().steps(3).devices(2).slices(2))));
}

TEST(MixedPrecision, TrainsOnTwoWorkers) {
  for (const char* name : {"mlp", "lstm", "gpt"}) {
    EXPECT_TRUE(parity(in_amp(models::program_named(name)), models::batches_named(name, 4),
                       within(1e-5, "sums over workers in another order"),
                       amp(Variant().steps(3).workers({1, 1}))))
        << name;
  }
}

TEST(MixedPrecision, TrainsWithStatesThatAreCutOverWorkers) {
  for (const char* name : {"mlp", "gpt"}) {
    EXPECT_TRUE(
        parity(in_amp(models::program_named(name)), models::batches_named(name, 4),
               within(1e-5, "sums over workers in another order"),
               amp(Variant().steps(3).workers({1, 1})).with("zero.level", "v0").without_states()))
        << name;
  }
}

TEST(MixedPrecision, TrainsAPipelineOverTwoWorkers) {
  EXPECT_TRUE(parity(in_amp(stack(2)), rows(32), bit_equal(), amp(pipeline(2, 2).workers({1, 1}))));
}

TEST(MixedPrecision, ClipsWhatIsMeant) {
  const MakeProgram make = in_amp(models::program_named("mlp"));
  const MakeBatch batch = models::batches_named("mlp", 4);
  for (Variant variant : {Variant().clip_norm(0.01), Variant().clip_value(0.001),
                          Variant().clip_norm(0.01).devices(2).clip_after(),
                          Variant().clip_norm(0.01).clip_value(0.001).devices(2)}) {
    EXPECT_TRUE(parity(make, batch, within(1e-6, "the norm is that of scaled gradients"),
                       amp(variant.steps(3))));
  }
}

// Squares of such gradients leave the range of float32.
TEST(MixedPrecision, ClipsGradientsOfALargeScale) {
  const std::string scale = "1208925819614629174706176";  // 2^80
  for (Variant variant : {Variant().clip_norm(0.01).devices(2), Variant().clip_norm(0.01),
                          Variant().clip_norm(0.01).devices(2).micro_batches(2)}) {
    EXPECT_TRUE(parity(in_amp(models::program_named("mlp")), models::batches_named("mlp", 4),
                       within(1e-6, "the norm is that of gradients that were scaled"),
                       amp(variant.steps(3).with("amp.loss_scale", scale))));
  }
}

// A recorder takes _trilinear and _euclidean_dist for one operator each, whose kernels call others.
TEST(MixedPrecision, LeavesWhatKernelsCallAlone) {
  const MakeProgram bilinear = [] {
    torch::nn::Bilinear net(6, 5, 4);
    return program(net.ptr(), sgd(*net, 0.1), [net](const Batch& batch) mutable {
      return cross_entropy(net->forward(batch[0], batch[1]), batch[2]);
    });
  };
  EXPECT_TRUE(parity(
      in_amp(bilinear),
      [](int) -> Batch {
        return {torch::randn({8, 6}), torch::randn({8, 5}), classes(4, {8})};
      },
      bit_equal(), amp(Variant().steps(3))));
  const MakeProgram distances = [] {
    torch::nn::Linear net(8, 6);
    return program(net.ptr(), sgd(*net, 0.1), [net](const Batch& batch) mutable {
      return torch::cdist(net->forward(batch[0]), batch[1]).square().mean();
    });
  };
  EXPECT_TRUE(parity(
      in_amp(distances),
      [](int) -> Batch {
        return {torch::randn({32, 8}), torch::randn({32, 6})};
      },
      bit_equal(), amp(Variant().steps(3))));
}

TEST(MixedPrecision, TakesAFixedScale) {
  EXPECT_TRUE(parity(in_amp(models::program_named("mlp")), models::batches_named("mlp", 1),
                     within(2e-2, "100 is no power of two: gradients are rounded to bfloat16"),
                     amp(Variant().steps(3).with("amp.loss_scale", 100))));
  EXPECT_TRUE(parity(in_amp(models::program_named("mlp")), models::batches_named("mlp", 1),
                     bit_equal(), amp(Variant().steps(3).with("amp.loss_scale", 128))));
}

// A number that changes by a thousandth is another one, though sums of parts may differ by more.
TEST(MixedPrecision, FollowsNumbersThatASplitStepReads) {
  const MakeProgram make = [] {
    auto body = torch::nn::Linear(12, 9), head = torch::nn::Linear(9, 40);
    torch::nn::Sequential net(body, head);
    return program(net.ptr(), sgd(*net, 0.1, 0.9), [=](const Batch& batch) mutable {
      const With scope(split(2, "head"));
      const torch::Tensor logits = head(torch::tanh(body(batch[0])));
      const torch::Tensor loss = cross_entropy(logits, batch[1]);
      return batch[2].max().item<float>() > 1.0005 ? loss * 4 : loss;
    });
  };
  const MakeBatch batch = [](int step) -> Batch {
    return {torch::randn({48, 12}), classes(40, {48}), torch::full({48}, step < 2 ? 1.0 : 1.001)};
  };
  EXPECT_TRUE(parity(in_amp(make), batch, within(5e-2, "parts of a sum are rounded to bfloat16"),
                     amp(split_over(2))));
}

// --- gradients that are not finite ---------------------------------------------------------------

// Of a row of zeros the root has no derivative, but a value.
StepFunction with_root(torch::nn::Linear net) {
  return [net](const Batch& batch) mutable {
    const torch::Tensor y = net(batch[0]);
    return y.square().mean() + (batch[1] * y.square().sum(1)).sqrt().mean();
  };
}

// The same in the first of two stages; the second has finite gradients.
StepFunction with_root_in_first_stage(torch::nn::Linear first, torch::nn::Linear second) {
  return [=](const Batch& batch) mutable {
    torch::Tensor y, root;
    {
      const With scope(stage(0));
      y = first(batch[0]);
      root = (batch[1] * y.square().sum(1)).sqrt();
    }
    const With scope(stage(1));
    return second(y).square().mean() + root.mean();
  };
}

struct Trained {
  std::vector<bool> skipped;
  std::vector<double> scales;
  std::vector<torch::Tensor> weights;
};

// In step 1 the rows from `first_bad` on have no derivative.
Trained train_with_bad_rows(int64_t rows, int64_t first_bad, const TrainerOptions& options) {
  torch::manual_seed(5);
  torch::nn::Linear net(4, 3);
  torch::optim::Adam optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, with_root(net), options);
  Trained trained;
  for (int step = 0; step < 4; ++step) {
    torch::Tensor factor = torch::ones({rows});
    if (step == 1) factor.slice(0, first_bad).zero_();
    const StepResult result = trainer.step({torch::rand({rows, 4}), factor});
    trained.skipped.push_back(result.skipped);
    trained.scales.push_back(result.loss_scale);
    trained.weights.push_back(net->weight.detach().clone());
  }
  return trained;
}

void expect_one_step_skipped(const Trained& trained) {
  EXPECT_EQ(trained.skipped, (std::vector<bool>{false, true, false, false}));
  EXPECT_EQ(trained.scales, (std::vector<double>{32768, 32768, 16384, 16384}));
  EXPECT_TRUE(trained.weights[1].equal(trained.weights[0]));
  EXPECT_FALSE(trained.weights[2].equal(trained.weights[1]));
  EXPECT_TRUE(trained.weights[3].isfinite().all().item<bool>());
}

TEST(MixedPrecision, SkipsAStepWithoutFiniteGradientsOnAllDevices) {
  TrainerOptions by_value;
  by_value.clip_grad_value = 0.1;
  for (const TrainerOptions& options : {TrainerOptions(), by_value}) {
    for (int devices : {1, 2, 3}) {
      run_on_workers({devices}, [&](int) {
        init(Config{{"amp.level", "O1"}});
        expect_one_step_skipped(train_with_bad_rows(6, 4, options));
      });
    }
  }
}

TEST(MixedPrecision, SkipsAStepWithoutFiniteGradientsOnAllWorkers) {
  TrainerOptions by_value;
  by_value.clip_grad_value = 0.1;
  for (const TrainerOptions& options : {TrainerOptions(), by_value}) {
    run_on_workers({1, 2}, [&](int worker) {
      init(Config{{"amp.level", "O1"}});
      expect_one_step_skipped(train_with_bad_rows(2 + 2 * worker, worker == 1 ? 3 : 2, options));
    });
  }
}

TEST(MixedPrecision, SkipsAStepWithoutFiniteGradientsWhereOwnersHaveThem) {
  run_on_workers({1, 2}, [&](int worker) {
    init(Config{{"amp.level", "O1"}, {"zero.level", "v0"}});
    expect_one_step_skipped(train_with_bad_rows(2 + 2 * worker, worker == 1 ? 3 : 2, {}));
  });
}

// A fixed scale gets no smaller: the next step would be skipped as well, and so on.
TEST(MixedPrecision, NamesAGradientThatIsNotFiniteWithAFixedScale) {
  for (int devices : {1, 2}) {
    run_on_workers({devices}, [&](int) {
      init(Config{{"amp.level", "O1"}, {"amp.loss_scale", 128}});
      try {
        train_with_bad_rows(6, 4, {});
        FAIL() << "step 1 has no finite gradient";
      } catch (const Error& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("in step 1 the gradient of `weight` is not finite"), std::string::npos)
            << text;
        EXPECT_NE(text.find("asked by: debug.nan_loss"), std::string::npos) << text;
      }
    });
    run_on_workers({devices}, [&](int) {
      init(Config{{"amp.level", "O1"}, {"amp.loss_scale", 128}, {"debug.nan_loss", "skip"}});
      EXPECT_EQ(train_with_bad_rows(6, 4, {}).skipped,
                (std::vector<bool>{false, true, false, false}));
    });
  }
}

TEST(MixedPrecision, SkipsAStepOnAllStages) {
  for (const std::vector<int>& workers : {std::vector<int>{2}, std::vector<int>{1, 1}}) {
    run_on_workers(workers, [](int) {
      init(Config{{"amp.level", "O1"}, {"pipeline.num_micro_batch", 2}});
      torch::manual_seed(5);
      torch::nn::Linear first(4, 3), second(3, 2);
      torch::nn::Sequential net(first, second);
      torch::optim::Adam optimizer(net->parameters(), 0.1);
      Trainer trainer(net, optimizer, with_root_in_first_stage(first, second));
      std::vector<torch::Tensor> weights;
      std::vector<bool> skipped;
      std::vector<double> scales;
      for (int step = 0; step < 4; ++step) {
        torch::Tensor factor = torch::ones({8});
        if (step == 2) factor.slice(0, 6).zero_();
        const StepResult result = trainer.step({torch::rand({8, 4}), factor});
        skipped.push_back(result.skipped);
        scales.push_back(result.loss_scale);
        weights.push_back(torch::cat({first->weight.flatten(), second->weight.flatten()}).detach());
      }
      EXPECT_EQ(skipped, (std::vector<bool>{false, false, true, false}));
      EXPECT_EQ(scales, (std::vector<double>{32768, 32768, 32768, 16384}));
      EXPECT_TRUE(weights[2].equal(weights[1]));
      EXPECT_TRUE(weights[3].isfinite().all().item<bool>());
    });
  }
}

}  // namespace
}  // namespace epl::parity

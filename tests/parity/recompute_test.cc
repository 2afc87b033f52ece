// Gradient checkpointing: whatever runs again in backward, training gives the bits of a run that
// keeps all. Every model, by marks, by EPL's own choice and under three limits, in every layout.
#include <regex>

#include "program/parse.h"
#include "sim/simulate_plan.h"
#include "tests/models/mlp.h"
#include "tests/models/programs.h"
#include "tests/parity/on_devices.h"
#include "tests/parity/pipeline_models.h"
#include "tests/parity/split_models.h"

namespace epl::parity {
namespace {

constexpr const char* kType = "gradient_checkpoint.type";
constexpr const char* kLimit = "memory.limit";

std::vector<Trace> train(const MakeProgram& make, const MakeBatch& batch, const Variant& variant) {
  if (variant.worker_devices().size() > 1) return train_on_workers(make, batch, variant);
  return {train_on_devices(make, batch, variant)};
}

// The loss is marked: all that may run again does.
MakeProgram with_marked_loss(const MakeProgram& make) {
  return [make] {
    Program marked = make();
    for (Turn& turn : marked.turns) {
      turn.step = [step = turn.step](const Batch& batch) {
        StepOutput output = step(batch);
        add_to_collection(collections::kCheckpoints, output.loss);
        return output;
      };
    }
    return marked;
  };
}

// What the step is said to need at least under this limit; 0 where it runs.
int64_t bytes_missing(const MakeProgram& make, const MakeBatch& batch, const Variant& variant,
                      int64_t limit) {
  try {
    train(make, batch, Variant(variant).with(kLimit, limit));
  } catch (const std::exception& error) {
    std::smatch found;
    const std::string text = error.what();
    const bool says = std::regex_search(text, found, std::regex("needs at least (\\d+) bytes"));
    if (!says) throw;
    return std::stoll(found[1]);
  }
  return 0;
}

// The least limit that all stages can keep.
int64_t least_limit(const MakeProgram& make, const MakeBatch& batch, const Variant& variant) {
  int64_t limit = 1;
  while (const int64_t more = bytes_missing(make, batch, variant, limit)) {
    EXPECT_GT(more, limit);
    limit = more;
  }
  return limit;
}

testing::AssertionResult same_bits(const std::vector<Trace>& kept, const std::vector<Trace>& again,
                                   const std::string& how) {
  for (size_t i = 0; i < kept.size(); ++i) {
    const auto same = compare(kept[i], again[i], bit_equal());
    if (!same) return testing::AssertionFailure() << how << ": " << same.message();
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult trains_alike(const MakeProgram& make, const MakeBatch& batch,
                                      const Variant& variant) {
  const std::vector<Trace> kept = train(make, batch, variant);
  auto same = same_bits(kept, train(make, batch, Variant(variant).with(kType, "auto")), "auto");
  if (!same) return same;
  same = same_bits(kept,
                   train(with_marked_loss(make), batch, Variant(variant).with(kType, "collection")),
                   "collection");
  if (!same) return same;
  const int64_t least = least_limit(make, batch, variant);
  for (const int64_t percent : {100, 104, 115}) {
    const Variant limited = Variant(variant).with(kLimit, least * percent / 100);
    same = same_bits(kept, train(make, batch, limited),
                     "a limit of " + std::to_string(percent) + " %");
    if (!same) return same;
  }
  return testing::AssertionSuccess();
}

class Recomputed : public testing::TestWithParam<std::string> {
 protected:
  static testing::AssertionResult trains(const Variant& variant, int rows) {
    return trains_alike(models::program_named(GetParam()), models::batches_named(GetParam(), rows),
                        variant);
  }
};

TEST_P(Recomputed, OnOneDevice) { EXPECT_TRUE(trains(Variant().steps(3), 1)); }
TEST_P(Recomputed, InMicroBatches) { EXPECT_TRUE(trains(Variant().steps(3).micro_batches(4), 4)); }
TEST_P(Recomputed, OnTwoDevices) { EXPECT_TRUE(trains(Variant().steps(4).devices(2), 2)); }

INSTANTIATE_TEST_SUITE_P(Models, Recomputed, testing::ValuesIn(models::names_with_rows()),
                         models::test_name);

class RecomputedStages : public testing::TestWithParam<std::string> {};

TEST_P(RecomputedStages, ByEverySchedule) {
  const StagedModel& model = staged_model(GetParam());
  for (const std::string& schedule : schedules()) {
    const Variant variant = pipeline(model.stages, 4).with("pipeline.strategy", schedule);
    EXPECT_TRUE(trains_alike(model.make, model.batch, variant)) << schedule;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RecomputedStages, testing::ValuesIn(staged_model_names()),
                         models::test_name);

class RecomputedParts : public testing::TestWithParam<std::string> {};

TEST_P(RecomputedParts, OfTwoDevices) {
  const SplitModel& model = split_models().at(GetParam());
  Variant variant = split_over(2, 2);
  if (model.colocated) variant.with("cluster.colocate_split_and_replicate", true);
  EXPECT_TRUE(trains_alike([&] { return model.make(2); }, model.batch, variant));
}

INSTANTIATE_TEST_SUITE_P(Models, RecomputedParts, testing::ValuesIn(split_model_names()),
                         models::test_name);

// tanh and sigmoid: backward reads what they made.
struct Deep : torch::nn::Module {
  explicit Deep(int layers) {
    for (int i = 0; i < layers; ++i) {
      linear.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(16, 16)));
    }
    register_module("norm", norm);
    register_module("drop", drop);
  }
  torch::Tensor forward(torch::Tensor x, bool marks) {
    for (size_t i = 0; i < linear.size(); ++i) {
      x = drop(torch::tanh(norm(linear[i]->forward(x)))) + torch::sigmoid(x);
      if (marks && i % 2 == 1) add_to_collection(collections::kCheckpoints, x);
    }
    return x;
  }
  std::vector<torch::nn::Linear> linear;
  torch::nn::BatchNorm1d norm{16};
  torch::nn::Dropout drop{0.3};
};

MakeProgram deep(int layers, bool marks) {
  return [=] {
    auto net = std::make_shared<Deep>(layers);
    return program(net, sgd(*net, 0.1, 0.9), [net, marks](const Batch& batch) {
      return cross_entropy(net->forward(batch[0], marks), batch[1]);
    });
  };
}

Batch wide_rows(int) { return {torch::randn({32, 16}), classes(16, {32})}; }

TEST(Recomputed, DrawsMasksOnceAndMovesStatisticsOnce) {
  for (const int micro_batches : {1, 4}) {
    EXPECT_TRUE(trains_alike(deep(6, false), wide_rows, Variant().micro_batches(micro_batches)));
  }
}

TEST(Recomputed, OnWorkers) {
  EXPECT_TRUE(trains_alike(deep(4, false), wide_rows, Variant().steps(4).workers({1, 1})));
  const StagedModel& model = staged_networks().begin()->second;
  EXPECT_TRUE(trains_alike(model.make, model.batch,
                           Variant(pipeline(model.stages, 4))
                               .workers(std::vector<int>(static_cast<size_t>(model.stages), 1))));
}

// Layers of Deep dealt out to scopes, two to each.
MakeProgram staged(const std::vector<Strategy>& strategies) {
  return [strategies] {
    auto net = std::make_shared<Deep>(static_cast<int>(2 * strategies.size()));
    return program(net, sgd(*net, 0.1, 0.9), [net, strategies](const Batch& batch) {
      torch::Tensor x = batch[0];
      for (size_t i = 0; i < net->linear.size(); ++i) {
        const With scope(strategies[i / 2]);
        x = torch::tanh(net->linear[i]->forward(x)) + torch::sigmoid(x);
      }
      return cross_entropy(x, batch[1]);
    });
  };
}

TEST(Recomputed, InSplitStagesOfAPipeline) {
  const std::vector<Strategy> ends = {replicate(1, "a"), split(2, "b"), replicate(1, "c")};
  for (const std::string& schedule : schedules()) {
    const Variant variant =
        Variant().steps(3).stages({1, 2, 1}).micro_batches(4).with("pipeline.strategy", schedule);
    EXPECT_TRUE(trains_alike(staged(ends), wide_rows, Variant(variant).devices(4))) << schedule;
  }
  const Variant two = Variant().steps(3).stages({2, 2}).micro_batches(2);
  EXPECT_TRUE(
      trains_alike(staged({replicate(2, "a"), split(2, "b")}), wide_rows, Variant(two).devices(4)));
}

TEST(Recomputed, InPartsOnWorkers) {
  EXPECT_TRUE(trains_alike(staged({split(2, "all")}), wide_rows,
                           Variant().steps(3).stages(2).micro_batches(2).workers({1, 1})));
}

TEST(Recomputed, Interleaved) {
  const Variant variant = Variant()
                              .steps(3)
                              .stages(2)
                              .devices(2)
                              .micro_batches(4)
                              .with("pipeline.strategy", "Interleaved")
                              .with("pipeline.num_stages", 2);
  EXPECT_TRUE(trains_alike(
      staged({replicate(1, "a"), replicate(1, "b"), replicate(1, "c"), replicate(1, "d")}),
      wide_rows, variant));
}

TEST(Recomputed, UnderReplicate) {
  EXPECT_TRUE(trains_alike(deep(4, false), wide_rows, Variant().steps(3).devices(2).slices(2)));
}

// The plan of a training of one step.
std::string plan_of(const MakeProgram& make, const MakeBatch& batch,
                    std::initializer_list<Setting> settings, double* loss = nullptr) {
  torch::manual_seed(1);
  init(Config(settings));
  const Program made = make();
  const Turn& turn = made.turns[0];
  Trainer trainer(turn.modules, {*turn.optimizers[0]}, turn.step);
  for (int i = 0; i < 3; ++i) {
    const StepResult result = trainer.step(batch(i));
    if (loss != nullptr) *loss = result.loss;
  }
  std::string plan = trainer.plan();
  init();
  return plan;
}

// Bytes of all values at the peak: as the plan has them, and if all were kept.
std::pair<int64_t, int64_t> bytes_in(const std::string& plan) {
  std::smatch found;
  const std::regex remark("values take (\\d+) bytes at most, (\\d+) if all were kept");
  EXPECT_TRUE(std::regex_search(plan, found, remark)) << plan.substr(0, 400);
  if (found.empty()) return {};
  return {std::stoll(found[1]), std::stoll(found[2])};
}

TEST(Checkpoints, TakeLessMemory) {
  const auto [marked, kept] = bytes_in(plan_of(deep(8, true), wide_rows, {{kType, "collection"}}));
  const auto [least, same] = bytes_in(plan_of(deep(8, true), wide_rows, {{kType, "auto"}}));
  EXPECT_EQ(kept, same);
  EXPECT_LT(marked, kept * 9 / 10);
  EXPECT_LE(least, marked);
}

TEST(Checkpoints, KeepMasksAsTruthValues) {
  const std::string all = plan_of(deep(6, false), wide_rows, {});
  EXPECT_EQ(all.find("b8["), std::string::npos);
  const std::string least = plan_of(deep(6, false), wide_rows, {{kType, "auto"}});
  EXPECT_NE(least.find("b8["), std::string::npos) << least;
  // Where all fits nothing is packed.
  EXPECT_EQ(plan_of(deep(6, false), wide_rows, {{kLimit, "1GiB"}}), all);
}

// The plan with each receive in front of all that its task runs.
Plan with_receives_first(Plan plan) {
  for (auto& program : plan.programs) {
    auto& each = program.instructions;
    for (size_t i = 1; i < each.size(); ++i) {
      const bool swaps = each[i].kind == Instruction::Kind::kReceive &&
                         each[i - 1].kind == Instruction::Kind::kRun &&
                         each[i - 1].micro_batch == each[i].micro_batch &&
                         each[i - 1].end_call != Instruction::kToTheEnd;
      if (swaps) std::swap(each[i], each[i - 1]);
    }
  }
  return plan;
}

// Of two stages the first makes values again while the second has the gradient.
TEST(Checkpoints, FillTheBubbleOfAPipeline) {
  const OnDevices devices(2);
  const MakeProgram make = [] {
    auto net = std::make_shared<Deep>(8);
    return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
      torch::Tensor x = batch[0];
      for (size_t i = 0; i < 8; ++i) {
        const With scope(stage(i < 4 ? 0 : 1));
        x = torch::tanh(net->linear[i]->forward(x)) + torch::sigmoid(x);
      }
      return cross_entropy(x, batch[1]);
    });
  };
  const Plan plan = parse_plan(plan_of(
      make, wide_rows,
      {{kType, "auto"}, {"pipeline.num_micro_batch", 4}, {"pipeline.strategy", "PreferBackward"}}));
  const Plan waits = with_receives_first(plan);
  EXPECT_LT(simulate(plan).seconds, simulate(waits).seconds);
}

TEST(Checkpoints, KeepWhatIsMarked) {
  EXPECT_TRUE(same_bits({train_epl(deep(6, true), wide_rows, Variant())},
                        {train_epl(deep(6, true), wide_rows, Variant().with(kType, "collection"))},
                        "collection"));
}

TEST(Checkpoints, ThatNobodyMarksAreAnError) {
  try {
    plan_of(deep(2, false), wide_rows, {{kType, "collection"}});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("marks no tensor to keep"), std::string::npos);
  }
  init();
}

TEST(Checkpoints, BehindTheLastTaskGraphAreKept) {
  const OnDevices devices(2);
  const MakeProgram make = [] {
    auto net = std::make_shared<Deep>(8);
    return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
      torch::Tensor x = batch[0];
      for (size_t i = 0; i < 8; ++i) {
        const With scope(stage(i < 4 ? 0 : 1));
        x = torch::tanh(net->linear[i]->forward(x)) + torch::sigmoid(x);
      }
      return cross_entropy(x, batch[1]);
    });
  };
  const std::string all = plan_of(make, wide_rows, {{kType, "auto"}});
  EXPECT_NE(all.find("stage 0: "), std::string::npos) << all.substr(0, 1000);
  EXPECT_NE(all.find("stage 1: "), std::string::npos);
  const std::string first =
      plan_of(make, wide_rows, {{kType, "auto"}, {"gradient_checkpoint.end_taskgraph", 0}});
  EXPECT_NE(first.find("stage 0: "), std::string::npos);
  EXPECT_EQ(first.find("stage 1: "), std::string::npos);
}

TEST(Checkpoints, AreCheckedByTheBitsOfAllGradients) {
  const MakeProgram make = deep(6, false);
  for (const int devices : {1, 2}) {
    const Variant variant = Variant().devices(devices).micro_batches(2);
    EXPECT_TRUE(same_bits(
        train(make, wide_rows, variant),
        train(
            make, wide_rows,
            Variant(variant).with(kType, "auto").with("gradient_checkpoint.check_gradients", true)),
        "checked"));
  }
}

// An operator of the user's own that gives something else in one of its calls.
int drift_calls = 0;
int drift_in_call = -1;
torch::Tensor drift(const torch::Tensor& x) {
  return x.mul(1.25).add(++drift_calls == drift_in_call ? 1e-3 : 0);
}
TORCH_LIBRARY(epl_recompute_test, library) { library.def("drift(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(epl_recompute_test, CPU, library) { library.impl("drift", drift); }

MakeProgram drifting() {
  return [] {
    auto net = std::make_shared<Deep>(3);
    return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
      static const auto op = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("epl_recompute_test::drift", "")
                                 .typed<torch::Tensor(const torch::Tensor&)>();
      const torch::Tensor x = net->linear[0]->forward(batch[0]);
      const torch::Tensor y = net->linear[1]->forward(x * op.call(x.detach()));
      return cross_entropy(net->linear[2]->forward(torch::tanh(y)), batch[1]);
    });
  };
}

// Of an operator that EPL does not know it is not known whether it draws, writes or counts.
TEST(Checkpoints, KeepWhatOperatorsMakeThatEplDoesNotKnow) {
  const std::string plan = plan_of(drifting(), wide_rows, {{kType, "auto"}});
  const size_t first = plan.find("epl_recompute_test::drift");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(plan.find("epl_recompute_test::drift", first + 1), std::string::npos) << plan;
}

// Whichever of the two calls of the step that is compared gives something else is seen.
TEST(Checkpoints, ThatDifferAreFoundByTheCheck) {
  const auto checked = [] {
    drift_calls = 0;
    plan_of(drifting(), wide_rows,
            {{kType, "auto"}, {"gradient_checkpoint.check_gradients", true}});
    return drift_calls;
  };
  drift_in_call = -1;
  const int calls = checked();
  int found = 0;
  for (drift_in_call = 1; drift_in_call <= calls; ++drift_in_call) {
    try {
      checked();
    } catch (const Error& error) {
      found += std::string(error.what()).find("with values that are computed again") !=
               std::string::npos;
    }
    init();
  }
  // With all kept, and with something made again.
  EXPECT_EQ(found, 2);
}

}  // namespace
}  // namespace epl::parity

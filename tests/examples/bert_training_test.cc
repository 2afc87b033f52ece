// examples/bert: training by EPL gives what the plain LibTorch loop gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "examples/bert/squad_metric.h"
#include "examples/bert/synthetic.h"
#include "examples/bert/training.h"
#include "tests/examples/example_files.h"
#include "tests/parity/on_devices.h"

namespace {

using BertFiles = ExampleFiles;

struct Trained {
  bert::Predictions predictions;
  bert::Score before, after;
  std::vector<double> losses;
};

struct Task {
  bert::QuestionSet training = bert::synthetic_questions(600, 1);
  bert::QuestionSet testing = bert::synthetic_questions(100, 2);
  bert::Tokenizer tokenizer{bert::Vocabulary::of_texts(texts(training), 1000)};
  bert::Features training_features = bert::features_of(training, tokenizer, {56, 28, 10});
  bert::Features testing_features = bert::features_of(testing, tokenizer, {56, 28, 10});

  static std::vector<std::string> texts(const bert::QuestionSet& set) {
    std::vector<std::string> result = set.paragraphs;
    for (const bert::Question& question : set.questions) result.push_back(question.text);
    return result;
  }
};

bert::NetworkOptions small_sizes(const Task& task, double dropout = 0) {
  bert::NetworkOptions sizes;
  sizes.layers = 2;
  sizes.hidden = 32;
  sizes.heads = 2;
  sizes.intermediate = 64;
  sizes.vocabulary = task.tokenizer.vocabulary().size();
  sizes.positions = 56;
  sizes.dropout = dropout;
  return sizes;
}

bert::TrainingOptions small_training(int64_t steps) {
  bert::TrainingOptions options;
  options.steps = steps;
  options.learning_rate = 4e-3;
  return options;
}

enum class Way { kPlain, kOneDevice, kScopes, kAutomatic };

void init(Way way) {
  std::vector<epl::Setting> settings{{"pipeline.num_micro_batch", 4}};
  if (way == Way::kAutomatic) {
    settings.emplace_back("auto.auto_parallel", true);
    settings.emplace_back("pipeline.num_stages", 2);
  }
  epl::init(epl::Config(settings));
}

Trained train(const Task& task, Way way, int64_t steps) {
  const epl::parity::OnDevices devices(way == Way::kScopes || way == Way::kAutomatic ? 2 : 1);
  if (way != Way::kPlain) init(way);
  torch::manual_seed(3);
  bert::NetworkOptions sizes = small_sizes(task);
  sizes.stages = way == Way::kScopes ? 2 : 0;
  bert::QuestionAnswering net(sizes);
  using By = bert::Training::By;
  bert::Training training(net, small_training(steps), way == Way::kPlain ? By::kPlain : By::kEpl);
  const auto score = [&](bert::Predictions& predictions) {
    predictions = bert::answers_of(task.testing, task.testing_features,
                                   training.scores(task.testing_features));
    return bert::score(task.testing, predictions);
  };
  Trained result;
  result.before = score(result.predictions);
  epl::DistributedSampler sampler(task.training_features.windows.size(),
                                  epl::SamplerOptions().seed(5), epl::WorkerShares{});
  for (int64_t step = 0; step < steps; ++step) {
    auto rows = sampler.next(32);
    if (!rows) {
      sampler.reset();
      rows = sampler.next(32);
    }
    result.losses.push_back(training.step(bert::rows_of(task.training_features, *rows)));
  }
  result.after = score(result.predictions);
  return result;
}

void expect_the_same(const Trained& ours, const Trained& plain) {
  for (size_t i = 0; i < 20; ++i) EXPECT_NEAR(ours.losses[i], plain.losses[i], 1e-4) << i;
  EXPECT_EQ(ours.before.f1, plain.before.f1);
  EXPECT_EQ(ours.predictions, plain.predictions);
  EXPECT_EQ(ours.after.exact, plain.after.exact);
  EXPECT_EQ(ours.after.f1, plain.after.f1);
  EXPECT_GT(ours.after.f1, ours.before.f1 + 20) << "untrained " << ours.before.f1;
}

TEST(BertTraining, ByEplGivesTheAnswersOfThePlainLoop) {
  torch::set_num_threads(1);
  const Task task;
  const Trained plain = train(task, Way::kPlain, 150);
  for (const auto& [way, name] : {std::pair{Way::kOneDevice, "one device"},
                                  {Way::kScopes, "two stages by scopes"},
                                  {Way::kAutomatic, "two stages by EPL"}}) {
    SCOPED_TRACE(name);
    expect_the_same(train(task, way, 150), plain);
  }
}

TEST(BertTraining, ScoresWithoutDropoutAndLeavesTheModeAsItWas) {
  const Task task;
  bert::QuestionAnswering net(small_sizes(task, 0.5));
  bert::Training training(net, small_training(1), bert::Training::By::kPlain);
  const torch::Tensor once = training.scores(task.testing_features);
  EXPECT_TRUE(torch::equal(once, training.scores(task.testing_features)));
  EXPECT_EQ(once.sizes(), torch::IntArrayRef({100, 56, 2}));
  EXPECT_TRUE(net->is_training());
}

TEST_F(BertFiles, TrainingGoesOnFromACheckpoint) {
  torch::set_num_threads(1);
  const Task task;
  epl::init(epl::Config{{"pipeline.num_micro_batch", 2}});
  const auto rows = [&](size_t first) {
    std::vector<size_t> windows(8);
    for (size_t i = 0; i < windows.size(); ++i) windows[i] = first + i;
    return bert::rows_of(task.training_features, windows);
  };
  torch::manual_seed(1);
  bert::QuestionAnswering net(small_sizes(task));
  bert::Training whole(net, small_training(6), bert::Training::By::kEpl);
  std::vector<double> losses;
  for (size_t step = 0; step < 6; ++step) {
    if (step == 3) whole.save(path("bert.pt").string());
    losses.push_back(whole.step(rows(8 * step)));
  }

  torch::manual_seed(2);
  bert::QuestionAnswering other(small_sizes(task));
  bert::Training second(other, small_training(6), bert::Training::By::kEpl);
  second.load(path("bert.pt").string());
  ASSERT_EQ(second.steps_done(), 3);
  for (size_t step = 3; step < 6; ++step) EXPECT_EQ(second.step(rows(8 * step)), losses[step]);
}

TEST(BertNetwork, ThatCannotBeBuiltSaysWhy) {
  bert::NetworkOptions sizes;
  sizes.hidden = 10;
  sizes.heads = 3;
  EXPECT_EQ(error_of([&] { bert::QuestionAnswering net(sizes); }),
            "3 heads do not divide a width of 10");
  sizes.heads = 2;
  sizes.layers = 1;
  sizes.stages = 2;
  EXPECT_EQ(error_of([&] { bert::QuestionAnswering net(sizes); }),
            "1 layers cannot be cut into 2 stages");
}

TEST(BertNetwork, IsTheSameWithAndWithoutScopes) {
  const Task task;
  bert::NetworkOptions sizes = small_sizes(task);
  const bert::Rows rows = bert::rows_of(task.testing_features, {0, 1, 2});
  const auto scores = [&](int64_t stages) {
    torch::manual_seed(4);
    sizes.stages = stages;
    bert::QuestionAnswering net(sizes);
    return net->forward(rows.ids, rows.segments, rows.mask);
  };
  EXPECT_TRUE(torch::equal(scores(0), scores(2)));
}

TEST(BertNetwork, DoesNotSeePadding) {
  const Task task;
  torch::manual_seed(4);
  bert::QuestionAnswering net(small_sizes(task));
  bert::Rows rows = bert::rows_of(task.testing_features, {0});
  const int64_t used = rows.mask.sum().item<int64_t>();
  ASSERT_LT(used, 56);
  const torch::Tensor before = net->forward(rows.ids, rows.segments, rows.mask);
  rows.ids.slice(1, used).fill_(7);
  const torch::Tensor after = net->forward(rows.ids, rows.segments, rows.mask);
  EXPECT_TRUE(torch::equal(before.slice(1, 0, used), after.slice(1, 0, used)));
}

}  // namespace

// The text, the network and the writing of examples/gpt.
#include "examples/gpt/gpt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "examples/common/training.h"
#include "examples/gpt/text.h"
#include "tests/examples/example_files.h"
#include "tests/parity/on_devices.h"

namespace {

using GptFiles = ExampleFiles;

gpt::GptOptions small() {
  gpt::GptOptions options;
  options.vocabulary = 5;
  options.context = 8;
  options.layers = 2;
  options.width = 16;
  options.heads = 2;
  return options;
}

TEST_F(GptFiles, AreNumberedByTheirLetters) {
  write("text", "banana\n");
  const gpt::Text text = gpt::read_text(path("text"));
  EXPECT_EQ(text.alphabet, "\nabn");
  EXPECT_TRUE(torch::equal(text.letters, torch::tensor({2, 1, 3, 1, 3, 1, 0}, torch::kInt64)));
  EXPECT_EQ(text.str(text.letters.narrow(0, 1, 3)), "ana");
}

TEST_F(GptFiles, WithoutATextAreNamed) {
  write("empty", "");
  EXPECT_EQ(error_of([&] { gpt::read_text(path("empty")); }),
            "there is no text in " + path("empty").string());
  EXPECT_THAT(error_of([&] { gpt::read_text(path("absent")); }),
              testing::HasSubstr("cannot open " + path("absent").string()));
}

TEST(GptRows, HaveTheNextLettersAsWhatToPredict) {
  const epl::Batch rows = gpt::rows_at(torch::arange(10), {0, 6}, 3);
  EXPECT_TRUE(torch::equal(rows[0], torch::tensor({{0, 1, 2}, {6, 7, 8}}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(rows[1], rows[0] + 1));
}

TEST(Gpt, ScoresEveryTokenOfTheVocabulary) {
  gpt::Gpt net(small());
  const torch::Tensor tokens = torch::randint(5, {3, 6}, torch::kInt64);
  EXPECT_EQ(net->forward(tokens).sizes(), torch::IntArrayRef({3, 6, 5}));
  EXPECT_NEAR(net->loss(tokens, tokens).item<double>(), std::log(5.0), 0.7);
}

TEST(Gpt, DoesNotSeeWhatComesNext) {
  torch::manual_seed(0);
  gpt::Gpt net(small());
  const torch::Tensor tokens = torch::zeros({1, 6}, torch::kInt64);
  const torch::Tensor other = tokens.clone();
  other[0][4] = 3;
  const torch::Tensor difference = (net->forward(tokens) - net->forward(other)).abs().amax({0, 2});
  EXPECT_EQ(difference.narrow(0, 0, 4).max().item<double>(), 0);
  EXPECT_GT(difference[4].item<double>(), 1e-4);
  EXPECT_GT(difference[5].item<double>(), 1e-6);
}

TEST(Gpt, IsTheSameNetworkWithScopesAndWithout) {
  gpt::GptOptions options = small();
  const torch::Tensor tokens = torch::randint(5, {2, 8}, torch::kInt64);
  torch::manual_seed(0);
  const torch::Tensor expected = gpt::Gpt(options)->loss(tokens, tokens);
  options.split = 2;
  options.stages = 2;
  torch::manual_seed(0);
  EXPECT_TRUE(torch::equal(gpt::Gpt(options)->loss(tokens, tokens), expected));
}

TEST(Gpt, SaysWhichSizesDoNotFit) {
  gpt::GptOptions options = small();
  options.heads = 3;
  EXPECT_EQ(error_of([&] { gpt::Gpt net(options); }), "3 heads do not divide a width of 16");
  options = small();
  options.stages = 3;
  EXPECT_EQ(error_of([&] { gpt::Gpt net(options); }), "2 layers cannot be cut into 3 stages");
}

// The plain loop runs beside the first steps and is compared.
TEST(Gpt, LearnsAVerseByHeartAndWritesItOn) {
  epl::init(epl::Config{{"debug.verify_steps", 2}});
  torch::manual_seed(0);
  const gpt::Text text = gpt::text_of("abcdeabcdeabcdeabcdeabcde");
  gpt::Gpt net(small());
  torch::optim::AdamW optimizer(examples::adamw_groups(*net, 0.01));
  epl::Trainer trainer(net, optimizer,
                       [&](const epl::Batch& batch) { return net->loss(batch[0], batch[1]); });
  examples::set_learning_rate(optimizer, 1e-2);
  const epl::Batch rows = gpt::rows_at(text.letters, {0, 1, 2, 3}, 8);
  const double first = trainer.step(rows).loss;
  double last = 0;
  for (int i = 0; i < 40; ++i) last = trainer.step(rows).loss;
  EXPECT_GT(first, 1);
  EXPECT_LT(last, 0.1);
  const torch::Tensor prompt = text.letters.narrow(0, 0, 3);
  EXPECT_EQ(text.str(gpt::write_on(net, prompt, 12, /*temperature=*/0)), "deabcdeabcde");
  EXPECT_TRUE(net->is_training());
  EXPECT_EQ(gpt::write_on(net, prompt, 4, /*temperature=*/1).sizes(), torch::IntArrayRef({4}));
}

// The parameters after three steps on so many devices.
std::vector<torch::Tensor> trained_on(int devices, int split) {
  const epl::parity::OnDevices there(devices);
  epl::init();
  torch::manual_seed(0);
  gpt::GptOptions options = small();
  options.layers = 1;
  options.split = split;
  gpt::Gpt net(options);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  epl::Trainer trainer(net, optimizer,
                       [&](const epl::Batch& batch) { return net->loss(batch[0], batch[1]); });
  const torch::Tensor letters = torch::randint(5, {40}, torch::kInt64);
  for (size_t i = 0; i < 3; ++i) trainer.step(gpt::rows_at(letters, {i, i + 9, i + 14, i + 20}, 8));
  return net->parameters();
}

TEST(Gpt, LearnsTheSameOnDevicesThatShareItsLayers) {
  const std::vector<torch::Tensor> expected = trained_on(1, 0);
  for (const int devices : {2, 4}) {
    const std::vector<torch::Tensor> parameters = trained_on(devices, /*split=*/2);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::allclose(parameters[i], expected[i], 1e-4, 1e-6))
          << "parameter " << i << " on " << devices << " devices";
    }
  }
}

TEST(LearningRate, RisesAndThenFallsToATenth) {
  EXPECT_DOUBLE_EQ(examples::learning_rate_at(0, 100, 1), 0.2);
  EXPECT_DOUBLE_EQ(examples::learning_rate_at(5, 100, 1), 1);
  EXPECT_NEAR(examples::learning_rate_at(99, 100, 1), 0.1, 1e-3);
  EXPECT_GT(examples::learning_rate_at(0, 1, 1), 0);
}

}  // namespace

// The sentences and the translator of examples/moe.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "examples/common/training.h"
#include "examples/moe/network.h"
#include "examples/moe/pairs.h"
#include "tests/examples/example_files.h"
#include "tests/parity/on_devices.h"

namespace {

using PairFiles = ExampleFiles;
using testing::ElementsAre;

TEST_F(PairFiles, AreReadWithTwoThreeOrFourColumns) {
  write("pairs.txt", "Hallo.\tHello.\n\neins\tone\tsomeone said so\r\ndeu\teng\tzwei\ttwo\n");
  const std::vector<moe::Pair> pairs = moe::read_pairs(path("pairs.txt"));
  EXPECT_THAT(moe::sources_of(pairs), ElementsAre("Hallo.", "eins", "zwei"));
  EXPECT_THAT(moe::targets_of(pairs), ElementsAre("Hello.", "one", "two"));
}

TEST_F(PairFiles, AreNamedWithTheLineThatHasNoTab) {
  write("pairs.txt", "eins\tone\nzwei\n");
  EXPECT_EQ(error_of([&] { moe::read_pairs(path("pairs.txt")); }),
            path("pairs.txt").string() + ":2: there is no tab between two sentences");
}

TEST(PublishedPairs, AreReadWhole) {
  const auto folder = shared_data("tatoeba-deu-eng");
  if (!folder) GTEST_SKIP() << kNoSharedData;
  const std::vector<moe::Pair> pairs =
      moe::read_pairs(*folder / "tatoeba-test-v2023-09-26.deu-eng.txt.gz");
  EXPECT_EQ(pairs.size(), 32565U);
  EXPECT_EQ(pairs[10000].source.find('\t'), std::string::npos);
}

TEST(PairWords, StandApartFromMarks) {
  EXPECT_THAT(moe::words_of("Wie  geht's, K\u00f6nigin?\n"),
              ElementsAre("Wie", "geht's", ",", "K\u00f6nigin", "?"));
  EXPECT_THAT(moe::words_of("\u201eJa\u201c\u2026"),
              ElementsAre("\u201e", "Ja", "\u201c", "\u2026"));
  EXPECT_THAT(moe::words_of(" \t"), ElementsAre());
}

TEST(PairVocabulary, HasTheMostFrequentWords) {
  const moe::Vocabulary words({"b a b", "c b a."}, 6);
  EXPECT_EQ(words.size(), 6);
  EXPECT_THAT(words.numbers("b a c", 5), ElementsAre(4, 5, moe::kUnknown, moe::kEnd, 0));
  EXPECT_THAT(words.numbers("", 2), ElementsAre(moe::kEnd, 0));
  EXPECT_THAT(words.numbers("a b a", 3), ElementsAre());  // no room for kEnd
}

TEST(PairVocabulary, MakesATextOfNumbersUpToTheEnd) {
  const moe::Vocabulary words({"Hello, world!"}, 100);
  const torch::Tensor numbers = torch::tensor(words.numbers("Hello, world!", 9));
  EXPECT_EQ(words.text(numbers), "Hello, world!");
  EXPECT_EQ(words.text(numbers.narrow(0, 0, 1)), "Hello");
}

TEST(Sentences, ThatAreTooLongAreLeftOut) {
  const std::vector<moe::Pair> pairs = {{"a", "b b"}, {"a a a a", "b"}, {"a a", "b"}};
  const moe::Vocabulary source({"a"}, 100), target({"b"}, 100);
  const moe::Sentences rows = moe::sentences_of(pairs, source, target, 3);
  ASSERT_EQ(rows.size(), 2);
  EXPECT_TRUE(torch::equal(rows.source, torch::tensor({{4, 2, 0}, {4, 4, 2}}, torch::kInt64)));
  EXPECT_TRUE(
      torch::equal(rows.target, torch::tensor({{1, 4, 4, 2}, {1, 4, 2, 0}}, torch::kInt64)));
  EXPECT_TRUE(torch::equal(rows.rows({1}).target, rows.target.narrow(0, 1, 1)));
  EXPECT_EQ(error_of([&] { moe::sentences_of(pairs, source, target, 1); }),
            "no pair of sentences is short enough");
}

TEST(SyntheticPairs, AreTheSameForASeed) {
  const std::vector<moe::Pair> pairs = moe::synthetic_pairs(300, 1);
  EXPECT_EQ(moe::sources_of(pairs), moe::sources_of(moe::synthetic_pairs(300, 1)));
  EXPECT_NE(moe::sources_of(pairs), moe::sources_of(moe::synthetic_pairs(300, 2)));
  for (const moe::Pair& pair : pairs) EXPECT_EQ(pair.source.back(), pair.target.back());
}

TEST(RelativeBias, HasTheBucketsOfT5) {
  const auto ahead = [](int64_t distance) {
    return moe::RelativeBiasImpl::bucket_of(distance, /*looks_ahead=*/true);
  };
  EXPECT_THAT((std::vector{ahead(0), ahead(-1), ahead(1), ahead(-7), ahead(-8), ahead(1000)}),
              ElementsAre(0, 1, 17, 7, 8, 31));
  const auto behind = [](int64_t distance) {
    return moe::RelativeBiasImpl::bucket_of(distance, /*looks_ahead=*/false);
  };
  EXPECT_THAT((std::vector{behind(3), behind(0), behind(-15), behind(-16), behind(-1000)}),
              ElementsAre(0, 0, 15, 16, 31));
}

moe::TranslatorOptions small(moe::Gating gating) {
  moe::TranslatorOptions options;
  options.source_vocabulary = 20;
  options.target_vocabulary = 15;
  options.longest = 10;
  options.heads = 2;
  options.dropout = 0;
  options.experts.width = 16;
  options.experts.inner = 24;
  options.experts.experts = 4;
  options.experts.gating = gating;
  return options;
}

torch::Tensor tokens(int64_t vocabulary, torch::IntArrayRef sizes) {
  return torch::randint(moe::kFirstWord, vocabulary, sizes, torch::kInt64);
}

double metric(const epl::StepOutput& output, const char* name) {
  return output.metrics.at(name).item<double>();
}

TEST(Translator, HasExpertsInEverySecondLayer) {
  const moe::Translator net(small(moe::Gating::kTop2));
  std::vector<std::string> with_experts;
  for (const auto& parameter : net->named_parameters()) {
    if (parameter.value().dim() == 3) with_experts.push_back(parameter.key());
  }
  EXPECT_THAT(with_experts,
              ElementsAre("encoder.layers.1.experts.up", "encoder.layers.1.experts.down",
                          "decoder.layers.1.experts.up", "decoder.layers.1.experts.down"));
}

TEST(Translator, CountsTokensAndNotPadding) {
  torch::manual_seed(0);
  moe::Translator net(small(moe::Gating::kTop2));
  const torch::Tensor source = tokens(20, {3, 6});
  torch::Tensor target = tokens(15, {3, 6});
  target[0].narrow(0, 4, 2).zero_();
  const epl::StepOutput output = net->step(source, target);
  EXPECT_EQ(metric(output, "tokens"), 13);
  EXPECT_NEAR(metric(output, "nll") / 13, std::log(15.0), 1);
  EXPECT_GT(metric(output, "balance"), 0.9);
  EXPECT_NEAR(output.loss.item<double>(),
              metric(output, "nll") / 15 + 0.01 * 2 * metric(output, "balance"), 1e-5);
}

TEST(Translator, DoesNotSeePadding) {
  torch::manual_seed(0);
  moe::TranslatorOptions options = small(moe::Gating::kTop2);
  options.experts_every = 0;
  moe::Translator net(options);
  const torch::Tensor source = tokens(20, {2, 5});
  const torch::Tensor target = tokens(15, {2, 6});
  const torch::Tensor padding = torch::zeros({2, 3}, torch::kInt64);
  const epl::StepOutput plain = net->step(source, target);
  const epl::StepOutput padded =
      net->step(torch::cat({source, padding}, 1), torch::cat({target, padding}, 1));
  EXPECT_NEAR(metric(plain, "nll"), metric(padded, "nll"), 1e-4);
  EXPECT_EQ(plain.metrics.count("balance"), 0U);
}

class BothTranslators : public testing::TestWithParam<moe::Gating> {};
INSTANTIATE_TEST_SUITE_P(Translator, BothTranslators,
                         testing::Values(moe::Gating::kTop2, moe::Gating::kSwitch),
                         [](const auto& info) {
                           return info.param == moe::Gating::kTop2 ? "Top2" : "Switch";
                         });

// The plain loop runs beside the first steps and is compared.
TEST_P(BothTranslators, LearnAFewSentencesByHeart) {
  epl::init(epl::Config{{"debug.verify_steps", 2}, {"cluster.colocate_split_and_replicate", true}});
  const int devices = epl::Env::get().cluster.total_gpu_num;
  epl::set_default_strategy(epl::replicate(devices));
  const std::vector<moe::Pair> pairs = moe::synthetic_pairs(6, 0);
  const moe::Vocabulary source(moe::sources_of(pairs), 100), target(moe::targets_of(pairs), 100);
  const moe::Sentences rows = moe::sentences_of(pairs, source, target, 12);
  ASSERT_EQ(rows.size(), 6);

  torch::manual_seed(0);
  moe::TranslatorOptions options = small(GetParam());
  options.source_vocabulary = source.size();
  options.target_vocabulary = target.size();
  options.longest = 12;
  options.experts.width = 32;
  options.experts.split = devices;
  options.label_smoothing = 0.05;
  moe::Translator net(options);
  torch::optim::AdamW optimizer(examples::adamw_groups(*net, 0.01));
  examples::set_learning_rate(optimizer, 1e-2);
  epl::Trainer trainer(net, optimizer,
                       [&](const epl::Batch& batch) { return net->step(batch[0], batch[1]); });
  const double first = trainer.step({rows.source, rows.target}).loss;
  epl::StepResult last;
  for (int i = 0; i < 60; ++i) last = trainer.step({rows.source, rows.target});
  EXPECT_LT(last.loss, 0.5 * first);
  EXPECT_EQ(last.metrics.at("hits").item<double>(), last.metrics.at("tokens").item<double>());
  const torch::Tensor translated = moe::translate(net, rows.source);
  for (int64_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(target.text(translated[i]), pairs[static_cast<size_t>(i)].target);
  }
  EXPECT_TRUE(net->is_training());
}

// The parameters after three steps on devices that share the experts.
std::vector<torch::Tensor> trained_on(int devices, moe::Gating gating) {
  const epl::parity::OnDevices there(devices);
  epl::init(epl::Config{{"cluster.colocate_split_and_replicate", true}});
  epl::set_default_strategy(epl::replicate(devices));
  torch::manual_seed(0);
  moe::TranslatorOptions options = small(gating);
  options.layers = 1;
  options.experts_every = 1;
  options.experts.split = devices;
  moe::Translator net(options);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  epl::Trainer trainer(net, optimizer,
                       [&](const epl::Batch& batch) { return net->step(batch[0], batch[1]); });
  for (int i = 0; i < 3; ++i) {
    torch::Tensor source = tokens(20, {4, 6}), target = tokens(15, {4, 7});
    source[1].narrow(0, 3, 3).zero_();
    target[3].narrow(0, 4, 3).zero_();
    trainer.step({source, target});
  }
  return net->parameters();
}

TEST_P(BothTranslators, LearnTheSameOnDevicesThatShareTheExperts) {
  const std::vector<torch::Tensor> expected = trained_on(1, GetParam());
  const std::vector<torch::Tensor> parameters = trained_on(2, GetParam());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(torch::allclose(parameters[i], expected[i], 1e-4, 1e-6)) << "parameter " << i;
  }
}

}  // namespace

// Trains a translator whose experts are shared out over the devices, each of which has rows of its
// own.
//
//   build/bin/moe                                    made-up sentences, one device
//   EPL_DEVICES=2 build/bin/moe                      each device has half of the experts
//   EPL_DEVICES=2 build/bin/moe --gating switch      one expert a token in place of two
//   build/bin/epl-launch --num_workers 2 --gpu_per_worker 1 build/bin/moe
//   build/bin/moe --data deu-eng.txt --width 256 --inner 1024 --steps 3000
//
// The output has this shape; numbers in <> depend on the machine:
//
//   sentences: 19000 for training, 1000 for tests; vocabularies: 66 and 44 words
//   network: 2 + 2 layers of width 64, 8 experts in each 2., <n> parameters; devices: 1
//   step 329/600 [==========>         ]  54%  loss <0.52>  <rate> sentences/s  ETA <m:ss>
//   ...
//   test: loss <0.02> a token, accuracy <99.6> %, balance of the experts <1.1>
//     Heute sucht die kluge Frau den Baum.
//     = Today the clever woman seeks the tree.
//
// What is EPL's here: epl::init with colocation, the default strategy, the scope around the weights
// of the experts (moe_layer.h), the sampler and the Trainer.
#include <CLI/CLI.hpp>
#include <iostream>
#include <sstream>

#include "examples/common/training.h"
#include "examples/progress.h"
#include "network.h"
#include "pairs.h"

namespace {

struct Options {
  std::string data;
  size_t pairs = 20000;
  size_t vocabulary = 6000;
  size_t length = 24;
  moe::TranslatorOptions network;
  int64_t batch = 32;
  int64_t micro_batches = 1;
  int64_t steps = 600;
  double learning_rate = 2e-3;
  double clip = 1.0;
  size_t translations = 5;
  bool plan = false;
  uint64_t seed = 0;
  int threads = 0;
};

struct Data {
  moe::Vocabulary source, target;
  moe::Sentences training, testing;
};

// Each 20th pair is for tests: files are sorted.
Data read_data(const Options& options) {
  const std::vector<moe::Pair> pairs = options.data.empty()
                                           ? moe::synthetic_pairs(options.pairs, options.seed)
                                           : moe::read_pairs(options.data);
  std::vector<moe::Pair> training, testing;
  for (size_t i = 0; i < pairs.size(); ++i) (i % 20 == 0 ? testing : training).push_back(pairs[i]);
  const moe::Vocabulary source(moe::sources_of(training), options.vocabulary);
  const moe::Vocabulary target(moe::targets_of(training), options.vocabulary);
  return {source, target, moe::sentences_of(training, source, target, options.length),
          moe::sentences_of(testing, source, target, options.length)};
}

// A training run, which prints on worker 0.
void train(const Options& options, const Data& data, torch::optim::Optimizer& optimizer,
           epl::Trainer& trainer) {
  const epl::Cluster& cluster = epl::Env::get().cluster;
  const bool speaks = cluster.worker_index == 0;
  const auto batch_size = static_cast<size_t>(epl::worker_batch_size(options.batch));
  epl::DistributedSampler sampler(static_cast<size_t>(data.training.size()),
                                  epl::SamplerOptions().seed(options.seed));
  sampler.reset();
  Progress progress(options.steps, options.batch * cluster.total_gpu_num, "sentences");
  for (int64_t step = 0; step < options.steps; ++step) {
    auto which = sampler.next(batch_size);
    if (!which) {
      sampler.reset();
      which = sampler.next(batch_size);
    }
    examples::set_learning_rate(
        optimizer, examples::learning_rate_at(step, options.steps, options.learning_rate));
    const moe::Sentences rows = data.training.rows(*which);
    const epl::StepResult result = trainer.step({rows.source, rows.target});
    if (!speaks) continue;
    if (step == 0 && options.plan) std::cout << trainer.plan() << std::endl;
    const double loss = result.metrics.at("nll").item<double>();
    progress.show("step " + std::to_string(step + 1) + "/" + std::to_string(options.steps),
                  step + 1, loss / result.metrics.at("tokens").item<double>());
  }
}

// Over all sentences for tests. Every worker tests, so that none waits for another's test.
std::string test(moe::Translator& net, epl::Trainer& trainer, const moe::Sentences& sentences) {
  constexpr int64_t kRows = 100;
  std::map<std::string, double> sums;
  double batches = 0;
  for (int64_t first = 0; first < sentences.size(); first += kRows, ++batches) {
    const int64_t rows = std::min(kRows, sentences.size() - first);
    const epl::StepOutput output = trainer.evaluate(
        [&](const epl::Batch& batch) { return net->step(batch[0], batch[1]); },
        {sentences.source.narrow(0, first, rows), sentences.target.narrow(0, first, rows)});
    for (const auto& [name, value] : output.metrics) sums[name] += value.item<double>();
  }
  std::ostringstream text;
  text << std::fixed << std::setprecision(3) << "test: loss " << sums["nll"] / sums["tokens"]
       << " a token, accuracy " << std::setprecision(1) << 100 * sums["hits"] / sums["tokens"]
       << " %";
  if (sums.count("balance") > 0) {
    text << ", balance of the experts " << std::setprecision(2) << sums["balance"] / batches;
  }
  return text.str();
}

// Sentences for tests from all over the file, and what the network makes of them.
void show_translations(moe::Translator& net, const Data& data, size_t count) {
  const auto size = static_cast<size_t>(data.testing.size());
  std::vector<size_t> which;
  for (size_t i = 0; i < std::min(count, size); ++i) which.push_back(i * size / count);
  if (which.empty()) return;
  const moe::Sentences rows = data.testing.rows(which);
  const torch::Tensor translated = moe::translate(net, rows.source);
  for (int64_t i = 0; i < rows.size(); ++i) {
    std::cout << "  " << data.source.text(rows.source[i])
              << "\n  = " << data.target.text(translated[i]) << "\n";
  }
}

void describe(const Options& options, const Data& data, const moe::Translator& net, int devices) {
  const moe::TranslatorOptions& sizes = options.network;
  std::cout << "sentences: " << data.training.size() << " for training, " << data.testing.size()
            << " for tests; vocabularies: " << data.source.size() << " and " << data.target.size()
            << " words\n"
            << "network: " << sizes.layers << " + " << sizes.layers << " layers of width "
            << sizes.experts.width;
  if (sizes.experts_every > 0) {
    std::cout << ", " << sizes.experts.experts << " experts in each "
              << (sizes.experts_every == 1 ? "of them" : std::to_string(sizes.experts_every) + ".");
  }
  std::cout << ", " << examples::count_parameters(*net) << " parameters; devices: " << devices
            << std::endl;
}

void run(Options options) {
  if (options.threads > 0) torch::set_num_threads(options.threads);
  const Data data = read_data(options);
  epl::init(epl::Config{{"cluster.colocate_split_and_replicate", true},
                        {"communication.clip_after_allreduce", true},  // as the plain loop clips
                        {"pipeline.num_micro_batch", options.micro_batches}});
  const epl::Cluster& cluster = epl::Env::get().cluster;
  const bool speaks = cluster.worker_index == 0;
  epl::set_default_strategy(epl::replicate(cluster.total_gpu_num));
  options.network.experts.split = cluster.total_gpu_num;
  options.network.source_vocabulary = data.source.size();
  options.network.target_vocabulary = data.target.size();
  options.network.longest = static_cast<int64_t>(options.length);
  torch::manual_seed(options.seed);  // all workers begin with the same parameters
  moe::Translator net(options.network);
  if (speaks) describe(options, data, net, cluster.total_gpu_num);

  torch::optim::AdamW optimizer(examples::adamw_groups(*net, /*weight_decay=*/0.01));
  epl::TrainerOptions trainer_options;
  trainer_options.clip_grad_norm = options.clip;
  epl::Trainer trainer(
      net, optimizer, [&](const epl::Batch& batch) { return net->step(batch[0], batch[1]); },
      trainer_options);
  train(options, data, optimizer, trainer);
  const std::string tested = test(net, trainer, data.testing);
  if (!speaks) return;
  std::cout << tested << "\n";
  show_translations(net, data, options.translations);
}

void add_options(CLI::App& app, Options& options) {
  const auto positive = CLI::Range(1, 1 << 30, "POSITIVE");
  const auto count = CLI::Range(0, 1 << 30, "COUNT");
  moe::TranslatorOptions& network = options.network;
  app.add_option("--data", options.data,
                 "Text with a pair of sentences a line and a tab between them, or as Tatoeba has "
                 "it; plain or .gz; else made-up sentences");
  app.add_option("--pairs", options.pairs, "Sentences to make up")->check(CLI::Range(100, 1 << 24));
  app.add_option("--vocabulary", options.vocabulary, "Most words of a language")
      ->check(CLI::Range(10, 1 << 24));
  app.add_option("--length", options.length, "Longest sentence, in words and marks")
      ->check(CLI::Range(2, 1 << 16));
  app.add_option("--layers", network.layers, "Of the encoder, and of the decoder")->check(positive);
  app.add_option("--width", network.experts.width, "Width of the network")->check(positive);
  app.add_option("--inner", network.experts.inner, "Width inside of feed-forward layers")
      ->check(positive);
  app.add_option("--heads", network.heads, "Heads of attention")->check(positive);
  app.add_option("--experts", network.experts.experts, "Experts of a layer")->check(positive);
  app.add_option("--experts-every", network.experts_every,
                 "Each so many-th layer has experts; 0: none")
      ->check(count);
  const std::map<std::string, moe::Gating> gatings = {{"top2", moe::Gating::kTop2},
                                                      {"switch", moe::Gating::kSwitch}};
  app.add_option("--gating", network.experts.gating, "Experts of a token: top2 or switch (one)")
      ->transform(CLI::CheckedTransformer(gatings))
      ->default_str("top2");
  app.add_option("--capacity-factor", network.experts.capacity_factor,
                 "Room of an expert, in times of an even share")
      ->check(CLI::Range(0.01, 1e3));
  app.add_option("--balance-weight", network.balance_weight,
                 "Of the loss that makes experts work alike")
      ->check(CLI::Range(0.0, 1e3));
  app.add_option("--dropout", network.dropout, "Part that is dropped")->check(CLI::Range(0.0, 0.9));
  app.add_option("--label-smoothing", network.label_smoothing,
                 "Part of the probability that is expected of all words alike")
      ->check(CLI::Range(0.0, 0.9));
  app.add_option("--batch", options.batch, "Sentences in one step on each device")->check(positive);
  app.add_option("--micro-batches", options.micro_batches, "Parts that a step's rows are cut into")
      ->check(positive);
  app.add_option("--steps", options.steps, "Updates")->check(positive);
  app.add_option("--learning-rate", options.learning_rate, "AdamW's after warmup")
      ->check(CLI::Range(1e-9, 1e3));
  app.add_option("--clip", options.clip, "Largest norm of the gradients; 0: any")
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--translate", options.translations, "Sentences to translate at the end");
  app.add_flag("--plan", options.plan, "Prints what EPL made of the step");
  app.add_option("--seed", options.seed, "Of parameters, made-up sentences and the order of rows");
  app.add_option("--threads", options.threads, "Threads to compute with; 0: LibTorch's choice")
      ->check(count);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.network.experts.width = 64;
  options.network.experts.inner = 128;
  CLI::App app(
      "Trains a translator with experts by EPL. Without --data it makes up simple German and\n"
      "English sentences. Pairs of sentences in many languages are at https://tatoeba.org,\n"
      "https://www.manythings.org/anki and https://github.com/Helsinki-NLP/Tatoeba-Challenge.");
  app.option_defaults()->always_capture_default();
  add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    std::cerr << "moe: " << error.what() << "\n";
    return 1;
  }
}

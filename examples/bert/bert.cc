// BERT on SQuAD as a pipeline: trains a network that answers questions on a text.
//
//   build/bin/bert                                  made-up questions, a small network, one device
//   EPL_DEVICES=2 build/bin/bert                    two stages on two devices, four micro batches
//   EPL_DEVICES=2 build/bin/bert --auto             the same, but EPL chooses where to cut
//   build/bin/bert --plain                          the same updates by the plain LibTorch loop
//   EPL_DEVICES=2 build/bin/bert --data squad --vocab vocab.txt --weights pytorch_model.bin
//                                                   published weights, trained on SQuAD v1.1
//
// The output has this shape; numbers in <> depend on the machine:
//
//   questions: 4000 for training, 500 for tests; vocabulary: 275 pieces
//   windows: 4000 for training, 500 for tests, 64 tokens each
//   network: 2 layers of width 64, 122050 parameters; 2 stages on 2 devices
//   before training: EM 0.0  F1 9.2
//   step 305/625 [=========>          ]  48%  loss <loss>  <rate> windows/s  ETA <m:ss>
//   after 625 steps: EM 100.0  F1 100.0  (loss 4.33 -> 0.00, <rate> windows/s, <t> s)
//   answers: predictions.json
//
// What is EPL's here: epl::init with its settings, the scopes in network.h, the sampler, and the
// Trainer in training.cc. README.md tells where data, vocabulary and weights come from.
#include <epl/epl.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <sstream>
#include <tuple>

#include "examples/bert/features.h"
#include "examples/bert/network.h"
#include "examples/bert/squad.h"
#include "examples/bert/squad_metric.h"
#include "examples/bert/synthetic.h"
#include "examples/bert/training.h"
#include "examples/bert/weights.h"
#include "examples/bert/wordpiece.h"
#include "examples/common/training.h"
#include "examples/progress.h"

namespace {

namespace fs = std::filesystem;

// A number that is 0 is chosen by fill_in().
struct Options {
  std::string data;
  std::string vocabulary;
  std::string weights;
  size_t train_questions = 0;
  size_t test_questions = 0;
  bert::WindowOptions windows{0, 0, 0};
  bert::NetworkOptions network{0, 0, 0, 0, 0, 0, 2, 0.0, 2};
  bert::TrainingOptions training{0, 4, 0.0, 0.1, 0.01, 1.0};
  int64_t batch = 32;
  int64_t epochs = 0;
  int64_t steps = 0;
  bool automatic = false;
  bool plain = false;
  bool answer_only = false;
  std::string predictions = "predictions.json";
  std::string checkpoint;
  int64_t save_every = 500;
  std::string save_weights;
  uint64_t seed = 0;
  int threads = 0;
};

struct Data {
  bert::QuestionSet training, testing;
  bert::Features training_features, testing_features;
  int64_t vocabulary = 0;
};

template <typename Number>
void choose(Number& value, Number otherwise) {
  if (value == 0) value = otherwise;
}

// What the user left open: as published where there are weights, small and quick elsewhere.
void fill_in(Options& options, const bert::Weights& weights) {
  const bool squad = !options.data.empty();
  const bool published = !weights.empty();
  choose<int64_t>(options.windows.length, published ? 384 : squad ? 192 : 64);
  choose<int64_t>(options.windows.stride, published ? 128 : options.windows.length / 2);
  choose<int64_t>(options.windows.question_length, options.windows.length / 6);
  choose(options.training.learning_rate, published ? 5e-5 : 1e-3);
  if (options.steps == 0) choose<int64_t>(options.epochs, published ? 2 : 5);

  const bert::NetworkOptions sizes = published ? bert::sizes_of(weights) : bert::NetworkOptions();
  bert::NetworkOptions& network = options.network;
  choose<int64_t>(network.layers, published ? sizes.layers : 2);
  choose<int64_t>(network.hidden, published ? sizes.hidden : 64);
  choose<int64_t>(network.heads, published ? sizes.heads : 2);
  choose<int64_t>(network.intermediate, published ? sizes.intermediate : 4 * network.hidden);
  network.positions = published ? sizes.positions : options.windows.length;
  network.segments = sizes.segments;
  if (network.positions < options.windows.length) {
    throw std::runtime_error("the weights have " + std::to_string(network.positions) +
                             " positions, too few for --length " +
                             std::to_string(options.windows.length));
  }
}

bert::Vocabulary vocabulary_of(const Options& options, const bert::QuestionSet& training) {
  if (!options.vocabulary.empty()) return bert::Vocabulary::read(options.vocabulary);
  std::vector<std::string> texts = training.paragraphs;
  for (const bert::Question& question : training.questions) texts.push_back(question.text);
  return bert::Vocabulary::of_texts(texts, 8000);
}

Data read_data(const Options& options) {
  Data data;
  if (options.data.empty()) {
    data.training = bert::synthetic_questions(4000, 1);
    data.testing = bert::synthetic_questions(500, 2);
  } else {
    std::tie(data.training, data.testing) = bert::read_squad_folder(options.data);
  }
  data.training = bert::sample(data.training, options.train_questions, options.seed);
  data.testing = bert::sample(data.testing, options.test_questions, options.seed);
  const bert::Tokenizer tokenizer(vocabulary_of(options, data.training));
  data.vocabulary = tokenizer.vocabulary().size();
  data.training_features = bert::features_of(data.training, tokenizer, options.windows);
  data.testing_features = bert::features_of(data.testing, tokenizer, options.windows);
  return data;
}

void init(const Options& options) {
  std::vector<epl::Setting> settings{{"pipeline.num_micro_batch", options.training.micro_batches},
                                     {"communication.clip_after_allreduce", true}};
  if (options.automatic) {
    settings.emplace_back("auto.auto_parallel", true);
    settings.emplace_back("pipeline.num_stages", options.network.stages);
  }
  epl::init(epl::Config(settings));
}

// Which rows this worker reads. One device is not cut into stages.
epl::WorkerShares shares(const epl::Cluster& cluster, int64_t stages) {
  if (cluster.total_gpu_num == 1) return {};
  return epl::pipeline_shares(std::vector<int>(static_cast<size_t>(stages), 1));
}

bert::QuestionAnswering make_network(const Options& options, const bert::Weights& weights,
                                     int64_t vocabulary, bool cut, bool speaks) {
  bert::NetworkOptions sizes = options.network;
  sizes.vocabulary = vocabulary;
  if (!cut) sizes.stages = 0;
  torch::manual_seed(options.seed);  // all workers begin with the same parameters
  bert::QuestionAnswering net(sizes);
  if (!weights.empty()) {
    const bert::LoadedWeights loaded = bert::load_weights(weights, net);
    if (speaks) std::cout << "weights: " << loaded.str() << std::endl;
  }
  return net;
}

void describe(const Options& options, const Data& data, const bert::QuestionAnswering& net,
              int devices) {
  std::cout << "questions: " << data.training.questions.size() << " for training, "
            << data.testing.questions.size() << " for tests; vocabulary: " << data.vocabulary
            << " pieces\n"
            << "windows: " << data.training_features.windows.size() << " for training, "
            << data.testing_features.windows.size() << " for tests, " << options.windows.length
            << " tokens each\n"
            << "network: " << options.network.layers << " layers of width "
            << options.network.hidden << ", " << examples::count_parameters(*net)
            << " parameters; ";
  if (options.plain) {
    std::cout << "trained by the plain loop";
  } else if (devices == 1) {
    std::cout << "one device, not cut into stages (EPL_DEVICES=2 gives two devices)";
  } else {
    std::cout << options.network.stages << " stages" << (options.automatic ? " by EPL" : "")
              << " on " << devices << " devices";
  }
  std::cout << std::endl;
}

struct Answered {
  bert::Predictions predictions;
  std::string score;
};

Answered answer(bert::Training& training, const Data& data, bool speaks) {
  const auto windows = static_cast<int64_t>(data.testing_features.windows.size());
  Progress progress(windows, 1, "windows");
  const torch::Tensor scores = training.scores(data.testing_features, [&](size_t done) {
    if (speaks) progress.show("answers", static_cast<int64_t>(done));
  });
  Answered result{bert::answers_of(data.testing, data.testing_features, scores), ""};
  const bert::Score score = bert::score(data.testing, result.predictions);
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << "EM " << score.exact << "  F1 " << score.f1;
  result.score = text.str();
  return result;
}

// Makes the steps that are left, and says in one line how it went.
std::string train(const Options& options, const Data& data, epl::DistributedSampler& sampler,
                  size_t rows, bert::Training& training, bool speaks) {
  const int64_t steps = options.training.steps;
  const int64_t first_step = training.steps_done();
  const int64_t steps_per_epoch = static_cast<int64_t>(sampler.steps(rows));
  sampler.set_epoch(static_cast<size_t>(first_step / steps_per_epoch),
                    static_cast<size_t>(first_step % steps_per_epoch));
  sampler.reset();
  Progress progress(std::max<int64_t>(steps - first_step, 1), static_cast<int64_t>(rows),
                    "windows");
  double first_loss = 0;
  for (int64_t step = first_step; step < steps; ++step) {
    auto windows = sampler.next(rows);
    if (!windows) {
      sampler.reset();
      windows = sampler.next(rows);
    }
    const double loss = training.step(bert::rows_of(data.training_features, *windows));
    if (step == first_step) first_loss = loss;
    if (speaks) {
      progress.show("step " + std::to_string(step + 1) + "/" + std::to_string(steps),
                    step + 1 - first_step, loss);
    }
    if (!options.checkpoint.empty() &&
        ((step + 1) % options.save_every == 0 || step + 1 == steps)) {
      training.save(options.checkpoint);
    }
  }
  const double seconds = progress.seconds();
  std::ostringstream line;
  line << std::fixed << std::setprecision(2) << "loss " << first_loss << " -> " << progress.loss()
       << std::setprecision(0) << ", "
       << static_cast<double>((steps - first_step) * static_cast<int64_t>(rows)) / seconds
       << " windows/s, " << seconds << " s";
  return line.str();
}

void run(Options options) {
  if (options.batch % options.training.micro_batches != 0) {
    throw std::runtime_error("--micro-batches must divide --batch");
  }
  if (options.threads > 0) torch::set_num_threads(options.threads);
  const bert::Weights weights =
      options.weights.empty() ? bert::Weights() : bert::read_weights(options.weights);
  fill_in(options, weights);
  const Data data = read_data(options);

  if (!options.plain) init(options);
  const epl::Cluster cluster = options.plain ? epl::Cluster() : epl::Env::get().cluster;
  const bool speaks = cluster.worker_index == 0;  // prints and writes
  const bool cut = !options.automatic && !options.plain && cluster.total_gpu_num > 1;
  bert::QuestionAnswering net = make_network(options, weights, data.vocabulary, cut, speaks);
  if (speaks) describe(options, data, net, cluster.total_gpu_num);

  const epl::WorkerShares pipelines = shares(cluster, options.network.stages);
  const auto worker = static_cast<size_t>(pipelines.worker);
  const size_t rows = static_cast<size_t>(options.batch * pipelines.replicas[worker]);
  epl::DistributedSampler sampler(data.training_features.windows.size(),
                                  epl::SamplerOptions().seed(options.seed), pipelines);
  options.training.steps = options.steps > 0
                               ? options.steps
                               : options.epochs * static_cast<int64_t>(sampler.steps(rows));
  bert::Training training(net, options.training,
                          options.plain ? bert::Training::By::kPlain : bert::Training::By::kEpl);
  if (!options.checkpoint.empty() && fs::exists(options.checkpoint)) {
    training.load(options.checkpoint);
    if (speaks) std::cout << "goes on after step " << training.steps_done() << std::endl;
  }

  Answered answered = answer(training, data, speaks);
  if (speaks) std::cout << "before training: " << answered.score << std::endl;
  if (!options.answer_only) {
    const std::string how = train(options, data, sampler, rows, training, speaks);
    answered = answer(training, data, speaks);
    if (speaks) {
      std::cout << "after " << options.training.steps << " steps: " << answered.score << "  ("
                << how << ")" << std::endl;
    }
  }
  if (!speaks) return;
  if (!options.save_weights.empty()) bert::write_weights(options.save_weights, *net);
  bert::write_predictions(options.predictions, answered.predictions);
  std::cout << "answers: " << options.predictions << std::endl;
}

void add_options(CLI::App& app, Options& options) {
  const auto positive = CLI::Range(1, 1 << 30, "POSITIVE");
  const auto count = CLI::Range(0, 1 << 30, "COUNT");
  app.add_option("--data", options.data,
                 "Folder with SQuAD v1.1: train-*.json and dev-*.json, plain or .gz; else made-up "
                 "questions");
  app.add_option("--vocab", options.vocabulary,
                 "vocab.txt of an uncased BERT; else the words of the training questions");
  app.add_option("--weights", options.weights,
                 "Published weights to begin with: pytorch_model.bin or model.safetensors")
      ->needs("--vocab");
  app.add_option("--train-questions", options.train_questions, "So many for training; 0: all");
  app.add_option("--test-questions", options.test_questions, "So many for tests; 0: all");
  app.add_option("--length", options.windows.length,
                 "Tokens that the network sees at once; 0: 384 with --weights, else 192 with "
                 "--data, else 64")
      ->check(count);
  app.add_option("--stride", options.windows.stride,
                 "Tokens between windows of a long paragraph; 0: 128 with --weights, else half the "
                 "length")
      ->check(count);
  app.add_option("--question-length", options.windows.question_length,
                 "Most tokens of a question; 0: a sixth of the length")
      ->check(count);
  app.add_option("--layers", options.network.layers, "Layers; 0: as the weights, or 2")
      ->check(count);
  app.add_option("--hidden", options.network.hidden, "Width; 0: as the weights, or 64")
      ->check(count);
  app.add_option("--heads", options.network.heads, "Heads of attention; 0: width / 64, or 2")
      ->check(count);
  app.add_option("--intermediate", options.network.intermediate,
                 "Width inside of a layer; 0: as the weights, or 4 times the width")
      ->check(count);
  app.add_option("--dropout", options.network.dropout,
                 "Part that is dropped; 0.1 is usual with published weights")
      ->check(CLI::Range(0.0, 0.9));
  app.add_option("--batch", options.batch, "Windows in one step of each pipeline")->check(positive);
  app.add_option("--micro-batches", options.training.micro_batches,
                 "Parts that a step's windows are cut into")
      ->check(positive);
  app.add_option("--stages", options.network.stages, "Parts that the network is cut into")
      ->check(positive);
  const auto automatic =
      app.add_flag("--auto", options.automatic, "EPL chooses where the stages are cut");
  app.add_flag("--plain", options.plain, "Trains by the plain LibTorch loop, to compare with")
      ->excludes(automatic);
  app.add_flag("--answer-only", options.answer_only, "Answers with the weights as they are");
  app.add_option("--epochs", options.epochs,
                 "Passes over the training windows; 0: 2 with --weights, else 5")
      ->check(count);
  app.add_option("--steps", options.steps, "Updates, in place of --epochs; 0: whole epochs")
      ->check(count);
  app.add_option("--learning-rate", options.training.learning_rate,
                 "AdamW's after warmup; 0: 5e-5 with --weights, else 1e-3")
      ->check(CLI::Range(0.0, 1e3));
  app.add_option("--warmup", options.training.warmup,
                 "Part of the run in which the learning rate rises")
      ->check(CLI::Range(0.0, 0.9));
  app.add_option("--weight-decay", options.training.weight_decay, "AdamW's weight decay")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--clip", options.training.clip, "Largest norm of the gradients; 0: any")
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--predictions", options.predictions,
                 "File for the answers, as SQuAD's evaluator reads it");
  app.add_option("--checkpoint", options.checkpoint,
                 "File that is read at the beginning, if it exists, and written as training goes")
      ->excludes("--plain");
  app.add_option("--save-every", options.save_every, "Steps between writing the checkpoint")
      ->check(positive);
  app.add_option("--save-weights", options.save_weights,
                 "File for the trained weights, which --weights and torch.load() read");
  app.add_option("--seed", options.seed, "Of parameters, of samples and of the order of windows");
  app.add_option("--threads", options.threads, "Threads to compute with; 0: LibTorch's choice")
      ->check(count);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains BERT to answer questions, as a pipeline with EPL. Without --data it makes up\n"
      "simple questions. SQuAD v1.1 (train-v1.1.json, dev-v1.1.json) is at\n"
      "https://rajpurkar.github.io/SQuAD-explorer, vocabulary and weights are the files vocab.txt\n"
      "and pytorch_model.bin or model.safetensors of https://huggingface.co/bert-base-uncased.");
  app.option_defaults()->always_capture_default();
  add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    std::cerr << "bert: " << error.what() << "\n";
    return 1;
  }
}

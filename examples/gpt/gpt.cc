// Trains a GPT on the letters of a text, cut over devices where --split says so, then lets it
// write.
//
//   build/bin/gpt                                    one device
//   EPL_DEVICES=2 build/bin/gpt --split 2            every layer cut over two devices
//   EPL_DEVICES=4 build/bin/gpt --split 2            the same twice, each with rows of its own
//   EPL_DEVICES=4 build/bin/gpt --split 2 --stages 2 --micro-batches 4     a pipeline of split
//   stages EPL_DEVICES=2 build/bin/gpt                      data parallel build/bin/gpt --data
//   book.txt --steps 2000
//
// The output has this shape; numbers in <> depend on the machine:
//
//   text: 35149 letters, 76 different ones; the last 3514 are held out
//   network: 4 layers of width 128, 820992 parameters; step: 16 rows of 64 letters
//   step 329/800 [========>           ]  41%  loss <2.1>  <rate> letters/s  ETA <m:ss>
//   ...
//   loss <4.41> -> <1.2> in <t> s; held out: <1.9> nats a letter
//   ----
//   <400 letters in the manner of the text>
#include "gpt.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <numeric>
#include <sstream>

#include "examples/common/training.h"
#include "examples/progress.h"
#include "text.h"

namespace {

struct Options {
  std::string data = "/usr/share/common-licenses/GPL-3";
  gpt::GptOptions network;
  int64_t steps = 800;
  int64_t batch = 16;
  int64_t micro_batches = 1;
  double learning_rate = 3e-3;
  double clip = 1.0;
  int64_t sample = 400;
  double temperature = 0.8;
  bool plan = false;
  uint64_t seed = 0;
  int threads = 0;
};

struct Data {
  gpt::Text text;
  torch::Tensor training, held_out;  // letters
};

Data read_data(const Options& options) {
  Data data{gpt::read_text(options.data), {}, {}};
  const int64_t length = data.text.letters.size(0);
  const int64_t tenth = length / 10;
  data.training = data.text.letters.narrow(0, 0, length - tenth);
  data.held_out = data.text.letters.narrow(0, length - tenth, tenth);
  if (tenth <= options.network.context) {
    throw std::runtime_error("a tenth of " + options.data + " is not longer than --context");
  }
  return data;
}

// Which rows this worker reads: in proportion to the devices that it has of first stages. `parts`
// devices work on the rows of one replica; where they are on several workers, each of these hands
// in its part of the rows.
epl::WorkerShares shares_of(const gpt::GptOptions& options, int parts) {
  if (epl::Env::get().cluster.total_gpu_num == 1) return {};
  return epl::pipeline_shares(std::vector<int>(static_cast<size_t>(options.stages), parts));
}

// The mean over rows that lie side by side, a thousand of them at most.
double held_out_loss(gpt::Gpt& net, const Data& data) {
  const torch::NoGradGuard no_grad;
  net->eval();
  const int64_t context = net->options.context;
  const int64_t rows = std::min<int64_t>((data.held_out.size(0) - 1) / context, 1000);
  double sum = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const epl::Batch batch =
        gpt::rows_at(data.held_out, {static_cast<size_t>(row * context)}, context);
    sum += net->loss(batch[0], batch[1]).item<double>();
  }
  net->train();
  return sum / static_cast<double>(rows);
}

void train(const Options& options, gpt::Gpt& net, const Data& data) {
  const epl::Cluster& cluster = epl::Env::get().cluster;
  const bool speaks = cluster.worker_index == 0;  // prints
  torch::optim::AdamW optimizer(examples::adamw_groups(*net, /*weight_decay=*/0.1));
  epl::TrainerOptions trainer_options;
  trainer_options.clip_grad_norm = options.clip;
  epl::Trainer trainer(
      net, optimizer, [&](const epl::Batch& batch) { return net->loss(batch[0], batch[1]); },
      trainer_options);

  const int parts = cluster.total_gpu_num == 1 ? 1 : std::max(net->options.split, 1);
  const epl::WorkerShares shares = shares_of(net->options, parts);
  const int64_t replicas =
      std::accumulate(shares.replicas.begin(), shares.replicas.end(), 0) / parts;
  const auto rows = static_cast<size_t>(
      options.batch * shares.replicas[static_cast<size_t>(shares.worker)] / parts);
  epl::DistributedSampler sampler(static_cast<size_t>(data.training.size(0) - net->options.context),
                                  epl::SamplerOptions().seed(options.seed), shares);
  sampler.reset();
  Progress progress(options.steps, options.batch * replicas * net->options.context, "letters");
  double first_loss = 0;
  for (int64_t step = 0; step < options.steps; ++step) {
    auto places = sampler.next(rows);
    if (!places) {
      sampler.reset();
      places = sampler.next(rows);
    }
    examples::set_learning_rate(
        optimizer, examples::learning_rate_at(step, options.steps, options.learning_rate));
    const double loss =
        trainer.step(gpt::rows_at(data.training, *places, net->options.context)).loss;
    if (step == 0) first_loss = loss;
    if (!speaks) continue;
    if (step == 0 && options.plan) std::cout << trainer.plan() << std::endl;
    progress.show("step " + std::to_string(step + 1) + "/" + std::to_string(options.steps),
                  step + 1, loss);
  }
  if (!speaks) return;
  std::ostringstream line;
  line << std::fixed << std::setprecision(2) << "loss " << first_loss << " -> " << progress.loss()
       << " in " << std::setprecision(0) << progress.seconds()
       << " s; held out: " << std::setprecision(2) << held_out_loss(net, data) << " nats a letter";
  progress.print(line.str());
}

void run(Options options) {
  if (options.threads > 0) torch::set_num_threads(options.threads);
  const Data data = read_data(options);
  // Clips as the plain loop does with the whole batch, on any number of replicas.
  epl::init(epl::Config{{"pipeline.num_micro_batch", options.micro_batches},
                        {"communication.clip_after_allreduce", true}});
  const bool speaks = epl::Env::get().cluster.worker_index == 0;
  options.network.vocabulary = static_cast<int64_t>(data.text.alphabet.size());
  torch::manual_seed(options.seed);  // all workers begin with the same parameters
  gpt::Gpt net(options.network);
  if (speaks) {
    std::cout << "text: " << data.text.letters.size(0) << " letters, " << options.network.vocabulary
              << " different ones; the last " << data.held_out.size(0) << " are held out\n"
              << "network: " << options.network.layers << " layers of width "
              << options.network.width << ", " << examples::count_parameters(*net)
              << " parameters; step: " << options.batch << " rows of " << options.network.context
              << " letters" << std::endl;
  }
  train(options, net, data);
  if (!speaks || options.sample == 0) return;
  const torch::Tensor begin = data.text.letters.narrow(0, 0, 1);
  std::cout << "----\n"
            << data.text.str(gpt::write_on(net, begin, options.sample, options.temperature))
            << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains a GPT on the letters of a text with EPL, then lets it write. The default text\n"
      "comes with Debian; any text serves, plain or compressed by gzip, such as a book of\n"
      "https://www.gutenberg.org or tiny-shakespeare of https://github.com/karpathy/char-rnn.");
  app.option_defaults()->always_capture_default();
  const auto positive = CLI::Range(1, 1 << 30, "POSITIVE");
  const auto count = CLI::Range(0, 1 << 30, "COUNT");
  app.add_option("--data", options.data, "Text file");
  app.add_option("--split", options.network.split,
                 "Devices that every layer is cut over; 0: not cut")
      ->check(count);
  app.add_option("--stages", options.network.stages, "Parts that the layers are cut into")
      ->check(positive);
  app.add_option("--steps", options.steps, "Updates")->check(positive);
  app.add_option("--batch", options.batch, "Rows in one step of each model replica")
      ->check(positive);
  app.add_option("--micro-batches", options.micro_batches, "Parts that a step's rows are cut into")
      ->check(positive);
  app.add_option("--context", options.network.context, "Letters in a row")->check(positive);
  app.add_option("--layers", options.network.layers, "Transformer blocks")->check(positive);
  app.add_option("--width", options.network.width, "Width of the network")->check(positive);
  app.add_option("--heads", options.network.heads, "Heads of attention")->check(positive);
  app.add_option("--dropout", options.network.dropout, "Part that is dropped")
      ->check(CLI::Range(0.0, 0.9));
  app.add_option("--learning-rate", options.learning_rate, "AdamW's after warmup")
      ->check(CLI::Range(1e-9, 1e3));
  app.add_option("--clip", options.clip, "Largest norm of the gradients; 0: any")
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--sample", options.sample, "Letters to write at the end")->check(count);
  app.add_option("--temperature", options.temperature, "0: always the likeliest letter")
      ->check(CLI::Range(0.0, 10.0));
  app.add_flag("--plan", options.plan, "Prints what EPL made of the step");
  app.add_option("--seed", options.seed, "Of parameters and of the order of the rows");
  app.add_option("--threads", options.threads, "Threads to compute with; 0: LibTorch's choice")
      ->check(count);
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    std::cerr << "gpt: " << error.what() << "\n";
    return 1;
  }
}

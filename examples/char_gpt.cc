// Trains a small GPT on the letters of a text file, then lets it write.
//
//   build/bin/char_gpt
//   build/bin/char_gpt --data book.txt --steps 2000
//   build/bin/char_gpt --micro-batches 4             the same steps, a quarter of the rows at once
//
// The output has this shape; numbers in <> depend on the machine:
//
//   text: 35149 characters, 76 different ones
//   network: 811264 parameters; step: 16 rows of 64 characters; micro batches: 1; threads: 1
//   step 329/800 [========>           ]  41%  loss <2.1>  <rate> characters/s  ETA <m:ss>
//   ...
//   loss <4.41> -> <1.2> in <t> s
//   ----
//   <400 characters in the manner of the text>
#include <epl/epl.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>

#include "progress.h"

namespace {

struct Options {
  std::string data = "/usr/share/common-licenses/GPL-3";
  int64_t steps = 800;
  int64_t batch_size = 16;
  int64_t micro_batches = 1;
  int64_t context = 64;
  int64_t layers = 4;
  int64_t hidden = 128;
  int64_t heads = 4;
  double learning_rate = 3e-3;
  double clip = 1.0;
  int64_t sample = 400;
  int threads = 1;
};

// A text as the numbers of its characters.
struct Text {
  std::string alphabet;   // number -> character
  torch::Tensor letters;  // int64 [length]
};

Text read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (text.empty()) throw std::runtime_error("cannot read a text from " + path);
  const std::set<char> different(text.begin(), text.end());
  Text result{{different.begin(), different.end()}, {}};
  std::vector<int64_t> letters;
  letters.reserve(text.size());
  for (const char letter : text) {
    letters.push_back(static_cast<int64_t>(result.alphabet.find(letter)));
  }
  result.letters = torch::tensor(letters);
  return result;
}

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const Options& options) : heads(options.heads) {
    using torch::nn::LayerNorm;
    using torch::nn::LayerNormOptions;
    using torch::nn::Linear;
    const int64_t hidden = options.hidden;
    norm1 = register_module("norm1", LayerNorm(LayerNormOptions({hidden})));
    qkv = register_module("qkv", Linear(hidden, 3 * hidden));
    out = register_module("out", Linear(hidden, hidden));
    norm2 = register_module("norm2", LayerNorm(LayerNormOptions({hidden})));
    up = register_module("up", Linear(hidden, 4 * hidden));
    down = register_module("down", Linear(4 * hidden, hidden));
  }

  // `mask` is -inf where a character would see a later one, else 0.
  torch::Tensor forward(torch::Tensor x, const torch::Tensor& mask) {
    x = x + attention(norm1->forward(x), mask);
    return x + down->forward(torch::gelu(up->forward(norm2->forward(x))));
  }

  torch::Tensor attention(const torch::Tensor& x, const torch::Tensor& mask) {
    const int64_t batch = x.size(0);
    const int64_t length = x.size(1);
    const int64_t depth = x.size(2) / heads;
    const auto qkv_by_head =
        qkv->forward(x).view({batch, length, 3, heads, depth}).permute({2, 0, 3, 1, 4}).unbind(0);
    torch::Tensor weights =
        torch::matmul(qkv_by_head[0], qkv_by_head[1].transpose(-2, -1)) / std::sqrt(depth);
    weights = torch::softmax(weights + mask, -1);
    const torch::Tensor mixed = torch::matmul(weights, qkv_by_head[2]);
    return out->forward(mixed.transpose(1, 2).reshape({batch, length, heads * depth}));
  }

  int64_t heads;
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  torch::nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
};
TORCH_MODULE(Block);

// The embedding of characters is also the output layer.
struct CharGptImpl : torch::nn::Module {
  CharGptImpl(const Options& options, int64_t alphabet) {
    token = register_module("token", torch::nn::Embedding(alphabet, options.hidden));
    torch::nn::init::normal_(token->weight, 0, 0.02);
    position =
        register_parameter("position", 0.02 * torch::randn({options.context, options.hidden}));
    for (int64_t i = 0; i < options.layers; ++i) blocks->push_back(Block(options));
    register_module("blocks", blocks);
    norm = register_module("norm",
                           torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.hidden})));
    mask = register_buffer(
        "mask", torch::full({options.context, options.context}, -INFINITY).triu(/*diagonal=*/1));
  }

  // int64 [batch, length] -> scores of the next character, [batch, length, alphabet].
  torch::Tensor forward(const torch::Tensor& letters) {
    const int64_t length = letters.size(1);
    torch::Tensor x = token->forward(letters) + position.narrow(0, 0, length);
    const torch::Tensor visible = mask.narrow(0, 0, length).narrow(1, 0, length);
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x, visible);
    return torch::matmul(norm->forward(x), token->weight.t());
  }

  torch::nn::Embedding token{nullptr};
  torch::Tensor position;
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm{nullptr};
  torch::Tensor mask;
};
TORCH_MODULE(CharGpt);

// Rows of context + 1 characters from random places: the input and, one further, what to predict.
epl::Batch random_rows(const Text& text, const Options& options) {
  const torch::Tensor starts = torch::randint(text.letters.size(0) - options.context,
                                              {options.batch_size, 1}, torch::kInt64);
  const torch::Tensor places = starts + torch::arange(options.context);
  return {text.letters.take(places), text.letters.take(places + 1)};
}

// Rises over the first twentieth of the steps, then falls along a half cosine to a tenth.
double learning_rate_at(int64_t step, const Options& options) {
  const int64_t warmup = std::max<int64_t>(options.steps / 20, 1);
  if (step < warmup) {
    return options.learning_rate * static_cast<double>(step + 1) / static_cast<double>(warmup);
  }
  const double way = static_cast<double>(step - warmup) /
                     static_cast<double>(std::max<int64_t>(options.steps - warmup, 1));
  return options.learning_rate * (0.1 + 0.45 * (1 + std::cos(M_PI * way)));
}

// Plain LibTorch: the network that EPL trained is still the user's own.
std::string write_text(CharGpt& net, const Text& text, const Options& options) {
  const torch::NoGradGuard no_grad;
  net->eval();
  torch::Tensor letters = text.letters.narrow(0, 0, 1).unsqueeze(0);
  std::string written;
  while (static_cast<int64_t>(written.size()) < options.sample) {
    const int64_t length = std::min(letters.size(1), options.context);
    const torch::Tensor seen = letters.narrow(1, letters.size(1) - length, length);
    const torch::Tensor scores = net->forward(seen).select(1, length - 1) / 0.8;  // temperature
    const torch::Tensor next = torch::multinomial(torch::softmax(scores, -1), 1);
    letters = torch::cat({letters, next}, 1);
    written += text.alphabet[next.item<int64_t>()];
  }
  net->train();
  return written;
}

void run(const Options& options) {
  if (options.hidden % options.heads != 0) {
    throw std::runtime_error("--heads must divide --hidden");
  }
  torch::set_num_threads(options.threads);
  const Text text = read_text(options.data);
  const int64_t alphabet = static_cast<int64_t>(text.alphabet.size());
  std::cout << "text: " << text.letters.size(0) << " characters, " << alphabet
            << " different ones\n";
  if (text.letters.size(0) <= options.context) {
    throw std::runtime_error("the text is shorter than --context");
  }

  epl::init(epl::Config{{"pipeline.num_micro_batch", options.micro_batches}});
  torch::manual_seed(0);
  CharGpt net(options, alphabet);
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions().weight_decay(0.1));
  epl::TrainerOptions trainer_options;
  trainer_options.clip_grad_norm = options.clip;
  epl::Trainer trainer(
      net, optimizer,
      [&](const epl::Batch& batch) {
        const torch::Tensor scores = net->forward(batch[0]);
        return torch::nn::functional::cross_entropy(scores.flatten(0, 1), batch[1].flatten());
      },
      trainer_options);

  int64_t parameters = 0;
  for (const torch::Tensor& parameter : net->parameters()) parameters += parameter.numel();
  std::cout << "network: " << parameters << " parameters; step: " << options.batch_size
            << " rows of " << options.context
            << " characters; micro batches: " << options.micro_batches
            << "; threads: " << torch::get_num_threads() << std::endl;

  Progress progress(options.steps, options.batch_size * options.context, "characters");
  double first_loss = 0;
  for (int64_t step = 0; step < options.steps; ++step) {
    for (auto& group : optimizer.param_groups()) {
      static_cast<torch::optim::AdamWOptions&>(group.options()).lr(learning_rate_at(step, options));
    }
    const epl::StepResult result = trainer.step(random_rows(text, options));
    if (step == 0) first_loss = result.loss;
    progress.show("step " + std::to_string(step + 1) + "/" + std::to_string(options.steps),
                  step + 1, result.loss);
  }
  std::ostringstream line;
  line << std::fixed << std::setprecision(2) << "loss " << first_loss << " -> " << progress.loss()
       << " in " << std::setprecision(0) << progress.seconds() << " s";
  progress.print(line.str());
  std::cout << "----\n" << write_text(net, text, options) << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains a small GPT on the letters of a text file with EPL, then lets it write.\n"
      "The default text comes with Debian; any plain text serves, such as a book of\n"
      "https://www.gutenberg.org.");
  app.option_defaults()->always_capture_default();
  const auto positive = CLI::Range(1, 1 << 30, "POSITIVE");
  app.add_option("--data", options.data, "Text file");
  app.add_option("--steps", options.steps, "Updates")->check(positive);
  app.add_option("--batch-size", options.batch_size, "Rows in one step")->check(positive);
  app.add_option("--micro-batches", options.micro_batches, "Parts that a step's rows are cut into")
      ->check(positive);
  app.add_option("--context", options.context, "Characters in a row")->check(positive);
  app.add_option("--layers", options.layers, "Transformer blocks")->check(positive);
  app.add_option("--hidden", options.hidden, "Width of the network")->check(positive);
  app.add_option("--heads", options.heads, "Heads of attention")->check(positive);
  app.add_option("--learning-rate", options.learning_rate, "AdamW's step size after warmup");
  app.add_option("--clip", options.clip, "Largest norm of the gradients; 0: any");
  app.add_option("--sample", options.sample, "Characters to write at the end");
  app.add_option("--threads", options.threads, "Threads to compute with")->check(positive);
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    std::cerr << "char_gpt: " << error.what() << "\n";
    return 1;
  }
}

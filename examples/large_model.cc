// Trains a GPT on the letters of a text in a third of the memory that its step needs.
//
//   build/bin/large_model                                         10 s, 32 MiB
//   build/bin/large_model --width 384 --layers 12 --rows 24 --limit 200MiB --threads 2
//
// Four parts: what the step needs as it is; what EPL says to memory.limit alone; what would fit
// (trainer.what_fits); the training with recomputation, and with parameters and states of the
// optimizer in a file. In the end the plain loop trains a second network with the same rows, and
// all parameters must have the same bits. memory.svg shows memory over the time of a step, before
// and after. docs/memory.md has the whole output, of this shape; numbers in <> depend on the
// machine:
//
//   text: 35149 letters, 76 different ones
//   network: 6 layers of width 192, 2711040 parameters; a step: 16 rows of 64 letters
//   limit: 32.0 MiB
//   ...
//   loss <4.43> -> <3.31>
//   memory of a step: <31.6> MiB by the forecast, <28.2> MiB by EPL's account, <35> MiB by the ...
//   the plain loop: 101 of 101 parameters have the same bits after 12 steps
//   picture: memory.svg
#include <epl/epl.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <random>
#include <sstream>

#include "examples/common/files.h"
#include "examples/common/training.h"
#include "examples/gpt/gpt.h"
#include "examples/gpt/text.h"

namespace {

constexpr double kMebibyte = 1 << 20;

struct Options {
  std::string data = "/usr/share/common-licenses/GPL-3";
  gpt::GptOptions network;
  std::string limit = "32MiB";
  std::string folder = "/var/tmp";
  std::string picture = "memory.svg";
  int64_t rows = 16;
  int64_t steps = 12;
  double learning_rate = 1e-3;
  int threads = 1;

  Options() {
    network.layers = 6;
    network.width = 192;
  }
};

std::string mebibytes(double bytes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << bytes / kMebibyte << " MiB";
  return text.str();
}

// --- the training, the same whoever runs it -----------------------------------------------------

struct Task {
  Options options;
  gpt::Text text;

  // The rows of a step are drawn by its number, so that all who train read the same.
  epl::Batch batch(int64_t step) const {
    std::mt19937_64 random(static_cast<uint64_t>(step));
    const int64_t context = options.network.context;
    const auto last = static_cast<uint64_t>(text.letters.size(0) - context);
    std::vector<size_t> places;
    for (int64_t row = 0; row < options.rows; ++row) places.push_back(random() % last);
    return gpt::rows_at(text.letters, places, context);
  }
};

struct Model {
  explicit Model(const Task& task) : net(seeded(task.options.network)) {
    optimizer = std::make_unique<torch::optim::AdamW>(
        net->parameters(), torch::optim::AdamWOptions(task.options.learning_rate));
  }

  torch::Tensor loss(const epl::Batch& batch) { return net->loss(batch[0], batch[1]); }

  gpt::Gpt net;
  std::unique_ptr<torch::optim::AdamW> optimizer;

 private:
  static gpt::Gpt seeded(const gpt::GptOptions& options) {
    torch::manual_seed(0);
    return gpt::Gpt(options);
  }
};

struct Training : Model {
  explicit Training(const Task& task) : Model(task) {
    trainer = std::make_unique<epl::Trainer>(
        net, *optimizer, [this](const epl::Batch& batch) { return loss(batch); });
  }
  std::unique_ptr<epl::Trainer> trainer;
};

// --- what the system says -----------------------------------------------------------------------

// A line of /proc/self/status, in bytes: VmRSS is what the process holds, VmHWM the most it held.
double system_memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stod(line.substr(name.size() + 1)) * 1024;
  }
  throw std::runtime_error("/proc/self/status has no " + name);
}

// VmHWM begins anew.
void forget_peak() { std::ofstream("/proc/self/clear_refs") << "5" << std::flush; }

// --- the parts ----------------------------------------------------------------------------------

epl::MemoryReport need_as_it_is(const Task& task) {
  epl::init();
  Training training(task);
  return training.trainer->forecast(task.batch(0));
}

std::string error_with(const epl::Config& config, const Task& task) {
  epl::init(config);
  Training training(task);
  try {
    training.trainer->step(task.batch(0));
  } catch (const epl::Error& error) {
    return error.what();
  }
  throw std::runtime_error("the step fits into the limit as it is: a smaller --limit, more --rows");
}

// A folder is given, and no level yet: so rows for both levels are among those tried.
epl::FittingReport what_fits(const Task& task, int64_t limit) {
  epl::init(epl::Config{{"offload.path", task.options.folder}, {"offload.level", ""}});
  Training training(task);
  return training.trainer->what_fits(task.batch(0), limit);
}

struct Trained {
  std::vector<torch::Tensor> parameters;
  epl::MemoryReport memory;
  double first_loss = 0;
  double last_loss = 0;
  double system = 0;  // most bytes of a step, less what was there before the network
};

Trained train(const epl::Config& config, const Task& task) {
  epl::init(config);
  malloc_trim(0);  // what the parts before have freed is not what this one takes
  const double before = system_memory("VmRSS");
  Training training(task);
  Trained trained;
  for (int64_t step = 0; step < task.options.steps; ++step) {
    // The first two steps are recorded, which takes the memory of the plain loop; EPL gives that
    // back with the third, and malloc_trim what the C library keeps of it.
    if (step == 3) {
      malloc_trim(0);
      forget_peak();
    }
    const double loss = training.trainer->step(task.batch(step)).loss;
    if (step == 0) trained.first_loss = loss;
    trained.last_loss = loss;
    std::cout << "  step " << step + 1 << ": loss " << std::fixed << std::setprecision(3) << loss
              << std::endl;
  }
  trained.system = system_memory("VmHWM") - before;
  trained.memory = training.trainer->memory();
  for (const torch::Tensor& parameter : training.net->parameters()) {
    trained.parameters.push_back(parameter.detach().clone());
  }
  return trained;
}

// The loop as LibTorch's users write it, without EPL.
std::vector<torch::Tensor> train_plainly(const Task& task) {
  Model model(task);
  for (int64_t step = 0; step < task.options.steps; ++step) {
    model.optimizer->zero_grad();
    model.loss(task.batch(step)).backward();
    model.optimizer->step();
  }
  return model.net->parameters();
}

size_t count_equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  size_t equal = 0;
  for (size_t i = 0; i < a.size(); ++i) equal += torch::equal(a[i], b[i]) ? 1 : 0;
  return equal;
}

void print_indented(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) std::cout << "  " << line << "\n";
  std::cout << std::endl;
}

void check(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what);
}

void run(Options options) {
  torch::set_num_threads(options.threads);
  Task task{options, gpt::read_text(options.data)};
  check(task.text.letters.size(0) > options.network.context, options.data + " is too short");
  task.options.network.vocabulary = static_cast<int64_t>(task.text.alphabet.size());
  const epl::Config limited{{"memory.limit", options.limit}};
  const auto limit = limited.get<int64_t>("memory.limit");
  std::cout << "text: " << task.text.letters.size(0) << " letters, " << task.text.alphabet.size()
            << " different ones\n"
            << "network: " << options.network.layers << " layers of width " << options.network.width
            << ", " << examples::count_parameters(*Model(task).net)
            << " parameters; a step: " << options.rows << " rows of " << options.network.context
            << " letters\nlimit: " << mebibytes(static_cast<double>(limit)) << "\n\n";

  const epl::MemoryReport before = need_as_it_is(task);
  const double times = static_cast<double>(before.workers[0].peak()) / static_cast<double>(limit);
  std::cout << "1. The step as it is needs " << std::fixed << std::setprecision(1) << times
            << " times the limit:\n";
  print_indented(before.str());
  std::cout << "2. With memory.limit alone:\n";
  print_indented(error_with(limited, task));
  std::cout << "3. What would fit:\n";
  print_indented(what_fits(task, limit).str());

  std::cout << "4. With memory.limit, and parameters and states in a file:\n";
  const Trained trained =
      train(limited.with({{"offload.level", "v1"}, {"offload.path", options.folder}}), task);
  print_indented(trained.memory.str());
  const epl::MemoryReport::Worker& worker = trained.memory.workers[0];
  std::cout << std::setprecision(2) << "loss " << trained.first_loss << " -> " << trained.last_loss
            << "\nmemory of a step: " << mebibytes(static_cast<double>(worker.peak()))
            << " by the forecast, " << mebibytes(static_cast<double>(worker.measured().value_or(0)))
            << " by EPL's account, " << mebibytes(trained.system) << " by the system" << std::endl;
  const size_t equal = count_equal(trained.parameters, train_plainly(task));
  std::cout << "the plain loop: " << equal << " of " << trained.parameters.size()
            << " parameters have the same bits after " << options.steps << " steps\n";
  examples::write_whole(
      options.picture,
      epl::memory_svg({{"as it is", before}, {"with recomputation and a file", trained.memory}},
                      limit));
  std::cout << "picture: " << options.picture << "\n";

  check(equal == trained.parameters.size(), "the training differs from the plain loop");
  check(trained.last_loss < trained.first_loss, "the loss has not fallen");
  // Beside so small a limit the megabytes of kernels and of the C library count.
  check(trained.system < 1.5 * static_cast<double>(limit), "a step held more than the limit");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains a GPT on the letters of a text in a third of the memory that its step needs, and\n"
      "shows how. The default text comes with Debian; any text serves, plain or compressed.");
  app.option_defaults()->always_capture_default();
  const auto positive = CLI::Range(1, 1 << 30, "POSITIVE");
  app.add_option("--data", options.data, "Text file");
  app.add_option("--limit", options.limit, "Bytes a device may hold: memory.limit");
  app.add_option("--folder", options.folder, "On a disk, for parameters and states: offload.path");
  app.add_option("--picture", options.picture, "Written in the end: memory over time, as SVG");
  app.add_option("--rows", options.rows, "Rows in one step")->check(positive);
  app.add_option("--steps", options.steps, "Updates")->check(CLI::Range(5, 1 << 30, "STEPS"));
  app.add_option("--context", options.network.context, "Letters in a row")->check(positive);
  app.add_option("--layers", options.network.layers, "Transformer blocks")->check(positive);
  app.add_option("--width", options.network.width, "Width of the network")->check(positive);
  app.add_option("--heads", options.network.heads, "Heads of attention")->check(positive);
  app.add_option("--learning-rate", options.learning_rate, "AdamW's")->check(CLI::Range(1e-9, 1e3));
  app.add_option("--threads", options.threads,
                 "Threads to compute with; memory that they take themselves is in no forecast")
      ->check(positive);
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    std::cerr << "large_model: " << error.what() << "\n";
    return 1;
  }
}

// Trains a small convolutional network on Fashion-MNIST with epl::Trainer.
//
//   build/bin/fashion_cnn
//   build/bin/fashion_cnn --epochs 1 --plan    one epoch, and the whole plan of a step
//
// The output has this shape; numbers in <> depend on the machine:
//
//   Fashion-MNIST: 60000 training images, 10000 test images
//   network: 52754 parameters; batch: 128 images; threads: 1
//   The plan of one step (--plan prints all of its <n> lines):
//     <the first ten lines>
//   epoch 1/4  training loss <0.4>  test loss <0.4>  test accuracy <86> %
//   epoch 2/4 [=======>            ]  38%  loss <0.35>  <rate> images/s  ETA <m:ss>
//   ...
//   Trained in <t> s: test accuracy <89> %
#include <epl/epl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <sstream>

#include "fashion_mnist.h"
#include "progress.h"

namespace {

struct Options {
  std::string data;
  int64_t epochs = 4;
  int64_t batch_size = 128;
  double learning_rate = 2e-3;
  int threads = 1;
  bool print_plan = false;
};

struct LeNetImpl : torch::nn::Module {
  LeNetImpl() {
    using torch::nn::Conv2d;
    using torch::nn::Conv2dOptions;
    conv1 = register_module("conv1", Conv2d(Conv2dOptions(1, 8, 5).padding(2)));
    conv2 = register_module("conv2", Conv2d(Conv2dOptions(8, 16, 5)));
    fc1 = register_module("fc1", torch::nn::Linear(16 * 5 * 5, 120));
    fc2 = register_module("fc2", torch::nn::Linear(120, 10));
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(conv1->forward(x)), 2);
    x = torch::max_pool2d(torch::relu(conv2->forward(x)), 2);
    x = torch::relu(fc1->forward(x.flatten(1)));
    return fc2->forward(x);
  }

  torch::nn::Conv2d conv1{nullptr};
  torch::nn::Conv2d conv2{nullptr};
  torch::nn::Linear fc1{nullptr};
  torch::nn::Linear fc2{nullptr};
};
TORCH_MODULE(LeNet);

// The rows of one batch: pixels as floats around zero, and labels.
epl::Batch batch_of(const LabelledImages& data, const torch::Tensor& rows) {
  const torch::Tensor images = data.images.index_select(0, rows).unsqueeze(1);
  return {images.to(torch::kFloat32).div_(127.5).sub_(1), data.labels.index_select(0, rows)};
}

struct Score {
  double loss = 0;
  double accuracy = 0;  // in percent
};

Score test(epl::Trainer& trainer, LeNet& net, const LabelledImages& data) {
  const auto loss_and_hits = [&](const epl::Batch& batch) -> epl::StepOutput {
    const torch::Tensor scores = net->forward(batch[0]);
    const torch::Tensor hits = scores.argmax(1).eq(batch[1]).sum();
    return {torch::nn::functional::cross_entropy(scores, batch[1]), {{"hits", hits}}};
  };
  Score sum;
  const int64_t count = data.labels.size(0);
  for (const torch::Tensor& rows : torch::arange(count).split(1000)) {
    const epl::StepOutput part = trainer.evaluate(loss_and_hits, batch_of(data, rows));
    sum.loss += part.loss.item<double>() * static_cast<double>(rows.size(0));
    sum.accuracy += part.metrics.at("hits").item<double>();
  }
  return {sum.loss / static_cast<double>(count), 100 * sum.accuracy / static_cast<double>(count)};
}

void print_plan(const std::string& plan, bool whole) {
  constexpr int64_t kHead = 10;
  const int64_t lines = std::count(plan.begin(), plan.end(), '\n');
  std::cout << "The plan of one step";
  if (!whole && lines > kHead) std::cout << " (--plan prints all of its " << lines << " lines)";
  std::cout << ":\n";
  std::istringstream text(plan);
  std::string line;
  for (int64_t i = 0; std::getline(text, line) && (whole || i < kHead); ++i) {
    std::cout << "  " << line << "\n";
  }
  std::cout << std::flush;
}

void train(const Options& options, const LabelledImages& training, const LabelledImages& testing) {
  epl::init();
  torch::manual_seed(0);
  LeNet net;
  torch::optim::Adam optimizer(net->parameters(), options.learning_rate);
  epl::Trainer trainer(net, optimizer, [&](const epl::Batch& batch) {
    return torch::nn::functional::cross_entropy(net->forward(batch[0]), batch[1]);
  });

  int64_t parameters = 0;
  for (const torch::Tensor& parameter : net->parameters()) parameters += parameter.numel();
  std::cout << "network: " << parameters << " parameters; batch: " << options.batch_size
            << " images; threads: " << torch::get_num_threads() << std::endl;

  // The rows of the last, short batch are left out; they are others in every epoch.
  const int64_t steps = training.labels.size(0) / options.batch_size;
  Progress progress(options.epochs * steps, options.batch_size, "images");
  Score score;
  int64_t done = 0;
  for (int64_t epoch = 1; epoch <= options.epochs; ++epoch) {
    const std::string title =
        "epoch " + std::to_string(epoch) + "/" + std::to_string(options.epochs);
    const torch::Tensor order = torch::randperm(training.labels.size(0));
    for (int64_t step = 0; step < steps; ++step) {
      const torch::Tensor rows = order.narrow(0, step * options.batch_size, options.batch_size);
      const double loss = trainer.step(batch_of(training, rows)).loss;
      if (done == 0) print_plan(trainer.plan(), options.print_plan);
      progress.show(title, ++done, loss);
    }
    score = test(trainer, net, testing);
    std::ostringstream line;
    line << std::fixed << title << std::setprecision(3) << "  training loss " << progress.loss()
         << "  test loss " << score.loss << std::setprecision(1) << "  test accuracy "
         << score.accuracy << " %";
    progress.print(line.str());
  }
  std::cout << std::fixed << std::setprecision(1) << "Trained in " << progress.seconds()
            << " s: test accuracy " << score.accuracy << " %\n";
}

void run(const Options& options) {
  torch::set_num_threads(options.threads);
  LabelledImages training;
  LabelledImages testing;
  if (options.data.empty() && !std::filesystem::exists(kFashionMnistFolder)) {
    std::cout << "Fashion-MNIST is not installed: training on generated images instead.\n"
                 "  try: apt-get install dataset-fashion-mnist, or --data DIR\n";
    training = generate_images(20000, /*seed=*/1);
    testing = generate_images(2000, /*seed=*/2);
  } else {
    const std::string folder = options.data.empty() ? kFashionMnistFolder : options.data;
    training = read_fashion_mnist(folder, "train");
    testing = read_fashion_mnist(folder, "t10k");
    std::cout << "Fashion-MNIST: ";
  }
  std::cout << training.labels.size(0) << " training images, " << testing.labels.size(0)
            << " test images\n";
  if (options.batch_size > training.labels.size(0)) {
    throw std::runtime_error("--batch-size is larger than the training set");
  }
  train(options, training, testing);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains a small convolutional network on Fashion-MNIST with EPL.\n"
      "The data is the Debian package dataset-fashion-mnist, or the four IDX files of\n"
      "https://github.com/zalandoresearch/fashion-mnist (MNIST's own files fit as well).");
  app.option_defaults()->always_capture_default();
  const auto positive = CLI::Range(1, 1 << 30, "POSITIVE");
  app.add_option("--data", options.data, "Folder of the IDX files, as they are or gzipped");
  app.add_option("--epochs", options.epochs, "Passes over the training set")->check(positive);
  app.add_option("--batch-size", options.batch_size, "Images in one step")->check(positive);
  app.add_option("--learning-rate", options.learning_rate, "Adam's step size");
  app.add_option("--threads", options.threads,
                 "Threads to compute with: for a network this small a second one gains little")
      ->check(positive);
  app.add_flag("--plan", options.print_plan, "Print the whole plan of a step");
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    std::cerr << "fashion_cnn: " << error.what() << "\n";
    return 1;
  }
}

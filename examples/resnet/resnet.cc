// Trains a ResNet data parallel: the same program on one device, several devices, several workers.
//
//   build/bin/resnet                                  ResNet-50 on Fashion-MNIST, one device
//   EPL_DEVICES=2 build/bin/resnet                    two devices in one process
//   build/bin/epl-launch --num_workers 2 --gpu_per_worker 1 build/bin/resnet
//   build/bin/resnet --depth 18 --image-size 32       a smaller one
//   build/bin/resnet --data photos --image-size 224   JPEG and PNG files, one sub-folder a class
//   build/bin/resnet --checkpoint resnet.pt           goes on where an earlier run stopped
//   EPL_DEVICES=2 build/bin/resnet --split --classes 100000 --depth 18 --image-size 32
//                                                     the classifier cut over its classes
//
// The output has this shape; numbers in <> depend on the machine:
//
//   images: 60000 for training in 10 classes, 10000 for tests
//   network: ResNet-50, 23528522 parameters; batch: 32 images on each of 1 devices
//   epoch 1/3 [=======>            ]  38%  loss <0.61>  <rate> images/s  ETA <m:ss>
//   epoch 1/3  training loss <0.5>  test accuracy <84> %
//   ...
//
// What is EPL's here: epl::init, the default strategy, the sampler with worker_batch_size, and the
// Trainer; for --split the scopes in network.h. The rest is any LibTorch program.
#include <epl/epl.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>
#include <sstream>

#include "examples/common/training.h"
#include "examples/progress.h"
#include "images.h"
#include "network.h"

namespace {

struct Options {
  int depth = 50;
  std::string data;
  std::string test_data;
  int64_t image_size = 64;
  double min_crop = 0.5;
  int64_t test_images = 0;
  bool split = false;
  int64_t classes = 0;
  int64_t batch = 32;
  int64_t epochs = 3;
  int64_t steps = 0;
  double learning_rate = 0.1;
  std::string schedule = "cosine";
  double warmup = 0.05;
  double weight_decay = 1e-4;
  std::string checkpoint;
  bool plan = false;
  uint64_t seed = 0;
  size_t loader_threads = 1;
  int threads = 0;
};

struct Data {
  std::shared_ptr<const ImageSource> training;
  std::shared_ptr<const ImageSource> testing;
  // With --classes the classes of the images are spread over those of the network: class i of the
  // images is class i * spread.
  int64_t spread = 1;
};

Data read_data(const Options& options) {
  Data data;
  if (options.data.empty()) {
    const auto read = [](const std::string& part) {
      return std::make_shared<GreyImages>(read_fashion_mnist(kFashionMnistFolder, part));
    };
    data = {read("train"), read("t10k")};
  } else if (options.test_data.empty()) {
    const auto all = std::make_shared<ImageFolder>(options.data);
    data = {std::make_shared<Subset>(all, 10, Subset::kRest),
            std::make_shared<Subset>(all, 10, Subset::kHeldOut)};
  } else {
    const auto training = std::make_shared<ImageFolder>(options.data);
    const auto testing = std::make_shared<ImageFolder>(options.test_data);
    if (training->names != testing->names) {
      throw std::runtime_error(options.data + " and " + options.test_data +
                               " do not have the same classes");
    }
    data = {training, testing};
  }
  if (options.test_images > 0 && options.test_images < data.testing->size()) {
    data.testing = std::make_shared<Subset>(
        data.testing, data.testing->size() / options.test_images, Subset::kHeldOut);
  }
  if (data.training->size() == 0 || data.testing->size() == 0) {
    throw std::runtime_error("there are too few images for training and tests in " + options.data);
  }
  if (options.classes > 0) data.spread = options.classes / data.training->classes();
  if (data.spread == 0) {
    throw std::runtime_error("the images have " + std::to_string(data.training->classes()) +
                             " classes, which is more than --classes");
  }
  return data;
}

// Rises over the warmup; then falls along a half cosine, or to a tenth at each third of the way.
double learning_rate_at(int64_t step, int64_t steps, double peak, const Options& options) {
  const double way = static_cast<double>(step) / static_cast<double>(steps);
  if (way < options.warmup) return peak * static_cast<double>(step + 1) / (options.warmup * steps);
  if (options.schedule == "step") return peak * std::pow(0.1, std::floor(3 * way));
  return peak * 0.5 * (1 + std::cos(M_PI * (way - options.warmup) / (1 - options.warmup)));
}

// In percent. Every worker tests on all images, so that none waits for another's test.
double test_accuracy(epl::Trainer& trainer, ResNet& net, const Data& data, const Options& options) {
  auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Images(data.testing, options.image_size).map(torch::data::transforms::Stack<>()),
      torch::data::DataLoaderOptions().batch_size(100).workers(options.loader_threads));
  double hits = 0;
  for (auto& batch : *loader) {
    const auto count_hits = [&](const epl::Batch& rows) -> epl::StepOutput {
      const torch::Tensor scores = net->forward(rows[0]);
      return {torch::nn::functional::cross_entropy(scores, rows[1]),
              {{"hits", scores.argmax(1).eq(rows[1]).sum()}}};
    };
    const epl::StepOutput output =
        trainer.evaluate(count_hits, {batch.data, batch.target * data.spread});
    hits += output.metrics.at("hits").item<double>();
  }
  return 100 * hits / static_cast<double>(data.testing->size());
}

void train(const Options& options, const Data& data) {
  const epl::Cluster& cluster = epl::Env::get().cluster;
  const bool speaks = cluster.worker_index == 0;  // prints and saves
  torch::manual_seed(options.seed);               // all workers begin with the same parameters
  if (!options.split) epl::set_default_strategy(epl::replicate(1));
  ResNet net(options.depth, options.classes > 0 ? options.classes : data.training->classes(),
             options.split ? cluster.total_gpu_num : 0);
  // Counted in a buffer of the network, so that checkpoints know it.
  torch::Tensor steps_done = net->register_buffer("steps_done", torch::zeros({}, torch::kInt64));
  torch::optim::SGD optimizer(
      net->parameters(),
      torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(options.weight_decay));
  epl::Trainer trainer(net, optimizer,
                       [&](const epl::Batch& batch) { return net->loss(batch[0], batch[1]); });
  const bool resumes = !options.checkpoint.empty() && std::filesystem::exists(options.checkpoint);
  if (resumes) trainer.load(options.checkpoint);

  const size_t batch_size = static_cast<size_t>(epl::worker_batch_size(options.batch));
  epl::DistributedSampler sampler(static_cast<size_t>(data.training->size()),
                                  epl::SamplerOptions().seed(options.seed));
  const auto epoch_of_images = std::make_shared<std::atomic<size_t>>(0);
  auto loader = torch::data::make_data_loader(
      Images(data.training, options.image_size)
          .augment(options.min_crop, epoch_of_images)
          .map(torch::data::transforms::Stack<>()),
      sampler,
      torch::data::DataLoaderOptions().batch_size(batch_size).workers(options.loader_threads));

  const int64_t steps_per_epoch = static_cast<int64_t>(sampler.steps(batch_size));
  const int64_t steps = options.steps > 0 ? options.steps : options.epochs * steps_per_epoch;
  const int64_t epochs = (steps + steps_per_epoch - 1) / steps_per_epoch;
  const int64_t images_per_step = options.batch * cluster.total_gpu_num;
  int64_t step = steps_done.item<int64_t>();
  if (speaks) {
    std::cout << "network: ResNet-" << options.depth << ", " << examples::count_parameters(*net)
              << " parameters; batch: " << options.batch << " images on each of "
              << cluster.total_gpu_num << " devices" << std::endl;
    if (resumes) std::cout << "goes on after step " << step << " of " << steps << std::endl;
  }

  // Larger steps may be longer: the given rate is that of 256 images.
  const double peak = options.learning_rate * static_cast<double>(images_per_step) / 256;
  const int64_t first_step = step;
  Progress progress(std::max<int64_t>(steps - first_step, 1), images_per_step, "images");
  while (step < steps) {
    const int64_t epoch = step / steps_per_epoch;
    const std::string title = "epoch " + std::to_string(epoch + 1) + "/" + std::to_string(epochs);
    *epoch_of_images = static_cast<size_t>(epoch);
    sampler.set_epoch(static_cast<size_t>(epoch), static_cast<size_t>(step % steps_per_epoch));
    for (auto& batch : *loader) {
      for (auto& group : optimizer.param_groups()) {
        static_cast<torch::optim::SGDOptions&>(group.options())
            .lr(learning_rate_at(step, steps, peak, options));
      }
      const double loss = trainer.step({batch.data, batch.target * data.spread}).loss;
      if (speaks && options.plan && step == first_step) std::cout << trainer.plan() << std::endl;
      steps_done.fill_(++step);
      if (speaks) progress.show(title, step - first_step, loss);
      if (step == steps) break;
    }
    const double accuracy = test_accuracy(trainer, net, data, options);
    if (!speaks) continue;
    std::ostringstream line;
    line << std::fixed << title << std::setprecision(3) << "  training loss " << progress.loss()
         << std::setprecision(1) << "  test accuracy " << accuracy << " %";
    progress.print(line.str());
    if (!options.checkpoint.empty()) trainer.save(options.checkpoint);
  }
}

void run(const Options& options) {
  if (options.threads > 0) torch::set_num_threads(options.threads);
  epl::init(epl::Config{{"cluster.colocate_split_and_replicate", options.split}});
  const Data data = read_data(options);
  if (epl::Env::get().cluster.worker_index == 0) {
    std::cout << "images: " << data.training->size() << " for training in "
              << data.training->classes() << " classes, " << data.testing->size() << " for tests"
              << std::endl;
  }
  train(options, data);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains a ResNet with EPL: on Fashion-MNIST, the Debian package dataset-fashion-mnist,\n"
      "or on a folder of pictures.");
  // What is written after quickstart.sh's own options counts.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.option_defaults()->always_capture_default();
  const auto positive = CLI::Range(1, 1 << 30, "POSITIVE");
  const auto count = CLI::Range(0, 1 << 30, "COUNT");
  app.add_option("--depth", options.depth, "Layers")->check(CLI::IsMember({18, 34, 50, 101}));
  app.add_option("--data", options.data,
                 "Folder of JPEG and PNG files, one sub-folder a class; else Fashion-MNIST");
  app.add_option("--test-data", options.test_data,
                 "The same for tests; else a tenth of --data is held out")
      ->needs("--data");
  app.add_flag("--split", options.split, "Cuts the classifier over the devices by its classes");
  app.add_option("--classes", options.classes,
                 "Classes of the classifier, over which those of the images are spread; 0: theirs")
      ->check(count);
  app.add_option("--image-size", options.image_size, "Side of what the network sees, in pixels")
      ->check(positive);
  app.add_option("--min-crop", options.min_crop, "Least part of a picture that training cuts out")
      ->check(CLI::Range(0.01, 1.0));
  app.add_option("--test-images", options.test_images, "About so many for tests; 0: all")
      ->check(count);
  app.add_option("--batch", options.batch, "Images in one step on each device")->check(positive);
  app.add_option("--epochs", options.epochs, "Passes over the training images")->check(positive);
  app.add_option("--steps", options.steps, "Updates, in place of --epochs; 0: whole epochs")
      ->check(count);
  app.add_option("--learning-rate", options.learning_rate, "After warmup, for 256 images in a step")
      ->check(CLI::Range(1e-9, 1e3));
  app.add_option("--schedule", options.schedule, "How the learning rate falls")
      ->check(CLI::IsMember({"cosine", "step"}));
  app.add_option("--warmup", options.warmup, "Part of the run in which the learning rate rises")
      ->check(CLI::Range(0.0, 0.9));
  app.add_option("--weight-decay", options.weight_decay, "SGD's weight decay")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--checkpoint", options.checkpoint,
                 "File that is read at the beginning, if it exists, and written after each epoch");
  app.add_flag("--plan", options.plan, "Prints what EPL made of the step");
  app.add_option("--seed", options.seed, "Of parameters and of the order of the images");
  app.add_option("--loader-threads", options.loader_threads, "Threads that read images; 0: none");
  app.add_option("--threads", options.threads, "Threads to compute with; 0: LibTorch's choice")
      ->check(count);
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    std::cerr << "resnet: " << error.what() << "\n";
    return 1;
  }
}

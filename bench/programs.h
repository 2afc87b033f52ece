// The training programs that benchmarks measure, and the ways to take a step of one.
//
//   bench::Program program = with_optimizer<torch::optim::SGD>(gpt(/*rows=*/4), {0.01});
//   bench::Stepper step = bench::epl_stepper(program);
//   double taken = bench::seconds(step);
#pragma once

#include <dlfcn.h>
#include <epl/epl.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tests/models/mlp.h"
#include "tests/models/transformer.h"
#include "tests/models/vision.h"

namespace epl::bench {

// A network, its loss and a batch of random data, made once.
struct Model {
  std::shared_ptr<torch::nn::Module> net;
  StepFunction step;
  Batch batch;
};

// A user's program before its training loop.
struct Program {
  std::shared_ptr<torch::nn::Module> net;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  StepFunction step;
  Batch batch;
};

template <typename Optimizer, typename Options>
Program with_optimizer(const Model& model, const Options& options) {
  return {model.net, std::make_shared<Optimizer>(model.net->parameters(), options), model.step,
          model.batch};
}

inline torch::Tensor ids(int64_t count, torch::IntArrayRef shape) {
  return torch::randint(count, shape, torch::kLong);
}

template <typename Net>
Model classifier(std::shared_ptr<Net> net, torch::Tensor x, torch::Tensor y) {
  return {net,
          [net](const Batch& batch) {
            return torch::nn::functional::cross_entropy(net->forward(batch[0]), batch[1]);
          },
          {std::move(x), std::move(y)}};
}

// `depth` linear layers, the last of which maps to ten classes.
inline Model mlp(int64_t width, int64_t depth, int64_t rows) {
  return classifier(std::make_shared<models::Mlp>(width, width, depth, 10),
                    torch::randn({rows, width}), ids(10, {rows}));
}

// `stage_starts`: blocks with which a stage of a pipeline begins, beside the first.
inline Model bert_base(int64_t rows, std::vector<int64_t> stage_starts = {}) {
  const models::TransformerSize size = {/*vocabulary=*/30522, /*hidden=*/768, /*layers=*/12,
                                        /*heads=*/12, /*length=*/128};
  auto net = std::make_shared<models::Bert>(size);
  net->stage_starts = std::move(stage_starts);
  return classifier(net, ids(size.vocabulary, {rows, size.length}), ids(2, {rows}));
}

inline Model gpt_of(const models::TransformerSize& size, int64_t rows,
                    std::vector<int64_t> stage_starts) {
  auto net = std::make_shared<models::Gpt>(size);
  net->stage_starts = std::move(stage_starts);
  return {
      net,
      [net](const Batch& batch) { return models::token_loss(net->forward(batch[0]), batch[1]); },
      {ids(size.vocabulary, {rows, size.length}), ids(size.vocabulary, {rows, size.length})}};
}

inline Model gpt(int64_t rows, std::vector<int64_t> stage_starts = {}) {
  return gpt_of({/*vocabulary=*/8192, /*hidden=*/384, /*layers=*/6, /*heads=*/6, /*length=*/256},
                rows, std::move(stage_starts));
}

inline Model tiny_gpt(int64_t rows, std::vector<int64_t> stage_starts = {}) {
  return gpt_of({/*vocabulary=*/64, /*hidden=*/32, /*layers=*/4, /*heads=*/2, /*length=*/16}, rows,
                std::move(stage_starts));
}

inline Model resnet50(int64_t rows) {
  return classifier(std::make_shared<models::ResNet50>(), torch::randn({rows, 3, 64, 64}),
                    ids(1000, {rows}));
}

// Takes one training step.
using Stepper = std::function<void()>;

inline std::shared_ptr<Trainer> trainer_of(const Program& program) {
  auto net = program.net;
  return std::make_shared<Trainer>(net, *program.optimizer, program.step);
}

inline Stepper epl_stepper(const Program& program) {
  return [program, trainer = trainer_of(program)] { trainer->step(program.batch); };
}

inline double seconds(const Stepper& step) {
  const auto begin = std::chrono::steady_clock::now();
  step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline std::vector<double> seconds_of_each(int steps, const Stepper& step) {
  std::vector<double> taken;
  for (int i = 0; i < steps; ++i) taken.push_back(seconds(step));
  return taken;
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// OpenBLAS built with pthreads has a pool of its own that LibTorch does not know of.
inline void use_one_thread() {
  at::set_num_threads(1);
  using SetThreads = void (*)(int);
  if (auto set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))) {
    set(1);
  }
}

}  // namespace epl::bench

// How long does a parameter update take, fused by EPL and step by step by LibTorch?
//
//   bench_update [threads]
//
// Two sets of parameters: those of BERT base (109 million, bound by memory) and 120 matrices of
// 32 x 32 (bound by what is done for each parameter). Both ways drive the same optimizer on the
// same parameters in turns, after their results were compared to the bit; the times are medians.
// From LibTorch 2.4 on its own fused kernels take turns as well: Python's optimizers call them on
// request, those of C++ do not. They round otherwise, so only their times are looked at.
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/libtorch.h"
#include "model/torch_optimizer.h"

namespace {

using at::Tensor;
using torch::optim::Optimizer;
using Shapes = std::vector<std::vector<int64_t>>;

Shapes shapes_of_bert_base() {
  const int64_t hidden = 768, inner = 3072;
  Shapes shapes = {{30522, hidden}, {512, hidden}, {2, hidden}, {hidden}, {hidden}};
  for (int layer = 0; layer < 12; ++layer) {
    for (int i = 0; i < 4; ++i) shapes.insert(shapes.end(), {{hidden, hidden}, {hidden}});
    shapes.insert(shapes.end(), {{inner, hidden}, {inner}, {hidden, inner}, {hidden}});
    shapes.insert(shapes.end(), 4, {hidden});
  }
  shapes.insert(shapes.end(), {{hidden, hidden}, {hidden}});
  return shapes;
}

Shapes small_shapes() { return Shapes(120, {32, 32}); }

struct Problem {
  explicit Problem(const Shapes& shapes) {
    for (const auto& shape : shapes) {
      parameters.push_back(at::empty(shape).requires_grad_());
      parameters.back().mutable_grad() = at::empty(shape);
      given.push_back({parameters.back(), parameters.back().grad()});
      elements += parameters.back().numel();
    }
  }

  // The same numbers each time.
  void fill() {
    torch::NoGradGuard no_grad;
    torch::manual_seed(1);
    for (Tensor& parameter : parameters) {
      parameter.uniform_(-0.1, 0.1);
      parameter.mutable_grad().uniform_(-0.01, 0.01);
    }
  }

  std::vector<Tensor> parameters;
  std::vector<epl::ParameterGradient> given;
  int64_t elements = 0;
};

using Maker = std::function<std::unique_ptr<Optimizer>(std::vector<Tensor>)>;

// Whether three steps of both give the same parameters, bit by bit.
bool same_results(Problem& problem, const Maker& make) {
  problem.fill();
  std::vector<Tensor> expected;
  {
    const auto optimizer = make(problem.parameters);
    for (int step = 0; step < 3; ++step) optimizer->step();
    for (const Tensor& parameter : problem.parameters)
      expected.push_back(parameter.detach().clone());
  }
  problem.fill();
  const auto optimizer = make(problem.parameters);
  const auto update = epl::make_update(*optimizer);
  for (int step = 0; step < 3; ++step) update->apply(problem.given);
  for (size_t i = 0; i < expected.size(); ++i)
    if (!expected[i].equal(problem.parameters[i].detach())) return false;
  return true;
}

double microseconds(int repeats, const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) work();
  const std::chrono::duration<double, std::micro> passed = std::chrono::steady_clock::now() - start;
  return passed.count() / repeats;
}

#if EPL_TORCH_AT_LEAST(2, 4)
// A step by one call for all parameters, with states of its own.
std::function<void()> fused_by_libtorch(const Problem& problem, const std::string& name) {
  std::vector<Tensor> parameters, gradients, first, second, steps;
  for (const Tensor& parameter : problem.parameters) {
    parameters.push_back(parameter.detach());
    gradients.push_back(parameter.grad());
    first.push_back(at::zeros_like(parameter.detach()));
    second.push_back(at::zeros_like(parameter.detach()));
    steps.push_back(at::ones({}));
  }
  if (name == "SGD" || name == "SGD with momentum") {
    const double momentum = name == "SGD" ? 0 : 0.9;
    if (momentum == 0) first.clear();
    return [=] {
      at::_fused_sgd_(parameters, gradients, first, /*weight_decay=*/0, momentum, /*lr=*/1e-3,
                      /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false,
                      /*is_first_step=*/false);
    };
  }
  if (name == "AdamW") {
    return [=] {
      at::_fused_adamw_(parameters, gradients, first, second, {}, steps, /*lr=*/1e-4, /*beta1=*/0.9,
                        /*beta2=*/0.999, /*weight_decay=*/1e-2, /*eps=*/1e-8, /*amsgrad=*/false,
                        /*maximize=*/false);
    };
  }
  return [=] {
    at::_fused_adam_(parameters, gradients, first, second, {}, steps, /*lr=*/1e-4, /*beta1=*/0.9,
                     /*beta2=*/0.999, /*weight_decay=*/0, /*eps=*/1e-8, /*amsgrad=*/false,
                     /*maximize=*/false);
  };
}
#else
std::function<void()> fused_by_libtorch(const Problem&, const std::string&) { return nullptr; }
#endif

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Result {
  double epl = 0;
  double libtorch = 0;
  double fused = 0;  // 0: there is none
};

Result measure(Problem& problem, const Maker& make, const std::function<void()>& fused_step,
               int samples, int repeats) {
  const auto optimizer = make(problem.parameters);
  const auto update = epl::make_update(*optimizer);
  update->apply(problem.given);
  if (fused_step) fused_step();
  std::vector<double> epl, libtorch, fused;
  for (int sample = 0; sample < samples; ++sample) {
    epl.push_back(microseconds(repeats, [&] { update->apply(problem.given); }));
    libtorch.push_back(microseconds(repeats, [&] { optimizer->step(); }));
    fused.push_back(fused_step ? microseconds(repeats, fused_step) : 0);
  }
  return {median(epl), median(libtorch), median(fused)};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) at::set_num_threads(std::atoi(argv[1]));
  struct Rule {
    std::string name;
    Maker make;
  };
  using Parameters = std::vector<Tensor>;
  const std::vector<Rule> rules = {
      {"AdamW",
       [](Parameters p) {
         return std::make_unique<torch::optim::AdamW>(p, torch::optim::AdamWOptions(1e-4));
       }},
      {"Adam",
       [](Parameters p) {
         return std::make_unique<torch::optim::Adam>(p, torch::optim::AdamOptions(1e-4));
       }},
      {"SGD with momentum",
       [](Parameters p) {
         return std::make_unique<torch::optim::SGD>(p,
                                                    torch::optim::SGDOptions(1e-3).momentum(0.9));
       }},
      {"SGD",
       [](Parameters p) {
         return std::make_unique<torch::optim::SGD>(p, torch::optim::SGDOptions(1e-3));
       }},
  };
  struct Size {
    std::string name;
    Shapes shapes;
    int samples, repeats;
  };
  const std::vector<Size> sizes = {{"120 small", small_shapes(), 51, 50},
                                   {"BERT base", shapes_of_bert_base(), 7, 1}};

  std::string json =
      "{\"bench\": \"update\", \"threads\": " + std::to_string(at::get_num_threads());
  std::printf("%d threads, microseconds a step, medians\n", at::get_num_threads());
  std::printf("%-10s  %-18s %12s %12s %8s %12s\n", "parameters", "optimizer", "EPL", "LibTorch",
              "ratio", "its fused");
  for (const Size& size : sizes) {
    Problem problem(size.shapes);
    for (const Rule& rule : rules) {
      if (!same_results(problem, rule.make)) {
        std::printf("%s on %s: EPL and LibTorch differ\n", rule.name.c_str(), size.name.c_str());
        return 1;
      }
      const Result result = measure(problem, rule.make, fused_by_libtorch(problem, rule.name),
                                    size.samples, size.repeats);
      const double ratio = result.libtorch / result.epl;
      std::printf("%-10s  %-18s %12.1f %12.1f %7.2fx %12.1f\n", size.name.c_str(),
                  rule.name.c_str(), result.epl, result.libtorch, ratio, result.fused);
      char entry[200];
      std::snprintf(entry, sizeof entry,
                    ", \"%s, %s\": {\"epl_us\": %.1f, \"libtorch_us\": %.1f, \"fused_us\": %.1f}",
                    rule.name.c_str(), size.name.c_str(), result.epl, result.libtorch,
                    result.fused);
      json += entry;
    }
  }
  std::printf("%s}\n", json.c_str());
}

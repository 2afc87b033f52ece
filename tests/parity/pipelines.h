// Networks that are cut into stages, for the tests of pipelines.
#pragma once

#include <string>
#include <vector>

#include "tests/parity/parity.h"

namespace epl::parity {

inline Strategy stage(int number, int devices = 1) {
  return replicate(devices, "stage " + std::to_string(number));
}

// Linear layers, each in a scope of its own; the loss stands in none.
struct Stack : torch::nn::Module {
  explicit Stack(int stages, int64_t width = 6) : Stack(std::vector<int>(stages, 1), width) {}
  explicit Stack(std::vector<int> stage_devices, int64_t width = 6)
      : devices(std::move(stage_devices)) {
    for (size_t i = 0; i < devices.size(); ++i) {
      layers->push_back(torch::nn::Linear(width, width));
    }
    register_module("layers", layers);
  }

  torch::Tensor forward(torch::Tensor x) {
    for (size_t i = 0; i < devices.size(); ++i) {
      const With scope(stage(static_cast<int>(i), devices[i]));
      x = torch::tanh(layers[i]->as<torch::nn::Linear>()->forward(x));
    }
    return x;
  }

  std::vector<int> devices;
  torch::nn::ModuleList layers;
};

inline MakeProgram stack(int stages) {
  return [stages] {
    auto net = std::make_shared<Stack>(stages);
    return program(net, sgd(*net, 0.1, 0.9), classification(net));
  };
}

inline MakeBatch rows(int64_t count) {
  return [count](int) -> Batch { return {torch::randn({count, 6}), classes(6, {count})}; };
}

inline const std::vector<std::string>& schedules() {
  static const std::vector<std::string> all = {"PreferBackward", "PreferForward",
                                               "PreferBackwardOptimizer", "ZeroBubble"};
  return all;
}

// `replicas` pipelines of `stages` stages with a device each, all on one worker.
inline Variant pipeline(int stages, int micro_batches, int replicas = 1) {
  return Variant().steps(3).stages(stages).devices(stages * replicas).micro_batches(micro_batches);
}

inline testing::AssertionResult same_traces(const Trace& one, const Trace& other) {
  return compare(one, other, bit_equal(), Variant());
}

}  // namespace epl::parity

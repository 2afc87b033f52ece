// For tests of the trainer: a small program, and the plain loop to compare with.
#pragma once

#include <epl/epl.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "config/libtorch.h"
#include "config/test_environment.h"

namespace epl {

struct SmallNet : torch::nn::Module {
  explicit SmallNet(int64_t width = 4) : first(3, width), norm(width), head(width, 2) {
    register_module("first", first);
    register_module("norm", norm);
    register_module("drop", drop);
    register_module("head", head);
  }
  torch::Tensor forward(torch::Tensor x) { return head(drop(torch::tanh(norm(first(x))))); }

  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout drop{0.0};
  torch::nn::Linear head;
};

// A net, its optimizer and its step; two made with the same seed are alike.
struct SmallTask {
  explicit SmallTask(uint64_t seed = 1) {
    torch::manual_seed(seed);
    net = std::make_shared<SmallNet>();
    optimizer = std::make_shared<torch::optim::Adam>(net->parameters(), 0.1);
  }

  StepFunction step() const {
    return [net = net](const Batch& batch) {
      return (net->forward(batch[0]) - batch[1]).square().mean();
    };
  }
  Trainer trainer(TrainerOptions options = {}) { return Trainer(net, *optimizer, step(), options); }

  // One step of the plain loop.
  double train_plainly(const Batch& batch) {
    optimizer->zero_grad();
    const torch::Tensor loss = step()(batch).loss;
    loss.backward();
    optimizer->step();
    return loss.item<double>();
  }

  // Copies of all parameters, buffers and optimizer states (in the order of the parameters).
  std::vector<torch::Tensor> tensors() const {
    std::vector<torch::Tensor> all;
    for (const torch::Tensor& tensor : net->parameters()) all.push_back(tensor.detach().clone());
    for (const torch::Tensor& tensor : net->buffers()) all.push_back(tensor.clone());
    for (const torch::Tensor& tensor : net->parameters()) {
      const auto key = epl::state_key(tensor);
      const auto found = optimizer->state().find(key);
      if (found == optimizer->state().end()) continue;
      const auto& state = static_cast<const torch::optim::AdamParamState&>(*found->second);
      all.push_back(torch::tensor(state.step()));
      all.push_back(state.exp_avg().clone());
      all.push_back(state.exp_avg_sq().clone());
    }
    return all;
  }

  std::shared_ptr<SmallNet> net;
  std::shared_ptr<torch::optim::Adam> optimizer;
};

inline Batch rows(int64_t count, uint64_t seed = 7) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return {torch::randn({count, 3}, generator), torch::randn({count, 2}, generator)};
}

inline testing::AssertionResult same(const std::vector<torch::Tensor>& a,
                                     const std::vector<torch::Tensor>& b) {
  if (a.size() != b.size()) {
    return testing::AssertionFailure() << a.size() << " tensors and " << b.size();
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].equal(b[i])) return testing::AssertionFailure() << "tensor " << i << " differs";
  }
  return testing::AssertionSuccess();
}

// With Adam's fused kernel a step differs from LibTorch's own in the last bit.
inline testing::AssertionResult close(const std::vector<torch::Tensor>& a,
                                      const std::vector<torch::Tensor>& b) {
  if (a.size() != b.size()) {
    return testing::AssertionFailure() << a.size() << " tensors and " << b.size();
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].allclose(b[i], 1e-5, 1e-6)) {
      return testing::AssertionFailure() << "tensor " << i << " differs:\n" << a[i] << "\n" << b[i];
    }
  }
  return testing::AssertionSuccess();
}

struct TrainerFixture : EnvironmentFixture {
  TrainerFixture() { init(); }
  ~TrainerFixture() override { init(); }
};

}  // namespace epl

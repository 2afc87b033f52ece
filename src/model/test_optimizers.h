// For the tests of states: every optimizer of LibTorch under each set of options that changes what
// it keeps, stepped on a few parameters; and two that are not LibTorch's.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "config/libtorch.h"

namespace epl {

using OptimizerPointer = std::unique_ptr<torch::optim::Optimizer>;

struct OptimizerCase {
  std::string name;  // "Adam, amsgrad"; the first word is the class
  std::function<OptimizerPointer(std::vector<torch::Tensor>)> make;
  std::vector<std::string> tensors;  // of a state after a step, as LibTorch writes them
};

template <typename OptimizerType, typename Options>
OptimizerCase optimizer_case(std::string name, Options options, std::vector<std::string> tensors) {
  const auto make = [options](std::vector<torch::Tensor> parameters) -> OptimizerPointer {
    return std::make_unique<OptimizerType>(std::move(parameters), options);
  };
  return {std::move(name), make, std::move(tensors)};
}

inline std::vector<OptimizerCase> optimizer_cases() {
  using namespace torch::optim;
  return {
      optimizer_case<SGD>("SGD", SGDOptions(0.1), {}),
      optimizer_case<SGD>("SGD, decay", SGDOptions(0.1).weight_decay(0.2), {}),
      optimizer_case<SGD>("SGD, momentum", SGDOptions(0.1).momentum(0.9).dampening(0.3),
                          {"momentum_buffer"}),
      optimizer_case<SGD>("SGD, nesterov", SGDOptions(0.1).momentum(0.9).nesterov(true),
                          {"momentum_buffer"}),
      optimizer_case<Adam>("Adam", AdamOptions(0.1).betas({0.8, 0.7}), {"exp_avg", "exp_avg_sq"}),
      optimizer_case<Adam>("Adam, amsgrad", AdamOptions(0.1).amsgrad(true),
                           {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}),
      optimizer_case<AdamW>("AdamW", AdamWOptions(0.1).eps(1e-6), {"exp_avg", "exp_avg_sq"}),
      optimizer_case<AdamW>("AdamW, amsgrad", AdamWOptions(0.1).amsgrad(true),
                            {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}),
      optimizer_case<RMSprop>("RMSprop", RMSpropOptions(0.1).alpha(0.8), {"square_avg"}),
      optimizer_case<RMSprop>("RMSprop, momentum", RMSpropOptions(0.1).momentum(0.9),
                              {"square_avg", "momentum_buffer"}),
      optimizer_case<RMSprop>("RMSprop, centered", RMSpropOptions(0.1).centered(true),
                              {"square_avg", "grad_avg"}),
      optimizer_case<RMSprop>("RMSprop, both", RMSpropOptions(0.1).momentum(0.9).centered(true),
                              {"square_avg", "momentum_buffer", "grad_avg"}),
      optimizer_case<Adagrad>("Adagrad", AdagradOptions(0.1).lr_decay(0.01), {"sum"}),
      optimizer_case<Adagrad>("Adagrad, filled", AdagradOptions(0.1).initial_accumulator_value(0.5),
                              {"sum"}),
  };
}

// A matrix, one that lies column by column, a vector of another type and a number.
inline std::vector<torch::Tensor> some_parameters() {
  torch::manual_seed(0);
  std::vector<torch::Tensor> parameters{torch::randn({3, 4}), torch::randn({5, 2}).t(),
                                        torch::randn({7}, torch::kDouble), torch::randn({})};
  for (torch::Tensor& parameter : parameters) parameter.requires_grad_();
  return parameters;
}

// Steps of LibTorch's own.
inline void train(torch::optim::Optimizer& optimizer, int steps) {
  for (int i = 0; i < steps; ++i) {
    for (auto& group : optimizer.param_groups()) {
      for (torch::Tensor& parameter : group.params()) {
        parameter.mutable_grad() = torch::randn_like(parameter.detach());
      }
    }
    optimizer.step();
  }
}

// What torch::save writes of an optimizer, to be read.
inline torch::serialize::InputArchive written(const torch::optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive out;
  optimizer.save(out);
  std::stringstream stream;
  out.save_to(stream);
  torch::serialize::InputArchive in;
  in.load_from(stream);
  return in;
}

struct OwnState : torch::optim::OptimizerCloneableParamState<OwnState> {
  torch::Tensor mean;
};
struct OwnOptions : torch::optim::OptimizerCloneableOptions<OwnOptions> {};

// One of the user's own. It keeps a state of its own for each parameter.
class OwnOptimizer : public torch::optim::Optimizer {
 public:
  explicit OwnOptimizer(std::vector<torch::Tensor> parameters,
                        std::unique_ptr<torch::optim::OptimizerOptions> options)
      : Optimizer(std::move(parameters), std::move(options)) {}

  torch::Tensor step(LossClosure = nullptr) override {
    for (auto& group : param_groups()) {
      for (torch::Tensor& parameter : group.params()) {
        auto own = std::make_unique<OwnState>();
        own->mean = parameter.grad();
        state()[state_key(parameter)] = std::move(own);
      }
    }
    return {};
  }
};

// A subclass of LibTorch's, which may do anything in its step().
class OwnAdam : public torch::optim::Adam {
 public:
  using Adam::Adam;
};

}  // namespace epl

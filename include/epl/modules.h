// What a trainer trains: LibTorch's modules, by name, and the optimizers of their parameters.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace epl {

// A module and the name that its parameters get in plans and messages.
struct NamedModule {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
};

using OptimizerList = std::vector<std::reference_wrapper<torch::optim::Optimizer>>;

}  // namespace epl

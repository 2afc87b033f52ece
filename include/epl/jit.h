// A module that torch::jit::load read, as a module of a trainer.
//
//   torch::jit::Module net = torch::jit::load("net.pt");
//   std::vector<torch::Tensor> parameters;
//   for (const auto& parameter : net.parameters()) parameters.push_back(parameter);
//   torch::optim::SGD optimizer(parameters, 0.1);
//   epl::Trainer trainer({{"", epl::module_of(net)}}, {optimizer}, step);
//
// Its parameters and buffers have their names in plans and files of the trainer, and train() and
// eval() take effect with the next step, as those of any other module of the trainer do.
#pragma once

#include <torch/nn/module.h>

#include <memory>

namespace torch::jit {
struct Module;
}  // namespace torch::jit

namespace epl {

// Shows the module's own tensors and flags, which stay where they are: it shares the module.
std::shared_ptr<torch::nn::Module> module_of(const torch::jit::Module& module);

}  // namespace epl

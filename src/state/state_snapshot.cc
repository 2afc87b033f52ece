#include "state/state_snapshot.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace epl {

std::vector<at::Generator> generators_of(const Graph& graph) {
  std::vector<at::Generator> generators{at::detail::getDefaultCPUGenerator()};
  for (const auto& node : graph.nodes) {
    for (const auto& argument : node.arguments) {
      if (!argument.constant.isGenerator()) continue;
      const at::Generator generator = argument.constant.toGenerator();
      const bool known =
          std::find(generators.begin(), generators.end(), generator) != generators.end();
      if (!known) generators.push_back(generator);
    }
  }
  return generators;
}

StateSnapshot::StateSnapshot(const std::vector<at::Tensor>& tensors,
                             const std::vector<at::Generator>& generators) {
  for (const at::Tensor& tensor : tensors) {
    contents_.emplace_back(tensor, tensor.detach().clone());
  }
  for (const at::Generator& generator : generators) {
    generators_.emplace_back(generator, generator.get_state());
  }
}

void StateSnapshot::restore() const {
  const c10::AutoGradMode no_grad(false);
  // The tensor's memory of now: the run may have given it other memory.
  for (const auto& [tensor, contents] : contents_) tensor.detach().copy_(contents);
  for (const auto& [generator, state] : generators_) at::Generator(generator).set_state(state);
}

std::vector<at::Tensor> StateSnapshot::tensors() const {
  std::vector<at::Tensor> tensors;
  for (const auto& [tensor, contents] : contents_) tensors.push_back(tensor);
  return tensors;
}

}  // namespace epl

#include "model/state_on_workers.h"

#include <map>

#include "runtime/held_parameters.h"
#include "state/stage_optimizers.h"

namespace epl {
namespace {

// How many tensors of the model show each piece of memory.
std::map<const c10::StorageImpl*, int> users_of_memory(const Model& model) {
  std::map<const c10::StorageImpl*, int> users;
  for (const auto* tensors : {&model.parameters(), &model.state()}) {
    for (const auto& [name, tensor] : *tensors) {
      if (tensor.has_storage()) ++users[tensor.storage().unsafeGetStorageImpl()];
    }
  }
  return users;
}

}  // namespace

void release_what_others_hold(const Model& model, const BoundStep& step) {
  auto users = users_of_memory(model);
  const auto pieces_of = [&](const at::Tensor& parameter) {
    std::vector<at::Tensor> tensors = model.states_of(parameter);
    const bool own = users[parameter.storage().unsafeGetStorageImpl()] == 1;
    if (own) tensors.push_back(parameter.detach());
    return tensors;
  };
  release_pieces_of_others(step.connections(), step.gradients().held(), pieces_of);
}

// Workers that have a piece of a parameter have that of its state: pieces first, then the states.
void bring_states_to_first_worker(const Model& model, const BoundStep& step, const StateMap& map) {
  const Connections& connections = step.connections();
  if (!connections.roles_on_workers()) return;
  gather_pieces(connections, step.gradients().held(), Among::kHolders,
                [&](const at::Tensor& parameter) { return model.states_of(parameter); });
  std::vector<OptimizerOfNames> optimizers;
  for (size_t i = 0; i < model.optimizers().size(); ++i) {
    optimizers.push_back({*model.optimizers()[i], model.names_of(i)});
  }
  gather_optimizer_states({map, step.placement(), connections.cluster(), *connections.workers()},
                          optimizers);
}

}  // namespace epl

#include "model/model_state.h"

#include <algorithm>
#include <unordered_map>

#include "base/text.h"
#include "config/libtorch.h"
#include "state/optimizer_states.h"

namespace epl {
namespace {

// Of a sparse tensor the sizes are told, and no strides.
TensorType type_of_whole(const at::Tensor& tensor) {
  TensorType type = type_of(tensor);
  type.offset = 0;
  return type;
}

// visit(name of the state, row) for each state that steps need of a parameter.
template <typename Visit>
void for_each_state(const Model& model, const std::string& name, const at::Tensor& parameter,
                    Visit visit) {
  for (size_t i : model.optimizers_of(parameter)) {
    const ModelOptimizer& optimizer = *model.optimizers()[i];
    const OptimizerRow* const row = optimizer.row();
    if (row == nullptr) continue;
    const size_t group = optimizer.listed()[model.number_of(parameter, i)].group;
    const OptionValues options = optimizer.options(group);
    for (const StateTensor& each : row->tensors) {
      if (!each.exists(options)) continue;
      // Mostly one optimizer has a parameter; where there are several, the number tells them apart.
      const std::string own = i == 0 ? each.name : concat(i, ".", each.name);
      visit(name + "/" + own, *row);
    }
  }
}

}  // namespace

StateMap state_of(const Model& model, const GradientHistory& history, const Placement& placement) {
  StateMap map;
  std::unordered_map<const c10::TensorImpl*, std::string> names;
  for (const auto& [name, tensor] : model.parameters()) {
    map.add({name, StateKind::kParameter, type_of_whole(tensor)});
    for_each_state(
        model, name, tensor,
        [&, &name = name, &tensor = tensor](const std::string& state, const OptimizerRow&) {
          map.add({state, StateKind::kOptimizerState, type_of_whole(tensor), StateMedium::kPages,
                   name});
        });
    names.emplace(tensor.unsafeGetTensorImpl(), name);
  }
  for (const auto& [name, tensor] : model.state()) {
    map.add({name, StateKind::kBuffer, type_of_whole(tensor)});
  }
  history.for_each([&](const GradientHistory::Lies& lies) {
    const auto found = names.find(lies.parameter);
    if (found == names.end()) return;
    Home home = lies.home;
    if (!(lies.placement == placement)) home.roles.clear();
    map.place(found->second, home);
  });
  return map;
}

std::set<std::string> states_made_with_optimizers(const Model& model) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : model.parameters()) {
    for_each_state(model, name, tensor, [&](const std::string& state, const OptimizerRow& row) {
      if (row.begins == StateBegins::kWithOptimizer) names.insert(state);
    });
  }
  return names;
}

std::map<std::string, int> states_kept(const Model& model) {
  std::map<std::string, int> kept;
  for (const auto& [name, parameter] : model.parameters()) {
    for (size_t index : model.optimizers_of(parameter)) {
      const ModelOptimizer& optimizer = *model.optimizers()[index];
      const OptimizerRow* const row = optimizer.row();
      const size_t group = optimizer.listed()[model.number_of(parameter, index)].group;
      kept[name] +=
          row == nullptr ? 2 : static_cast<int>(row->tensor_count(optimizer.options(group)));
    }
  }
  return kept;
}

double most_state_per_parameter(const Model& model) {
  double most = 0;
  for (const auto& optimizer : model.optimizers()) {
    most = std::max(most, state_per_parameter(*optimizer));
  }
  return most;
}

void add_reached(const std::vector<WeakTensor>& reached, const Model& model,
                 GradientHistory& history) {
  if (!kZeroGradLeavesZeros) return;
  for (const WeakTensor& leaf : reached) {
    const at::Tensor tensor = at::Tensor(leaf.lock());
    if (tensor.defined() && !model.trains(tensor)) history.add_reached(tensor);
  }
}

}  // namespace epl

#include "model/unchanged_model.h"

#include <ATen/ATen.h>

namespace epl {

UnchangedModel::UnchangedModel(const Model& model) : generators_({}, generators_of(Graph())) {
  for (const auto& [name, tensor] : model.all_tensors()) {
    if (!tensor.defined() || tensor.layout() != c10::kStrided) continue;
    before_.emplace_back(tensor, tensor.detach().clone());
  }
}

UnchangedModel::~UnchangedModel() {
  const c10::AutoGradMode no_grad(false);
  for (const auto& [tensor, contents] : before_) {
    const bool same = tensor.sizes() == contents.sizes() && tensor.equal(contents);
    if (!same) tensor.detach().copy_(contents);
  }
  generators_.restore();
}

}  // namespace epl

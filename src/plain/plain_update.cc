#include "plain/plain_update.h"

#include <ATen/Functions.h>

#include "base/check.h"
#include "base/text.h"
#include "config/libtorch.h"
#include "runtime/finite_gradients.h"
#include "runtime/update_on_devices.h"

namespace epl {
namespace {

std::vector<at::Tensor> defined_gradients(const PlainRun& plain) {
  std::vector<at::Tensor> gradients;
  for (const auto& gradient : plain.gradients()) {
    if (gradient.defined()) gradients.push_back(gradient);
  }
  return gradients;
}

}  // namespace

bool unscale_gradients(const PlainRun& plain, double scale, DeviceTeam& team) {
  const c10::AutoGradMode no_grad(false);
  const std::vector<at::Tensor> gradients = defined_gradients(plain);
  if (!are_finite(gradients, team)) return false;
  unscale_gradients(gradients, scale);
  return true;
}

std::string infinite_gradient(const Model& model, const PlainRun& plain) {
  const c10::AutoGradMode no_grad(false);
  for (size_t i = 0; i < plain.gradients().size(); ++i) {
    const at::Tensor& gradient = plain.gradients()[i];
    if (gradient.defined() && !are_finite({gradient})) return model.parameters()[i].first;
  }
  return "";
}

double clip_gradients(const PlainRun& plain, const ClipOptions& clip) {
  return clip_gradients(defined_gradients(plain), clip);
}

void update_plainly(Model& model, const PlainRun& plain, const PlainUpdate& update,
                    DeviceTeam& team) {
  const std::vector<at::Tensor>& gradients = plain.gradients();
  std::vector<std::vector<ParameterGradient>> by_optimizer(model.optimizers().size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    const auto& [name, parameter] = model.parameters()[i];
    const bool had = update.had_gradient(name, parameter, gradients[i].defined()) ||
                     plain.users_gradient(i).defined();
    if (!gradients[i].defined() && !(had && kZeroGradLeavesZeros)) continue;
    const at::Tensor gradient =
        gradients[i].defined() ? gradients[i] : at::zeros_like(parameter.detach());
    const std::optional<Piece> owned = update.owned_here(parameter);
    if (owned && owned->length == 0) continue;
    EPL_CHECK(
        !owned || gradient.layout() == at::kStrided,
        concat("the gradient of `", name,
               "` is sparse in a step that runs plainly, and was dense in those before, since "
               "which workers keep parts of its optimizer's states"),
        "zero.level", "communication.sparse_as_dense = true, or zero.level = \"\"");
    for (size_t optimizer : model.optimizers_of(parameter)) {
      by_optimizer[optimizer].push_back({parameter, gradient, {}, {}, owned});
    }
  }
  for (size_t i = 0; i < by_optimizer.size(); ++i) {
    if (by_optimizer[i].empty()) continue;
    model.update(i).scale_gradients(1);
    update_on_devices(model.update(i), by_optimizer[i], team);
  }
}

}  // namespace epl

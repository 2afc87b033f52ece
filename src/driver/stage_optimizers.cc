#include "driver/stage_optimizers.h"

#include <ATen/ATen.h>

#include <set>
#include <string>

#include "config/libtorch.h"
#include "driver/stage_parameters.h"
#include "state/optimizer_states.h"
#include "state/saved_states.h"

namespace epl {
namespace {

// Workers that have a piece of a parameter have that of its state.
void gather_pieces_of_states(Job& job, const ReadyStep& step, const Model& model) {
  gather_pieces(job, step, Among::kHolders,
                [&](const at::Tensor& parameter) { return state_tensors(model, parameter); });
}

}  // namespace

std::vector<at::Tensor> state_tensors(const Model& model, const at::Tensor& parameter) {
  std::vector<at::Tensor> tensors;
  for (size_t i : model.optimizers_of(parameter)) {
    const auto of_one = state_tensors(model.optimizers()[i].get(), parameter);
    tensors.insert(tensors.end(), of_one.begin(), of_one.end());
  }
  return tensors;
}

void gather_optimizer_states(Job& job, const ReadyStep& step, const Model& model) {
  if (job.workers() == nullptr || !step.placement().has_roles()) return;
  const torch::NoGradGuard no_grad;
  gather_pieces_of_states(job, step, model);
  const auto index = job.cluster().worker_index;
  std::vector<std::set<StateKey>> keys(static_cast<size_t>(job.cluster().worker_num));
  for (const auto& each : step.gradients().holders()) {
    const int holder = first_holder(step, each.stages, job.cluster());
    keys[static_cast<size_t>(holder)].insert(state_key(each.parameter));
  }
  for (const auto& optimizer : model.optimizers()) {
    for (int worker = 1; worker < job.cluster().worker_num; ++worker) {
      const auto& wanted = keys[static_cast<size_t>(worker)];
      if (wanted.empty()) continue;
      std::string text = worker == index ? saved_states(optimizer, wanted) : "";
      const at::Tensor size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
      if (worker == index) job.workers()->send(size, 0, 0);
      if (index == 0) job.workers()->receive(size, worker, 0);
      if (index != 0 && index != worker) continue;
      text.resize(static_cast<size_t>(size.item<int64_t>()));
      const at::Tensor bytes =
          at::from_blob(text.data(), {static_cast<int64_t>(text.size())}, at::kByte);
      if (worker == index) job.workers()->send(bytes, 0, 0);
      if (index != 0) continue;
      job.workers()->receive(bytes, worker, 0);
      add_saved_states(optimizer, text, wanted);
    }
  }
}

}  // namespace epl

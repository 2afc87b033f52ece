#include "driver/model_snapshot.h"

#include <map>

#include "base/mutex.h"
#include "config/libtorch.h"
#include "state/optimizer_table.h"

namespace epl {
namespace {

// Parameters that a plain step gave a gradient. In the plain loop they remember it themselves, by a
// .grad() that is defined; EPL leaves .grad() to the user, so it is remembered here. It belongs to
// the parameter and not to a trainer, since trainers share optimizers: hence one for the process.
class GradientsSoFar {
 public:
  static GradientsSoFar& of_process() {
    static GradientsSoFar all;
    return all;
  }

  void add(const at::Tensor& parameter) {
    const MutexLock lock(mutex_);
    for (auto entry = known_.begin(); entry != known_.end();) {
      entry = entry->second.expired() ? known_.erase(entry) : std::next(entry);
    }
    known_.insert_or_assign(parameter.unsafeGetTensorImpl(), Weak(parameter.getIntrusivePtr()));
  }

  bool has(const at::Tensor& parameter) const {
    const MutexLock lock(mutex_);
    const auto found = known_.find(parameter.unsafeGetTensorImpl());
    return found != known_.end() && !found->second.expired();
  }

 private:
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  mutable Mutex mutex_;
  std::map<c10::TensorImpl*, Weak> known_ EPL_GUARDED_BY(mutex_);
};

}  // namespace

NamedTensors all_tensors(const Model& model) {
  NamedTensors all = model.parameters();
  all.insert(all.end(), model.state().begin(), model.state().end());
  return all;
}

bool can_be_set_back(const torch::optim::Optimizer& optimizer) {
  return row_of(optimizer) != nullptr;
}

ModelSnapshot::ModelSnapshot(const Model& model) : model_(model) {
  for (const auto& [name, tensor] : all_tensors(model)) {
    contents_.push_back(tensor.detach().clone());
  }
  for (const auto& [name, tensor] : model.parameters()) gradients_.push_back(tensor.grad());
  for (const auto& optimizer : model.optimizers()) {
    OptimizerStates& own = states_.emplace_back();
    if (!can_be_set_back(optimizer.get())) continue;
    std::swap(own, optimizer.get().state());
    for (const auto& [key, state] : own) optimizer.get().state()[key] = copy_of_state(*state);
  }
}

bool ModelSnapshot::had_gradient(size_t index) const {
  const at::Tensor& parameter = model_.parameters()[index].second;
  if (gradients_[index].defined() || GradientsSoFar::of_process().has(parameter)) return true;
  const StateKey key = state_key(parameter);
  for (const OptimizerStates& states : states_) {
    const auto found = states.find(key);
    if (found != states.end() && has_seen_gradient(*found->second)) return true;
  }
  return false;
}

void ModelSnapshot::give_zeros_where_gradients_were() {
  if (!kZeroGradLeavesZeros) return;
  for (size_t i = 0; i < model_.parameters().size(); ++i) {
    const at::Tensor& parameter = model_.parameters()[i].second;
    if (parameter.grad().defined()) {
      GradientsSoFar::of_process().add(parameter);
    } else if (had_gradient(i)) {
      parameter.mutable_grad() = at::zeros_like(parameter);
    }
  }
}

void ModelSnapshot::restore() {
  const torch::NoGradGuard no_grad;
  const NamedTensors all = all_tensors(model_);
  for (size_t i = 0; i < all.size(); ++i) all[i].second.detach().copy_(contents_[i]);
  for (size_t i = 0; i < gradients_.size(); ++i) {
    model_.parameters()[i].second.mutable_grad() = gradients_[i];
  }
  for (size_t i = 0; i < states_.size(); ++i) {
    torch::optim::Optimizer& optimizer = model_.optimizers()[i].get();
    if (can_be_set_back(optimizer)) optimizer.state() = std::move(states_[i]);
  }
}

}  // namespace epl

#include "model/model_snapshot.h"

#include <map>

#include "base/mutex.h"
#include "config/libtorch.h"

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

std::vector<at::Tensor> values_of(const Model& model) {
  std::vector<at::Tensor> values;
  for (const auto& [name, tensor] : model.all_tensors()) values.push_back(tensor);
  return values;
}

}  // namespace

ModelSnapshot::ModelSnapshot(const Model& model) : model_(model), tensors_(values_of(model), {}) {
  for (const auto& [name, tensor] : model.parameters()) {
    gradients_.push_back(tensor.grad());
    bool tells = false;
    for (size_t i : model.optimizers_of(tensor)) {
      ModelOptimizer& optimizer = *model.optimizers()[i];
      tells |= can_be_set_back(optimizer) &&
               has_seen_gradient(optimizer.state(model.number_of(tensor, i)));
    }
    states_tell_.push_back(tells);
  }
  for (const auto& optimizer : model.optimizers()) {
    if (can_be_set_back(*optimizer)) states_.push_back(std::make_unique<LentStates>(*optimizer));
  }
}

bool ModelSnapshot::had_gradient(size_t index) const {
  return gradients_[index].defined() || states_tell_[index] ||
         GradientsSoFar::of_process().has(model_.parameters()[index].second);
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
  const c10::AutoGradMode no_grad(false);
  tensors_.restore();
  for (size_t i = 0; i < gradients_.size(); ++i) {
    model_.parameters()[i].second.mutable_grad() = gradients_[i];
  }
  states_.clear();
}

}  // namespace epl

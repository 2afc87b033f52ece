#include "driver/model_snapshot.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <map>
#include <typeinfo>

#include "base/check.h"
#include "base/mutex.h"
#include "config/libtorch.h"

namespace epl {
namespace {

namespace optim = torch::optim;
using ParamState = optim::OptimizerParamState;

at::Tensor copy_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().clone() : at::Tensor();
}

template <typename State>
std::unique_ptr<State> copied(const State& state, void (*copy_tensors)(State&)) {
  auto copy = std::make_unique<State>(state);
  copy_tensors(*copy);
  return copy;
}

template <typename State>
void copy_moments(State& state) {
  state.exp_avg(copy_of(state.exp_avg()));
  state.exp_avg_sq(copy_of(state.exp_avg_sq()));
  state.max_exp_avg_sq(copy_of(state.max_exp_avg_sq()));
}

std::unique_ptr<ParamState> copy_of(const ParamState& state) {
  if (const auto* sgd = dynamic_cast<const optim::SGDParamState*>(&state)) {
    return copied<optim::SGDParamState>(
        *sgd, [](auto& own) { own.momentum_buffer(copy_of(own.momentum_buffer())); });
  }
  if (const auto* adam = dynamic_cast<const optim::AdamParamState*>(&state)) {
    return copied(*adam, copy_moments<optim::AdamParamState>);
  }
  if (const auto* adamw = dynamic_cast<const optim::AdamWParamState*>(&state)) {
    return copied(*adamw, copy_moments<optim::AdamWParamState>);
  }
  if (const auto* rmsprop = dynamic_cast<const optim::RMSpropParamState*>(&state)) {
    return copied<optim::RMSpropParamState>(*rmsprop, [](auto& own) {
      own.square_avg(copy_of(own.square_avg()));
      own.momentum_buffer(copy_of(own.momentum_buffer()));
      own.grad_avg(copy_of(own.grad_avg()));
    });
  }
  const auto* adagrad = dynamic_cast<const optim::AdagradParamState*>(&state);
  EPL_ASSERT(adagrad != nullptr, "a state of LibTorch's optimizers that is not known");
  return copied<optim::AdagradParamState>(*adagrad, [](auto& own) { own.sum(copy_of(own.sum())); });
}

// Adagrad has a state from the beginning.
bool tells_of_a_gradient(const ParamState& state) {
  const auto* adagrad = dynamic_cast<const optim::AdagradParamState*>(&state);
  return adagrad == nullptr || adagrad->step() > 0;
}

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

bool can_be_set_back(const optim::Optimizer& optimizer) {
  const std::type_info& type = typeid(optimizer);
  return type == typeid(optim::SGD) || type == typeid(optim::Adam) ||
         type == typeid(optim::AdamW) || type == typeid(optim::RMSprop) ||
         type == typeid(optim::Adagrad);
}

ModelSnapshot::ModelSnapshot(const Model& model) : model_(model) {
  for (const auto& [name, tensor] : all_tensors(model)) {
    contents_.push_back(tensor.detach().clone());
  }
  for (const auto& [name, tensor] : model.parameters()) gradients_.push_back(tensor.grad());
  for (const auto& optimizer : model.optimizers()) {
    States& own = states_.emplace_back();
    if (!can_be_set_back(optimizer.get())) continue;
    std::swap(own, optimizer.get().state());
    for (const auto& [key, state] : own) optimizer.get().state()[key] = copy_of(*state);
  }
}

bool ModelSnapshot::had_gradient(size_t index) const {
  const at::Tensor& parameter = model_.parameters()[index].second;
  if (gradients_[index].defined() || GradientsSoFar::of_process().has(parameter)) return true;
  const StateKey key = state_key(parameter);
  for (const States& states : states_) {
    const auto found = states.find(key);
    if (found != states.end() && tells_of_a_gradient(*found->second)) return true;
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

#include "model/torch_optimizer.h"

#include <c10/util/Type.h>
#include <torch/optim/lbfgs.h>

#include <set>
#include <typeinfo>
#include <utility>

#include "base/check.h"
#include "model/saved_states.h"

namespace epl {
namespace {

// An Update with the view that it works on.
class UpdateOfTorch final : public Update {
 public:
  explicit UpdateOfTorch(torch::optim::Optimizer& optimizer)
      : optimizer_(optimizer), update_(make_update(static_cast<ModelOptimizer&>(optimizer_))) {}

  int64_t prepare(const std::vector<ParameterGradient>& gradients) override {
    return update_->prepare(gradients);
  }
  void run(int64_t begin, int64_t end) const override { update_->run(begin, end); }
  void finish() override { update_->finish(); }
  std::string name() const override { return update_->name(); }
  bool fused() const override { return update_->fused(); }

 private:
  TorchOptimizer optimizer_;
  std::unique_ptr<Update> update_;
};

}  // namespace

TorchOptimizer::TorchOptimizer(torch::optim::Optimizer& optimizer)
    : optimizer_(optimizer), known_(torch_row_of(optimizer)) {
  EPL_CHECK(typeid(optimizer) != typeid(torch::optim::LBFGS),
            "torch::optim::LBFGS needs a closure that evaluates the model several times in a step; "
            "EPL evaluates it once",
            "the optimizer of the trainer",
            "torch::optim::AdamW, or any optimizer whose step() works from the gradients alone");
  list();
}

std::string TorchOptimizer::name() const {
  return known_ != nullptr ? known_->row->name : c10::demangle(typeid(optimizer_).name());
}

// Less than a nanosecond a parameter where all is as it was.
int64_t TorchOptimizer::look() {
  const auto& groups = optimizer_.param_groups();
  size_t next = 0;
  for (size_t group = 0; group < groups.size(); ++group) {
    for (const at::Tensor& parameter : groups[group].params()) {
      const bool same = next < listed_.size() && listed_[next].group == group &&
                        listed_[next].parameter.is_same(parameter);
      if (!same) {
        list();
        return ++version_;
      }
      ++next;
    }
  }
  if (next == listed_.size()) return version_;
  list();
  return ++version_;
}

void TorchOptimizer::list() {
  listed_.clear();
  keys_.clear();
  const auto& groups = optimizer_.param_groups();
  for (size_t group = 0; group < groups.size(); ++group) {
    for (const at::Tensor& parameter : groups[group].params()) {
      listed_.push_back({parameter, group});
      keys_.push_back(state_key(parameter));
    }
  }
  drop_orphans();
}

// Of a parameter that the optimizer does not list any more other workers' parts can never come
// back, and LibTorch saves what it finds.
void TorchOptimizer::drop_orphans() {
  if (known_ == nullptr) return;
  const std::set<StateKey> listed(keys_.begin(), keys_.end());
  std::vector<StateKey> orphans;
  for (const auto& [key, state] : optimizer_.state()) {
    const bool partial = state != nullptr && known_->is_partial(*state);
    if (partial && listed.count(key) == 0) orphans.push_back(key);
  }
  for (const StateKey& key : orphans) optimizer_.state().erase(key);
}

const TorchOptimizerRow* TorchOptimizer::known_options(size_t group) const {
  const auto& of_group = optimizer_.param_groups()[group];
  if (known_ != nullptr || !of_group.has_options()) return known_;
  return torch_row_of(of_group.options());
}

const OptimizerRow* TorchOptimizer::options_row(size_t group) const {
  const TorchOptimizerRow* const known = known_options(group);
  return known == nullptr ? nullptr : known->row;
}

OptionValues TorchOptimizer::options(size_t group) const {
  const TorchOptimizerRow* const known = known_options(group);
  if (known == nullptr) return {};
  return known->values_of(optimizer_.param_groups()[group].options());
}

ParameterState TorchOptimizer::parts_of(torch::optim::OptimizerParamState& state) const {
  const TorchOptimizerRow* const known = known_ != nullptr ? known_ : torch_row_of(state);
  ParameterState parts;
  parts.exists = true;
  if (known == nullptr) return parts;
  parts.row = known->row;
  const bool hides = known->is_partial(state);
  for (size_t i = 0; i < known->tensors.size(); ++i) {
    parts.tensors[i] = hides ? &known->hidden(state, i) : &known->tensors[i](state);
  }
  if (known->step != nullptr) parts.step = &known->step(state);
  return parts;
}

ParameterState TorchOptimizer::state(size_t number) {
  const auto found = optimizer_.state().find(keys_[number]);
  if (found == optimizer_.state().end() || found->second == nullptr) return {};
  return parts_of(*found->second);
}

ParameterState TorchOptimizer::make_state(size_t number) {
  EPL_ASSERT(known_ != nullptr, "a state of an optimizer that is not known");
  auto& state = optimizer_.state()[keys_[number]];
  state = known_->make_state();
  return parts_of(*state);
}

void TorchOptimizer::set_partial(size_t number, bool partial) {
  EPL_ASSERT(known_ != nullptr, "a part of a state of an optimizer that is not known");
  auto& states = optimizer_.state();
  const auto found = states.find(keys_[number]);
  const bool exists = found != states.end() && found->second != nullptr;
  if (exists ? known_->is_partial(*found->second) == partial : !partial) return;
  const auto from = exists ? std::move(found->second) : known_->make_state();
  auto& made = states[keys_[number]];
  made = partial ? known_->partial(*from) : known_->whole(*from);
  for (size_t i = 0; i < known_->tensors.size(); ++i) {
    at::Tensor& shown = known_->tensors[i](*made);
    if (partial) known_->hidden(*made, i) = std::exchange(shown, at::Tensor());
    if (!partial) shown = known_->hidden(*from, i);
  }
}

bool TorchOptimizer::is_partial(size_t number) const {
  const auto& states = optimizer_.state();
  const auto found = states.find(keys_[number]);
  return known_ != nullptr && found != states.end() && found->second != nullptr &&
         known_->is_partial(*found->second);
}

namespace {

std::set<StateKey> keys_of(const std::vector<StateKey>& all, const std::vector<size_t>& numbers) {
  std::set<StateKey> keys;
  for (size_t number : numbers) keys.insert(all[number]);
  return keys;
}

}  // namespace

std::string TorchOptimizer::saved_states(const std::vector<size_t>& numbers) {
  return epl::saved_states(optimizer_, keys_of(keys_, numbers));
}

void TorchOptimizer::add_saved_states(const std::string& text, const std::vector<size_t>& numbers) {
  epl::add_saved_states(optimizer_, text, keys_of(keys_, numbers));
}

std::unique_ptr<Update> make_update(torch::optim::Optimizer& optimizer) {
  return std::make_unique<UpdateOfTorch>(optimizer);
}

}  // namespace epl

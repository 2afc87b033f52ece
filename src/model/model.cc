#include "model/model.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "base/check.h"
#include "base/text.h"
#include "state/optimizer_states.h"

namespace epl {
namespace {

// Hooks are never moved in their list: one that is removed leaves a null pointer, and one that is
// added comes last.
void append_hooks(const at::Tensor& parameter, int64_t index, std::vector<int64_t>& key) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(parameter);
  if (meta == nullptr || meta->hooks_.empty()) return;
  const auto append = [&](int64_t hook) { key.insert(key.end(), {-1 - index, hook}); };
  // The first one calls those of the list, where there is one.
  for (size_t i = meta->cpp_hooks_list_ != nullptr ? 1 : 0; i < meta->hooks_.size(); ++i) {
    append(reinterpret_cast<int64_t>(meta->hooks_[i].get()));
  }
  if (meta->cpp_hooks_list_ == nullptr) return;
  const auto& hooks = *meta->cpp_hooks_list_;
  for (size_t i = 0; i < hooks.size(); ++i) {
    if (hooks[i] != nullptr) append(static_cast<int64_t>(i));
  }
}

}  // namespace

Model::Model(Optimizers optimizers) : optimizers_(std::move(optimizers)) {
  EPL_CHECK(!optimizers_.empty(), "a trainer without an optimizer cannot train", "epl::Trainer");
  for (const auto& optimizer : optimizers_) {
    updates_.push_back(make_update(*optimizer));
    looks_.push_back(optimizer->look());
  }
}

void Model::find_tensors() {
  parameters_.clear();
  state_.clear();
  trained_by_.clear();
  list_parts();
  find_parameters();
  find_state();
  tell_names_apart();
  std::vector<at::Tensor> tensors;
  for (const auto* named : {&parameters_, &state_}) {
    for (const auto& [name, tensor] : *named) tensors.push_back(tensor);
  }
  holders_.watch(std::move(tensors), parts());
}

void Model::find_parameters() {
  listed_ = 0;
  std::map<c10::TensorImpl*, std::string> names;
  for (const auto& [name, tensor] : named_parameters()) {
    names.emplace(tensor.unsafeGetTensorImpl(), name);
  }
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    const auto& listed = optimizers_[i]->listed();
    for (size_t number = 0; number < listed.size(); ++number) {
      const at::Tensor& parameter = listed[number].parameter;
      const auto name = names.find(parameter.unsafeGetTensorImpl());
      TrainedBy& by = trained_by_[parameter.unsafeGetTensorImpl()];
      if (by.optimizers.empty()) {
        parameters_.emplace_back(
            name != names.end() ? name->second : concat("optimizer", i, ".parameter", number),
            parameter);
      }
      if (!by.optimizers.empty() && by.optimizers.back() == i) continue;
      by.optimizers.push_back(i);
      by.numbers.push_back(number);
    }
    listed_ += listed.size();
  }
}

void Model::find_state() {
  std::set<c10::TensorImpl*> seen;
  const auto add = [&](const NamedTensors& tensors) {
    for (const auto& [name, tensor] : tensors) {
      if (!tensor.defined() || trains(tensor)) continue;
      if (seen.insert(tensor.unsafeGetTensorImpl()).second) state_.emplace_back(name, tensor);
    }
  };
  add(named_parameters());
  untrained_ = state_.size();
  add(named_buffers());
}

void Model::tell_names_apart() {
  std::set<std::string> taken;
  for (auto* named : {&parameters_, &state_}) {
    for (auto& [name, tensor] : *named) {
      const std::string first = name;
      for (int i = 2; !taken.insert(name).second; ++i) name = concat(first, "_", i);
    }
  }
}

NamedTensors Model::all_tensors() const {
  NamedTensors all = parameters_;
  all.insert(all.end(), state_.begin(), state_.end());
  return all;
}

c10::Device Model::device() const {
  return parameters_.empty() ? c10::Device(c10::kCPU) : parameters_.front().second.device();
}

// In every step, so it only compares: less than a nanosecond a parameter.
bool Model::refresh() {
  bool same = true;
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    const int64_t look = optimizers_[i]->look();
    same = same && looks_[i] == look;
    looks_[i] = look;
  }
  const bool let_go = holders_.let_go();
  if (same && !let_go && !has_other_parts()) return false;
  find_tensors();
  return true;
}

const std::vector<size_t>& Model::optimizers_of(const at::Tensor& parameter) const {
  return trained_by_.at(parameter.unsafeGetTensorImpl()).optimizers;
}

size_t Model::number_of(const at::Tensor& parameter, size_t optimizer) const {
  const TrainedBy& by = trained_by_.at(parameter.unsafeGetTensorImpl());
  const auto found = std::find(by.optimizers.begin(), by.optimizers.end(), optimizer);
  EPL_ASSERT(found != by.optimizers.end(), "a parameter that another optimizer has");
  return by.numbers[static_cast<size_t>(found - by.optimizers.begin())];
}

std::vector<std::string> Model::names_of(size_t optimizer) const {
  std::vector<std::string> names(optimizers_[optimizer]->listed().size());
  for (const auto& [name, tensor] : parameters_) {
    const auto& having = optimizers_of(tensor);
    if (std::find(having.begin(), having.end(), optimizer) == having.end()) continue;
    names[number_of(tensor, optimizer)] = name;
  }
  return names;
}

std::vector<at::Tensor> Model::states_of(const at::Tensor& parameter) const {
  std::vector<at::Tensor> tensors;
  for (size_t i : optimizers_of(parameter)) {
    const auto of_one = state_tensors(*optimizers_[i], number_of(parameter, i));
    tensors.insert(tensors.end(), of_one.begin(), of_one.end());
  }
  return tensors;
}

void Model::append_modes(std::vector<int64_t>& key) const {
  append_own_modes(key);
  KeyBits bits(key);
  for (const auto* tensors : {&parameters_, &state_}) {
    for (const auto& [name, tensor] : *tensors) bits.append(tensor.requires_grad());
  }
  bits.finish();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    append_hooks(parameters_[i].second, static_cast<int64_t>(i), key);
  }
}

void Model::check_has_parameters() const {
  EPL_CHECK(!parameters_.empty(),
            optimizers_.size() == 1
                ? "the optimizer has no parameters"
                : concat("the ", optimizers_.size(), " optimizers have no parameters"),
            "epl::Trainer",
            "register the modules and parameters before the optimizer is made of "
            "net->parameters()");
}

namespace {

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kSome = 3;
  const std::vector<std::string> first(names.begin(),
                                       names.begin() + std::min(kSome, names.size()));
  const std::string more =
      names.size() > kSome ? concat(" and ", names.size() - kSome, " more") : "";
  return "`" + join(first, "`, `") + "`" + more;
}

std::string count(size_t number, const std::string& what) {
  return concat(number, " ", what, number == 1 ? "" : "s");
}

// Parameters of the modules that the step reads and that could be trained.
std::vector<std::string> trainable_of_no_optimizer(const Graph& graph) {
  std::set<ValueId> read;
  for (const auto& node : graph.nodes) {
    for (const auto& argument : node.arguments) {
      read.insert(argument.values.begin(), argument.values.end());
    }
  }
  std::vector<std::string> names;
  for (const auto& leaf : graph.leaves) {
    if (leaf.kind != Leaf::Kind::kState || read.count(leaf.value) == 0) continue;
    if (leaf.tensor.is_leaf() && leaf.tensor.requires_grad()) names.push_back(leaf.name);
  }
  return names;
}

}  // namespace

// Later a step may find nothing to be trained in its batch and return a loss of its own.
void Model::check_trained(const Graph& recorded) {
  const std::vector<std::string> others = trainable_of_no_optimizer(recorded);
  trains_ = trains_ || !recorded.gradients.empty();
  EPL_CHECK(trains_ || others.empty(),
            concat("the loss depends on none of the ", count(listed_, "parameter"),
                   " of the optimizers, but on ", others.size(),
                   " that no optimizer of the trainer has: ", some_of(others)),
            "epl::Trainer",
            "an optimizer that is made of the parameters of the network that the step uses, after "
            "that network");
  if (others.empty() || told_of_untrained_) return;
  told_of_untrained_ = true;
  std::clog << "epl: the step reads " << count(others.size(), "parameter")
            << " that could be trained but that no optimizer of the trainer has: "
            << some_of(others) << "; as in the plain loop "
            << (others.size() == 1 ? "it stays" : "they stay") << "\n";
}

}  // namespace epl

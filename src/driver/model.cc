#include "driver/model.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "base/check.h"
#include "base/text.h"

namespace epl {
namespace {

std::string path(const NamedModule& module, const std::string& name) {
  return module.name.empty() ? name : module.name + "." + name;
}

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

Model::Model(std::vector<NamedModule> modules, OptimizerList optimizers)
    : modules_(std::move(modules)), optimizers_(std::move(optimizers)) {
  EPL_CHECK(!optimizers_.empty(), "a trainer without an optimizer cannot train", "epl::Trainer");
  for (const auto& entry : modules_) {
    EPL_CHECK(entry.module != nullptr, concat("the module \"", entry.name, "\" is null"),
              "epl::Trainer", "make the module before the trainer");
  }
  list_modules();
  for (auto& optimizer : optimizers_) updates_.push_back(make_update(optimizer.get()));
  find_parameters();
  find_state();
  watch_holders();
}

void Model::watch_holders() {
  std::vector<at::Tensor> tensors;
  for (const auto* named : {&parameters_, &state_}) {
    for (const auto& [name, tensor] : *named) tensors.push_back(tensor);
  }
  holders_.watch(std::move(tensors), all_modules_);
}

void Model::list_modules() {
  all_modules_.clear();
  options_ = ModuleOptions();
  for (const auto& entry : modules_) {
    // modules() with itself needs a module that a shared_ptr owns.
    all_modules_.push_back(entry.module);
    for (auto& module : entry.module->modules(/*include_self=*/false)) {
      all_modules_.push_back(module);
    }
  }
  children_.clear();
  for (const auto& module : all_modules_) {
    options_.add(*module);
    for (const auto& child : module->children()) children_.push_back(child.get());
  }
}

// In every step as well: some 15 nanoseconds a module.
bool Model::has_other_modules() const {
  size_t next = 0;
  for (const auto& module : all_modules_) {
    for (const auto& child : module->children()) {
      if (next == children_.size() || children_[next] != child.get()) return true;
      ++next;
    }
  }
  return next != children_.size();
}

void Model::find_parameters() {
  listed_.clear();
  listed_of_.clear();
  std::map<c10::TensorImpl*, std::string> names;
  for (const auto& entry : modules_) {
    for (const auto& item : entry.module->named_parameters()) {
      names.emplace(item.value().unsafeGetTensorImpl(), path(entry, item.key()));
    }
  }
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    size_t position = 0;
    for (const auto& group : optimizers_[i].get().param_groups()) {
      for (const auto& parameter : group.params()) {
        const auto name = names.find(parameter.unsafeGetTensorImpl());
        const std::string text =
            name != names.end() ? name->second : concat("optimizer", i, ".parameter", position);
        ++position;
        listed_.push_back(parameter.unsafeGetTensorImpl());
        auto& optimizers = optimizers_of_[parameter.unsafeGetTensorImpl()];
        if (optimizers.empty()) parameters_.emplace_back(text, parameter);
        if (optimizers.empty() || optimizers.back() != i) optimizers.push_back(i);
      }
    }
    listed_of_.push_back(position);
  }
}

void Model::find_state() {
  std::set<c10::TensorImpl*> seen;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || trains(tensor)) return;
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) state_.emplace_back(name, tensor);
  };
  for (const auto& entry : modules_) {
    for (const auto& item : entry.module->named_parameters()) {
      add(path(entry, item.key()), item.value());
    }
    for (const auto& item : entry.module->named_buffers()) {
      add(path(entry, item.key()), item.value());
    }
  }
}

c10::Device Model::device() const {
  return parameters_.empty() ? c10::Device(c10::kCPU) : parameters_.front().second.device();
}

// In every step, so it only compares: less than a nanosecond a parameter.
bool Model::refresh() {
  bool same = true;
  size_t next = 0;
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    const size_t begin = next;
    for (const auto& group : optimizers_[i].get().param_groups()) {
      for (const auto& parameter : group.params()) {
        same = same && next < listed_.size() && listed_[next] == parameter.unsafeGetTensorImpl();
        ++next;
      }
    }
    same = same && next - begin == listed_of_[i];
  }
  const bool let_go = holders_.let_go();
  if (same && !let_go && !has_other_modules()) return false;
  parameters_.clear();
  state_.clear();
  optimizers_of_.clear();
  list_modules();
  find_parameters();
  find_state();
  watch_holders();
  return true;
}

const std::vector<size_t>& Model::optimizers_of(const at::Tensor& parameter) const {
  return optimizers_of_.at(parameter.unsafeGetTensorImpl());
}

void Model::append_modes(std::vector<int64_t>& key) const {
  int64_t bits = 0;
  int count = 0;
  const auto append = [&](bool bit) {
    bits = bits * 2 + static_cast<int64_t>(bit);
    if (++count == 62) {
      key.push_back(bits);
      bits = count = 0;
    }
  };
  for (const auto& module : all_modules_) append(module->is_training());
  for (const auto* tensors : {&parameters_, &state_}) {
    for (const auto& [name, tensor] : *tensors) append(tensor.requires_grad());
  }
  key.push_back(bits);
  options_.append_to(key);
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
            concat("the loss depends on none of the ", count(listed_.size(), "parameter"),
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

Model::EvalMode::EvalMode(const Model& model) {
  for (const auto& module : model.all_modules_) {
    if (module->is_training()) were_training_.push_back(module.get());
  }
  for (const auto& entry : model.modules_) entry.module->eval();
}

Model::EvalMode::~EvalMode() {
  // train(true) recurses; a module that was in eval mode below one that trained must stay so. The
  // order of modules() is parents first, so children are set after their parents.
  std::set<torch::nn::Module*> trained(were_training_.begin(), were_training_.end());
  for (auto* module : were_training_) {
    module->train(true);
    for (const auto& child : module->modules(/*include_self=*/false)) {
      if (trained.count(child.get()) == 0) child->train(false);
    }
  }
}

}  // namespace epl

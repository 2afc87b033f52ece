#include "driver/model.h"

#include <map>
#include <set>

#include "base/check.h"

namespace epl {
namespace {

std::string path(const NamedModule& module, const std::string& name) {
  return module.name.empty() ? name : module.name + "." + name;
}

}  // namespace

Model::Model(std::vector<NamedModule> modules, OptimizerList optimizers)
    : modules_(std::move(modules)), optimizers_(std::move(optimizers)) {
  EPL_CHECK(!optimizers_.empty(), "a trainer without an optimizer cannot train", "epl::Trainer");
  for (const auto& entry : modules_) {
    EPL_CHECK(entry.module != nullptr, concat("the module \"", entry.name, "\" is null"),
              "epl::Trainer", "make the module before the trainer");
    // modules() with itself needs a module that a shared_ptr owns.
    all_modules_.push_back(entry.module);
    for (auto& module : entry.module->modules(/*include_self=*/false)) {
      all_modules_.push_back(module);
    }
  }
  for (auto& optimizer : optimizers_) updates_.push_back(make_update(optimizer.get()));
  find_parameters();
  find_state();
}

void Model::find_parameters() {
  listed_ = count_parameters();
  std::map<c10::TensorImpl*, std::string> names;
  for (const auto& entry : modules_) {
    for (const auto& item : entry.module->named_parameters()) {
      names.emplace(item.value().unsafeGetTensorImpl(), path(entry, item.key()));
    }
  }
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    int position = 0;
    for (const auto& group : optimizers_[i].get().param_groups()) {
      for (const auto& parameter : group.params()) {
        const auto name = names.find(parameter.unsafeGetTensorImpl());
        const std::string text =
            name != names.end() ? name->second : concat("optimizer", i, ".parameter", position);
        ++position;
        auto& optimizers = optimizers_of_[parameter.unsafeGetTensorImpl()];
        if (optimizers.empty()) parameters_.emplace_back(text, parameter);
        if (optimizers.empty() || optimizers.back() != i) optimizers.push_back(i);
      }
    }
  }
}

void Model::find_state() {
  std::set<c10::TensorImpl*> seen;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || optimizers_of_.count(tensor.unsafeGetTensorImpl()) != 0) return;
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

size_t Model::count_parameters() const {
  size_t count = 0;
  for (const auto& optimizer : optimizers_) {
    for (const auto& group : optimizer.get().param_groups()) count += group.params().size();
  }
  return count;
}

bool Model::refresh() {
  if (count_parameters() == listed_) return false;
  parameters_.clear();
  state_.clear();
  optimizers_of_.clear();
  find_parameters();
  find_state();
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
  for (const auto& [name, tensor] : parameters_) append(tensor.requires_grad());
  key.push_back(bits);
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

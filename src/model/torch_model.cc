#include "model/torch_model.h"

#include <set>

#include "base/check.h"
#include "base/text.h"
#include "model/torch_optimizer.h"

namespace epl {
namespace {

std::string path(const NamedModule& module, const std::string& name) {
  return module.name.empty() ? name : module.name + "." + name;
}

Model::Optimizers views_of(const OptimizerList& optimizers) {
  Model::Optimizers views;
  for (const auto& optimizer : optimizers) {
    views.push_back(std::make_unique<TorchOptimizer>(optimizer.get()));
  }
  return views;
}

}  // namespace

TorchModel::TorchModel(std::vector<NamedModule> modules, const OptimizerList& optimizers)
    : Model(views_of(optimizers)), modules_(std::move(modules)), optimizers_(optimizers) {
  for (const auto& entry : modules_) {
    EPL_CHECK(entry.module != nullptr, concat("the module \"", entry.name, "\" is null"),
              "epl::Trainer", "make the module before the trainer");
  }
  find_tensors();
}

void TorchModel::list_parts() {
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
bool TorchModel::has_other_parts() const {
  size_t next = 0;
  for (const auto& module : all_modules_) {
    for (const auto& child : module->children()) {
      if (next == children_.size() || children_[next] != child.get()) return true;
      ++next;
    }
  }
  return next != children_.size();
}

NamedTensors TorchModel::named_parameters() const {
  NamedTensors named;
  for (const auto& entry : modules_) {
    for (const auto& item : entry.module->named_parameters()) {
      named.emplace_back(path(entry, item.key()), item.value());
    }
  }
  return named;
}

NamedTensors TorchModel::named_buffers() const {
  NamedTensors named;
  for (const auto& entry : modules_) {
    for (const auto& item : entry.module->named_buffers()) {
      named.emplace_back(path(entry, item.key()), item.value());
    }
  }
  return named;
}

std::vector<std::shared_ptr<const void>> TorchModel::parts() const {
  return {all_modules_.begin(), all_modules_.end()};
}

void TorchModel::append_own_modes(std::vector<int64_t>& key) const {
  KeyBits bits(key);
  for (const auto& module : all_modules_) bits.append(module->is_training());
  bits.finish();
  options_.append_to(key);
}

// train(true) recurses; a module that was in eval mode below one that trained must stay so. The
// order of modules() is parents first, so children are set after their parents.
std::function<void()> TorchModel::begin_eval() const {
  std::vector<torch::nn::Module*> were_training;
  for (const auto& module : all_modules_) {
    if (module->is_training()) were_training.push_back(module.get());
  }
  for (const auto& entry : modules_) entry.module->eval();
  return [were_training] {
    const std::set<torch::nn::Module*> trained(were_training.begin(), were_training.end());
    for (auto* module : were_training) {
      module->train(true);
      for (const auto& child : module->modules(/*include_self=*/false)) {
        if (trained.count(child.get()) == 0) child->train(false);
      }
    }
  };
}

}  // namespace epl

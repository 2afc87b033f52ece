// What a file has of LibTorch's modules and optimizers.
#include <torch/serialize.h>

#include <set>
#include <utility>

#include "base/text.h"
#include "model/torch_model.h"
#include "model/torch_optimizer.h"

namespace epl {
namespace {

std::string module_key(size_t index) { return "module" + std::to_string(index); }
std::string optimizer_key(size_t index) { return "optimizer" + std::to_string(index); }
std::string tensor_key(size_t index) { return "tensor" + std::to_string(index); }

}  // namespace

// What the optimizers update and no module holds.
std::vector<at::Tensor> TorchModel::bare_parameters() const {
  std::set<c10::TensorImpl*> of_modules;
  for (const auto& entry : modules_) {
    for (const auto& parameter : entry.module->parameters()) {
      of_modules.insert(parameter.unsafeGetTensorImpl());
    }
  }
  std::vector<at::Tensor> bare;
  for (const auto& [name, parameter] : parameters()) {
    if (of_modules.count(parameter.unsafeGetTensorImpl()) == 0) bare.push_back(parameter);
  }
  return bare;
}

class TorchModel::Before {
 public:
  explicit Before(const TorchModel& model) : model_(model) {
    for (const auto* tensors : {&model.parameters(), &model.state()}) {
      for (const auto& [name, tensor] : *tensors) {
        tensors_.push_back({name, tensor, tensor.detach()});
      }
    }
    // Loading adds to the states that are there: those of a younger training must not stay.
    for (const auto& optimizer : model.optimizers_) {
      states_.push_back(std::exchange(optimizer.get().state(), OptimizerStates()));
    }
  }

  // For an optimizer of the user's own that has nothing to load.
  void keep_state(size_t optimizer) {
    model_.optimizers_[optimizer].get().state() = std::move(states_[optimizer]);
  }

  void check_types() const {
    for (const auto& [name, tensor, old] : tensors_) {
      if (tensor.sizes() == old.sizes() && tensor.dtype() == old.dtype()) continue;
      throw std::runtime_error(concat("`", name, "` is ", tensor.dtype(), tensor.sizes(),
                                      " in the file and ", old.dtype(), old.sizes(),
                                      " in the model"));
    }
  }

  void restore() {
    for (auto& [name, tensor, old] : tensors_) tensor.set_data(old);
    for (size_t i = 0; i < states_.size(); ++i) keep_state(i);
  }

 private:
  struct Entry {
    std::string name;
    at::Tensor tensor;
    at::Tensor old;
  };

  const TorchModel& model_;
  std::vector<Entry> tensors_;
  std::vector<OptimizerStates> states_;
};

void TorchModel::save(torch::serialize::OutputArchive& archive) const {
  for (size_t i = 0; i < modules_.size(); ++i) {
    torch::serialize::OutputArchive part;
    modules_[i].module->save(part);
    archive.write(module_key(i), part);
  }
  const std::vector<at::Tensor> bare = bare_parameters();
  for (size_t i = 0; i < bare.size(); ++i) archive.write(tensor_key(i), bare[i]);
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    torch::serialize::OutputArchive part;
    optimizers_[i].get().save(part);
    archive.write(optimizer_key(i), part);
  }
}

void TorchModel::load_parts(torch::serialize::InputArchive& archive, Before& before) const {
  for (size_t i = 0; i < modules_.size(); ++i) {
    torch::serialize::InputArchive part;
    archive.read(module_key(i), part);
    modules_[i].module->load(part);
  }
  std::vector<at::Tensor> bare = bare_parameters();
  for (size_t i = 0; i < bare.size(); ++i) archive.read(tensor_key(i), bare[i]);
  for (size_t i = 0; i < optimizers_.size(); ++i) {
    torch::serialize::InputArchive part;
    archive.read(optimizer_key(i), part);
    if (part.keys().empty()) before.keep_state(i);
    optimizers_[i].get().load(part);
  }
}

void TorchModel::load(torch::serialize::InputArchive& archive) {
  const torch::NoGradGuard no_grad;
  Before before(*this);
  try {
    load_parts(archive, before);
    before.check_types();
  } catch (...) {
    before.restore();
    throw;
  }
}

}  // namespace epl

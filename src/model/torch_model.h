// LibTorch's modules and optimizers as a Model.
#pragma once

#include <epl/modules.h>

#include <memory>
#include <vector>

#include "model/model.h"
#include "model/module_options.h"

namespace epl {

class TorchModel final : public Model {
 public:
  TorchModel(std::vector<NamedModule> modules, const OptimizerList& optimizers);

  // A LibTorch archive with an entry for each module, each parameter that only an optimizer holds
  // and each optimizer.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  NamedTensors named_parameters() const override;
  NamedTensors named_buffers() const override;
  bool has_other_parts() const override;
  void list_parts() override;
  std::vector<std::shared_ptr<const void>> parts() const override;
  void append_own_modes(std::vector<int64_t>& key) const override;
  std::function<void()> begin_eval() const override;

  class Before;  // what a model holds, to be put back where a file turns out not to fit
  void load_parts(torch::serialize::InputArchive& archive, Before& before) const;
  std::vector<at::Tensor> bare_parameters() const;

  const std::vector<NamedModule> modules_;
  const OptimizerList optimizers_;
  std::vector<std::shared_ptr<torch::nn::Module>> all_modules_;  // shared with their parents
  std::vector<const torch::nn::Module*> children_;               // of all_modules_, in order
  ModuleOptions options_;
};

}  // namespace epl

// The user's modules and optimizers as the driver sees them: named tensors, modes, updates.
#pragma once

#include <epl/trainer.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/capture.h"
#include "runtime/update.h"

namespace epl {

class Model {
 public:
  Model(std::vector<NamedModule> modules, OptimizerList optimizers);

  // Every tensor once: those that an optimizer updates, in the order of the optimizers' groups, and
  // the rest (buffers, parameters of no optimizer).
  const NamedTensors& parameters() const { return parameters_; }
  const NamedTensors& state() const { return state_; }

  const std::vector<NamedModule>& modules() const { return modules_; }
  const OptimizerList& optimizers() const { return optimizers_; }

  c10::Device device() const;  // of the parameters; the CPU where there are none

  // The optimizers that update a tensor of parameters(), in order; mostly one.
  const std::vector<size_t>& optimizers_of(const at::Tensor& parameter) const;
  Update& update(size_t optimizer) { return *updates_[optimizer]; }

  // Looks for parameters that were added to an optimizer since. Returns whether there are any.
  bool refresh();

  // Modes that a recording depends on: which modules train, which parameters need gradients.
  void append_modes(std::vector<int64_t>& key) const;

  // Puts all modules into eval mode while it stands.
  class EvalMode {
   public:
    explicit EvalMode(const Model& model);
    ~EvalMode();
    EvalMode(const EvalMode&) = delete;
    EvalMode& operator=(const EvalMode&) = delete;

   private:
    std::vector<torch::nn::Module*> were_training_;
  };

 private:
  size_t count_parameters() const;
  void find_parameters();
  void find_state();

  std::vector<NamedModule> modules_;
  OptimizerList optimizers_;
  std::vector<std::unique_ptr<Update>> updates_;
  std::vector<std::shared_ptr<torch::nn::Module>> all_modules_;  // shared with their parents
  size_t listed_ = 0;  // parameters in the optimizers' groups when they were last looked through
  NamedTensors parameters_;
  NamedTensors state_;
  std::unordered_map<c10::TensorImpl*, std::vector<size_t>> optimizers_of_;
};

}  // namespace epl

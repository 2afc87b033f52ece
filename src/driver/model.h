// The user's modules and optimizers as the driver sees them: named tensors, modes, updates.
#pragma once

#include <epl/trainer.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/capture.h"
#include "driver/holders.h"
#include "driver/module_options.h"
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
  bool trains(const at::Tensor& tensor) const {  // whether an optimizer has it
    return optimizers_of_.count(tensor.unsafeGetTensorImpl()) != 0;
  }
  Update& update(size_t optimizer) { return *updates_[optimizer]; }

  // Looks whether the optimizers' groups hold other parameters than they did (some were added or
  // exchanged, or moved from one optimizer to another), whether modules were added or exchanged,
  // and whether the program let go of a tensor or module that it held. If so everything is found
  // anew.
  bool refresh();
  Holders& holders() { return holders_; }

  // Modes that a recording depends on: which modules train and with which options, which parameters
  // need gradients, and which hooks of theirs see them.
  void append_modes(std::vector<int64_t>& key) const;

  // Throws epl::Error where there is nothing to be trained: before a recording where the optimizers
  // have no parameters, after the first one where the step gives none of them a gradient but reads
  // parameters of the modules that no optimizer has: the optimizer is that of another network. Says
  // once which parameters no optimizer has.
  void check_has_parameters() const;
  void check_trained(const Graph& recorded);

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
  void list_modules();
  void find_parameters();
  void find_state();
  bool has_other_modules() const;
  void watch_holders();

  std::vector<NamedModule> modules_;
  OptimizerList optimizers_;
  std::vector<std::unique_ptr<Update>> updates_;
  std::vector<std::shared_ptr<torch::nn::Module>> all_modules_;  // shared with their parents
  std::vector<const torch::nn::Module*> children_;               // of all_modules_, in order
  Holders holders_;
  ModuleOptions options_;
  // The parameters in the optimizers' groups when they were last looked through, and how many each
  // optimizer has. They live as long as parameters_ holds them.
  std::vector<c10::TensorImpl*> listed_;
  std::vector<size_t> listed_of_;
  bool trains_ = false;  // some recorded step gave a parameter a gradient
  bool told_of_untrained_ = false;
  NamedTensors parameters_;
  NamedTensors state_;
  std::unordered_map<c10::TensorImpl*, std::vector<size_t>> optimizers_of_;
};

}  // namespace epl

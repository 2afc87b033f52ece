// A model as the driver sees it: named tensors by kind, modes, optimizers by rule.
//
// What a front end implements to have its models trained. LibTorch's modules and optimizers are the
// first one (torch_model.h); nothing outside of model/torch_*.{h,cc} says torch::nn or
// torch::optim. An implementation answers for its own objects (the second half of the class) and
// needs no copies of them in LibTorch's terms:
//
//   class PlainModel final : public Model {
//     NamedTensors named_parameters() const override { return {{"weight", weight_}}; }
//     ...
//   };
//   Trainer trainer = Trainer::of(std::make_unique<Trainer::Impl>(
//       std::make_unique<PlainModel>(), step, TrainerOptions()));
//
// Tensors are known by name to whatever prints, saves or compares; within a step by reference.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/capture.h"
#include "model/holders.h"
#include "runtime/update.h"
#include "state/model_optimizer.h"

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace epl {

// Switches as bits of a key's numbers.
class KeyBits {
 public:
  explicit KeyBits(std::vector<int64_t>& key) : key_(key) {}
  void append(bool bit) {
    bits_ = bits_ * 2 + static_cast<int64_t>(bit);
    if (++count_ < 62) return;
    finish();
  }
  void finish() {
    key_.push_back(bits_);
    bits_ = count_ = 0;
  }

 private:
  std::vector<int64_t>& key_;
  int64_t bits_ = 0;
  int count_ = 0;
};

class Model {
 public:
  using Optimizers = std::vector<std::unique_ptr<ModelOptimizer>>;

  explicit Model(Optimizers optimizers);
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Every tensor once: those that an optimizer updates, in the order of the optimizers' groups, and
  // the rest (buffers, parameters of no optimizer). No two have one name: of two modules with equal
  // names the second one's tensors get a number.
  const NamedTensors& parameters() const { return parameters_; }
  const NamedTensors& state() const { return state_; }
  NamedTensors all_tensors() const;  // parameters(), then state()
  // Of state(), what is a parameter, but of no optimizer.
  NamedTensors untrained() const {
    return {state_.begin(), state_.begin() + static_cast<std::ptrdiff_t>(untrained_)};
  }

  const Optimizers& optimizers() const { return optimizers_; }

  c10::Device device() const;  // of the parameters; the CPU where there are none

  // The optimizers that update a tensor of parameters(), in order; mostly one.
  const std::vector<size_t>& optimizers_of(const at::Tensor& parameter) const;
  bool trains(const at::Tensor& tensor) const {  // whether an optimizer has it
    return trained_by_.count(tensor.unsafeGetTensorImpl()) != 0;
  }
  Update& update(size_t optimizer) { return *updates_[optimizer]; }

  // The states of a parameter that lie as it does: moments, momentum.
  std::vector<at::Tensor> states_of(const at::Tensor& parameter) const;
  // Its number in the list of an optimizer that has it.
  size_t number_of(const at::Tensor& parameter, size_t optimizer) const;
  // Of all that an optimizer lists, by number; empty for what is listed once more.
  std::vector<std::string> names_of(size_t optimizer) const;

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
  // parameters of the model that no optimizer has: the optimizer is that of another network. Says
  // once which parameters no optimizer has.
  void check_has_parameters() const;
  void check_trained(const Graph& recorded);

  // Puts all of the model into eval mode while it stands.
  class EvalMode {
   public:
    explicit EvalMode(const Model& model) : set_back_(model.begin_eval()) {}
    ~EvalMode() { set_back_(); }
    EvalMode(const EvalMode&) = delete;
    EvalMode& operator=(const EvalMode&) = delete;

   private:
    std::function<void()> set_back_;
  };

  // --- what a front end says of its model
  // ---------------------------------------------------------

  // All that a file has of the model and its optimizers. Where what is read does not fit, load()
  // throws and leaves the model as it was.
  virtual void save(torch::serialize::OutputArchive& archive) const = 0;
  virtual void load(torch::serialize::InputArchive& archive) = 0;

 protected:
  // Parameters and buffers with their names. One that comes under several names has the first.
  virtual NamedTensors named_parameters() const = 0;
  virtual NamedTensors named_buffers() const = 0;

  // Whether there are other modules than when list_parts() was last called. In every step.
  virtual bool has_other_parts() const { return false; }
  virtual void list_parts() {}
  // What the program may hold besides tensors and replace: counted by Holders.
  virtual std::vector<std::shared_ptr<const void>> parts() const { return {}; }

  virtual void append_own_modes(std::vector<int64_t>& key) const = 0;
  // Gives what sets the modes back.
  virtual std::function<void()> begin_eval() const = 0;

  // To be called at the end of an implementation's constructor.
  void find_tensors();

 private:
  void find_parameters();
  void find_state();
  void tell_names_apart();

  struct TrainedBy {
    std::vector<size_t> optimizers;  // in order
    std::vector<size_t> numbers;     // in the list of each; the first where it is listed twice
  };

  const Optimizers optimizers_;
  std::vector<std::unique_ptr<Update>> updates_;
  Holders holders_;
  std::vector<int64_t> looks_;  // by optimizer: what the last look() answered
  size_t listed_ = 0;           // parameters in the groups of all optimizers
  bool trains_ = false;         // some recorded step gave a parameter a gradient
  bool told_of_untrained_ = false;
  NamedTensors parameters_;
  NamedTensors state_;
  size_t untrained_ = 0;  // of state_, the first so many
  std::unordered_map<c10::TensorImpl*, TrainedBy> trained_by_;
};

}  // namespace epl

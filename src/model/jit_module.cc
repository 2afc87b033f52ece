#include <epl/jit.h>
#include <torch/csrc/jit/api/module.h>

#include <optional>
#include <utility>

namespace epl {
namespace {

class JitModule final : public torch::nn::Module {
 public:
  explicit JitModule(torch::jit::Module module)
      : module_(std::move(module)), training_(find_training(module_)) {
    for (const auto& entry : module_.named_parameters(/*recurse=*/false)) {
      register_parameter(entry.name, entry.value, entry.value.requires_grad());
    }
    for (const auto& entry : module_.named_buffers(/*recurse=*/false)) {
      register_buffer(entry.name, entry.value);
    }
    for (const auto& entry : module_.named_children()) {
      register_module(entry.name, std::make_shared<JitModule>(entry.value));
    }
  }

  // Read in every step.
  bool is_training() const noexcept override {
    return training_ ? module_._ivalue()->getSlot(*training_).toBool() : Module::is_training();
  }

  void train(bool on) override {
    Module::train(on);  // the children as well
    if (training_) module_._ivalue()->setSlot(*training_, on);
  }

 private:
  static std::optional<size_t> find_training(const torch::jit::Module& module) {
    const auto slot = module.type()->findAttributeSlot("training");
    const bool flag = slot && module._ivalue()->getSlot(*slot).isBool();
    return flag ? std::optional<size_t>(*slot) : std::nullopt;
  }

  torch::jit::Module module_;
  const std::optional<size_t> training_;
};

}  // namespace

std::shared_ptr<torch::nn::Module> module_of(const torch::jit::Module& module) {
  return std::make_shared<JitModule>(module);
}

}  // namespace epl

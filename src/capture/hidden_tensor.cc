// The hook in LibTorch's dispatcher: a fallback on a key that no tensor of LibTorch's own has and
// that comes before all others, autograd among them. A tensor that has it is refused by every
// operator.
#include "capture/hidden_tensor.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <map>

#include "base/check.h"
#include "base/mutex.h"

namespace epl {
namespace {

constexpr auto kHiddenKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

// Names of what is hidden, for messages: a fallback is given operator and arguments, and nothing
// of whoever hid them.
class HiddenNames {
 public:
  static HiddenNames& all() {
    static HiddenNames names;  // one dispatcher for the process, and so is this
    return names;
  }

  void add(const c10::TensorImpl* tensor, const std::string& name) EPL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    names_[tensor] = name;
  }
  void remove(const c10::TensorImpl* tensor) EPL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    names_.erase(tensor);
  }
  // Of a copy that was made of a hidden tensor nothing is known.
  std::string find(const c10::TensorImpl* tensor) EPL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto found = names_.find(tensor);
    return found == names_.end() ? "a parameter" : concat("`", found->second, "`");
  }

 private:
  Mutex mutex_;
  std::map<const c10::TensorImpl*, std::string> names_ EPL_GUARDED_BY(mutex_);
};

const c10::TensorImpl* hidden_among(const c10::IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() && is_hidden(tensor) ? tensor.unsafeGetTensorImpl() : nullptr;
  }
  if (!value.isList()) return nullptr;
  for (const c10::IValue& each : value.toListRef()) {
    if (const c10::TensorImpl* found = hidden_among(each)) return found;
  }
  return nullptr;
}

void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const c10::TensorImpl* found = nullptr;
  const size_t count = op.schema().arguments().size();
  for (size_t i = 0; i < count && found == nullptr; ++i) {
    found = hidden_among((*stack)[stack->size() - count + i]);
  }
  throw Error(
      concat("workers keep parts of ", HiddenNames::all().find(found), " between steps, and ",
             c10::toString(op.operator_name()), " would use all of it"),
      "zero.level = \"v2\"",
      "trainer.gather_parameters() on all workers before, which brings all parameters "
      "until the next step");
}

// What a hidden tensor is for a while: all that one can be asked for, and no storage.
class WithoutStorage final : public c10::TensorImpl {
 public:
  explicit WithoutStorage(const at::Tensor& like)
      : TensorImpl(like.key_set().add(kHiddenKey), like.dtype(), like.device()) {
    set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
    set_storage_access_should_throw();
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericWrapper, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>());
}

at::Tensor hide(const at::Tensor& tensor, const std::string& name) {
  EPL_ASSERT(!is_hidden(tensor), "a tensor is hidden once");
  c10::TensorImpl* const own = tensor.unsafeGetTensorImpl();
  at::Tensor shown(own->shallow_copy_and_detach(/*version_counter=*/c10::VariableVersion(0),
                                                /*allow_tensor_metadata_change=*/true));
  own->shallow_copy_from(c10::make_intrusive<WithoutStorage>(tensor));
  HiddenNames::all().add(own, name);
  return shown;
}

void show(const at::Tensor& tensor, const at::Tensor& shown) {
  c10::TensorImpl* const own = tensor.unsafeGetTensorImpl();
  own->shallow_copy_from(shown.getIntrusivePtr());
  HiddenNames::all().remove(own);
}

bool is_hidden(const at::Tensor& tensor) { return tensor.key_set().has(kHiddenKey); }

}  // namespace epl

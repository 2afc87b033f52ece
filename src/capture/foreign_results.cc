#include "capture/foreign_results.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace epl {

// LibTorch's callbacks are plain functions, and one may still run on another thread after it was
// removed: it finds those who listen here, or nobody.
struct ForeignResultsRegistry {
  std::mutex mutex;
  std::vector<ForeignResults*> listening;

  static ForeignResultsRegistry& get() {
    static auto* const registry = new ForeignResultsRegistry();  // threads may outlive main()
    return *registry;
  }

  void note(const at::RecordFunction& function) {
    const std::lock_guard<std::mutex> lock(mutex);
    for (ForeignResults* each : listening) {
      if (each->own_thread_ == std::this_thread::get_id()) continue;
      for (const auto& output : function.outputs()) note(*each, function.name(), output);
    }
  }

  static void note(ForeignResults& results, const char* op, const c10::IValue& output) {
    if (output.isTensorList()) {
      for (const auto& item : output.toListRef()) note(results, op, item);
    }
    if (!output.isTensor() || !output.toTensor().defined()) return;
    const at::Tensor& tensor = output.toTensor();
    if (tensor.layout() != c10::kStrided || !tensor.has_storage()) return;
    results.made_.emplace(tensor.storage().unsafeGetStorageImpl(),
                          ForeignResults::Made{tensor.storage().getWeakStorageImpl(), op});
  }
};

ForeignResults::ForeignResults() {
  auto& registry = ForeignResultsRegistry::get();
  {
    const std::lock_guard<std::mutex> lock(registry.mutex);
    registry.listening.push_back(this);
  }
  const auto nothing = [](const at::RecordFunction&) {
    return std::unique_ptr<at::ObserverContext>();
  };
  const auto note = [](const at::RecordFunction& function, at::ObserverContext*) {
    ForeignResultsRegistry::get().note(function);
  };
  callback_ = at::addGlobalCallback(at::RecordFunctionCallback(nothing, note)
                                        .scopes({at::RecordScope::FUNCTION})
                                        .needsOutputs(true));
}

ForeignResults::~ForeignResults() {
  at::removeCallback(callback_);
  auto& registry = ForeignResultsRegistry::get();
  const std::lock_guard<std::mutex> lock(registry.mutex);
  auto& listening = registry.listening;
  listening.erase(std::find(listening.begin(), listening.end(), this));
}

std::string ForeignResults::maker_of(const at::Tensor& tensor) const {
  const std::lock_guard<std::mutex> lock(ForeignResultsRegistry::get().mutex);
  if (tensor.layout() != c10::kStrided || !tensor.has_storage()) return "";
  const auto made = made_.find(tensor.storage().unsafeGetStorageImpl());
  return made == made_.end() ? "" : made->second.op;
}

}  // namespace epl

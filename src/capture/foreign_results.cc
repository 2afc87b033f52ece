#include "capture/foreign_results.h"

#include <ATen/record_function.h>

#include <map>
#include <memory>
#include <thread>

#include "base/mutex.h"

namespace epl {

// LibTorch's callbacks are plain functions, and one may still run on another thread after it was
// removed: it finds those who listen here, or nobody.
class ForeignResultsRegistry {
 public:
  static ForeignResultsRegistry& get() {
    static auto* const registry = new ForeignResultsRegistry();  // threads may outlive main()
    return *registry;
  }

  void add(const ForeignResults* results) {
    const MutexLock lock(mutex_);
    listening_[results];
  }

  void remove(const ForeignResults* results) {
    decltype(listening_)::node_type gone;  // let go without the lock
    const MutexLock lock(mutex_);
    gone = listening_.extract(results);
  }

  void note(const at::RecordFunction& function) {
    const MutexLock lock(mutex_);
    for (auto& [_, listener] : listening_) {
      if (listener.own_thread == std::this_thread::get_id()) continue;
      for (const auto& output : function.outputs()) note(listener, function.name(), output);
    }
  }

  std::string maker_of(const at::Tensor& tensor, const ForeignResults* results) {
    const MutexLock lock(mutex_);
    if (tensor.layout() != c10::kStrided || !tensor.has_storage()) return "";
    const auto& all = listening_.at(results).made;
    const auto made = all.find(tensor.storage().unsafeGetStorageImpl());
    return made == all.end() ? "" : made->second.op;
  }

 private:
  struct Made {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::string op;
  };
  struct Listener {
    const std::thread::id own_thread = std::this_thread::get_id();
    std::map<const c10::StorageImpl*, Made> made;
  };

  static void note(Listener& listener, const char* op, const c10::IValue& output) {
    if (output.isTensorList()) {
      for (const auto& item : output.toListRef()) note(listener, op, item);
    }
    if (!output.isTensor() || !output.toTensor().defined()) return;
    const at::Tensor& tensor = output.toTensor();
    if (tensor.layout() != c10::kStrided || !tensor.has_storage()) return;
    listener.made.emplace(tensor.storage().unsafeGetStorageImpl(),
                          Made{tensor.storage().getWeakStorageImpl(), op});
  }

  Mutex mutex_;
  std::map<const ForeignResults*, Listener> listening_ EPL_GUARDED_BY(mutex_);
};

ForeignResults::ForeignResults() {
  ForeignResultsRegistry::get().add(this);
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
  ForeignResultsRegistry::get().remove(this);
}

std::string ForeignResults::maker_of(const at::Tensor& tensor) const {
  return ForeignResultsRegistry::get().maker_of(tensor, this);
}

}  // namespace epl

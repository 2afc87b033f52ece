#include "capture/made_under_split.h"

#include <memory>
#include <vector>

#include "base/mutex.h"
#include "config/scopes.h"

namespace epl {
namespace {

struct Made {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  Strategy scope;
};

// All that is still alive, of all threads.
class Registry {
 public:
  void add(const c10::Storage& storage, const Strategy& scope) {
    const MutexLock lock(mutex_);
    if (made_.size() >= prune_at_) prune();
    c10::StorageImpl* const impl = storage.unsafeGetStorageImpl();
    for (const Made& made : made_) {
      if (made.storage._unsafe_get_target() == impl && !made.storage.expired()) return;
    }
    made_.push_back({c10::weak_intrusive_ptr<c10::StorageImpl>(
                         c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(impl)),
                     scope});
  }

  std::optional<Strategy> find(const c10::Storage& storage) {
    const MutexLock lock(mutex_);
    for (const Made& made : made_) {
      const bool same = made.storage._unsafe_get_target() == storage.unsafeGetStorageImpl();
      if (same && !made.storage.expired()) return made.scope;
    }
    return std::nullopt;
  }

 private:
  // An annotated model that is evaluated outside of a step makes values without end.
  void prune() EPL_REQUIRES(mutex_) {
    std::vector<Made> alive;
    for (Made& made : made_) {
      if (!made.storage.expired()) alive.push_back(std::move(made));
    }
    made_ = std::move(alive);
    prune_at_ = 2 * made_.size() + 64;
  }

  Mutex mutex_;
  std::vector<Made> made_ EPL_GUARDED_BY(mutex_);
  size_t prune_at_ EPL_GUARDED_BY(mutex_) = 64;
};

Registry& registry() {
  static auto* const registry = new Registry();  // tensors may outlive static objects
  return *registry;
}

thread_local CreationWatch* current_watch = nullptr;

std::shared_ptr<void> watch(const Strategy& scope) {
  return std::make_shared<CreationWatch>(scope);
}

const bool registered = (watch_creation_by(&watch), true);

}  // namespace

std::optional<Strategy> made_under_split(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return std::nullopt;
  return registry().find(tensor.storage());
}

std::map<ValueId, Strategy> leaves_under_split(const Graph& graph) {
  std::map<ValueId, Strategy> scopes;
  for (const auto& leaf : graph.leaves) {
    const bool parameter = leaf.kind == Leaf::Kind::kParameter;
    const auto scope = parameter ? made_under_split(leaf.tensor) : std::nullopt;
    if (scope) scopes.emplace(leaf.value, *scope);
  }
  return scopes;
}

CreationWatch::CreationWatch(const Strategy& scope)
    : scope_(scope), include_(c10::DispatchKey::Fake), outer_(current_watch) {
  current_watch = this;
}

CreationWatch::~CreationWatch() { current_watch = outer_; }

CreationWatch* CreationWatch::current() { return current_watch; }

void CreationWatch::note(const at::Tensor& made) const {
  if (made.defined() && made.has_storage()) registry().add(made.storage(), scope_);
}

}  // namespace epl

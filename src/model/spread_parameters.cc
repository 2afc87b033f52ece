#include "model/spread_parameters.h"

#include <ATen/Functions.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "capture/hidden_tensor.h"
#include "runtime/owner_gathering.h"

namespace epl {
namespace {

constexpr const char* kAskedBy = "zero.level = \"v2\"";

// Memory that the program has allocated itself it may read by pointers of its own.
bool is_of_libtorch(const c10::DataPtr& memory) {
  const c10::DeleterFnPtr deleter = memory.get_deleter();
  return deleter == c10::GetDefaultCPUAllocator()->raw_deleter() ||
         deleter == c10::GetCPUAllocator()->allocate(1).get_deleter();
}

bool fills_its_storage(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided && tensor.device().is_cpu() &&
         tensor.has_storage() && tensor.storage_offset() == 0 &&
         tensor.is_non_overlapping_and_dense() && tensor.numel() > 0 &&
         tensor.storage().nbytes() == tensor.nbytes();
}

bool is_held_alone(const at::Tensor& tensor) { return tensor.storage().use_count() == 1; }

bool can_be_taken_in(const at::Tensor& tensor) {
  return fills_its_storage(tensor) && is_held_alone(tensor) &&
         is_of_libtorch(tensor.storage().data_ptr());
}

[[noreturn]] void refuse_holder(const std::string& name) {
  throw Error(concat("workers are to keep parts of `", name,
                     "`, and another tensor (a view, a detach() or a result that was kept) holds "
                     "its memory, and would see what is missing"),
              kAskedBy, "let go of it before the step, clone() instead, or zero.level = \"v0\"");
}

// What this worker keeps of so many elements; nothing where it does not have the role.
Piece range_of(const Connections& connections, int role, int64_t elements) {
  const Connections::Sharers& sharers = connections.sharers_of(role);
  if (sharers.rank < 0) return {};
  return owned_elements({Owners::Kind::kRanges, 0}, elements, sharers.devices, sharers.rank);
}

HeldParameter held_by(const at::Tensor& memory, int role) {
  HeldParameter held;
  held.parameter = memory;
  held.roles = {role};
  held.owners = {Owners::Kind::kRanges, 0};
  return held;
}

}  // namespace

// --- taking in
// ------------------------------------------------------------------------------------------

std::set<std::string> SpreadParameters::may_be_spread(const Model& model) const {
  std::map<const c10::StorageImpl*, int> users;
  for (const auto& [name, tensor] : model.all_tensors()) {
    if (tensor.has_storage()) ++users[tensor.storage().unsafeGetStorageImpl()];
  }
  std::set<std::string> names;
  for (const auto& [name, parameter] : model.parameters()) {
    if (find(parameter) != nullptr) {
      names.insert(name);
      continue;
    }
    if (can_be_taken_in(parameter) && users[parameter.storage().unsafeGetStorageImpl()] == 1)
      names.insert(name);
  }
  return names;
}

void SpreadParameters::take_in(const Plan& plan, const Model& model) {
  forget_freed();
  std::set<std::string> names;
  for (const Program& program : plan.programs) {
    for (const PlanLeaf& leaf : program.leaves) {
      if (leaf.is_spread()) names.insert(leaf.name);
    }
  }
  for (const auto& [name, parameter] : model.parameters()) {
    c10::TensorImpl* const key = parameter.unsafeGetTensorImpl();
    if (names.count(name) == 0 || entries_.count(key) != 0) continue;
    Entry made{WeakTensor(parameter.getIntrusivePtr()), name, taken_in_++,
               std::make_shared<SpreadTensor>(parameter.detach(), account_)};
    parameter.storage().unsafeGetStorageImpl()->set_data_ptr(made.memory->memory());
    entries_.emplace(key, std::move(made));
  }
}

void SpreadParameters::forget_freed() {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    entry = entry->second.parameter.expired() ? entries_.erase(entry) : std::next(entry);
  }
}

// The program may have put other data in place of what was taken in, while it was whole. Gives
// whether that could be taken in as well.
bool SpreadParameters::follow(const at::Tensor& parameter, Entry& entry) {
  if (entry.memory->is_memory_of(parameter)) return true;
  if (!can_be_taken_in(parameter)) return false;
  entry.memory->take(parameter.detach());
  parameter.storage().unsafeGetStorageImpl()->set_data_ptr(entry.memory->memory());
  return true;
}

std::vector<std::string> SpreadParameters::let_go_of_held() {
  std::vector<std::string> names;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const at::Tensor parameter(entry->second.parameter.lock());
    const bool held = !entry->second.spread && parameter.defined() && !is_held_alone(parameter);
    if (held) names.push_back(entry->second.name);
    entry = held ? entries_.erase(entry) : std::next(entry);
  }
  if (!names.empty()) ++version_;
  return names;
}

// --- who has what
// ---------------------------------------------------------------------------------------

std::shared_ptr<SpreadTensor> SpreadParameters::find(const at::Tensor& parameter) const {
  const auto found = entries_.find(parameter.unsafeGetTensorImpl());
  const bool here = found != entries_.end() && !found->second.parameter.expired();
  return here ? found->second.memory : nullptr;
}

bool SpreadParameters::is_spread(const at::Tensor& parameter) const {
  const auto found = entries_.find(parameter.unsafeGetTensorImpl());
  return found != entries_.end() && found->second.spread;
}

int64_t SpreadParameters::count_spread() const {
  return std::count_if(entries_.begin(), entries_.end(),
                       [](const auto& each) { return each.second.spread; });
}

bool SpreadParameters::any_spread() const { return count_spread() > 0; }

const Placement& SpreadParameters::placement() const {
  for (const auto& [key, entry] : entries_) {
    if (entry.spread) return entry.placement;
  }
  EPL_ASSERT(false, "nothing is spread");
}

// --- steps
// ----------------------------------------------------------------------------------------------

void SpreadParameters::settle(BoundStep& step, Connections& connections) {
  const Plan& plan = step.plan();
  std::map<int, int> spread;  // leaf and role
  std::set<int> read;
  for (size_t role = 0; role < plan.roles(); ++role) {
    const auto& leaves = plan.program_of(role).leaves;
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (leaves[i].is_spread()) spread[static_cast<int>(i)] = static_cast<int>(role);
      if (leaves[i].slot != kNoSlot) read.insert(static_cast<int>(i));
    }
  }
  std::vector<Entry*> missing;
  for (int leaf : read) {
    const at::Tensor& tensor = step.user_tensor(leaf);
    if (!tensor.defined() || spread.count(leaf) != 0 || !is_spread(tensor)) continue;
    missing.push_back(&entries_.at(tensor.unsafeGetTensorImpl()));
  }
  make_whole(missing, connections);
  for (const auto& [leaf, role] : spread) {
    connections.make_fetch_route(role);
    keep_ranges(step, connections, role, leaf);
  }
  check_held_alone();
}

void SpreadParameters::keep_ranges(const BoundStep& step, const Connections& connections, int role,
                                   int leaf) {
  const at::Tensor& parameter = step.user_tensor(leaf);
  const auto found = entries_.find(parameter.unsafeGetTensorImpl());
  EPL_ASSERT(found != entries_.end(), "a parameter that is spread was taken in");
  Entry& entry = found->second;
  if (entry.spread) return;
  entry.memory->keep(range_of(connections, role, parameter.numel()));
  entry.memory->drop();
  entry.spread = true;
  entry.role = role;
  entry.placement = connections.placement();
}

void SpreadParameters::make_whole(Connections& connections) {
  std::vector<Entry*> all;
  for (auto& [key, entry] : entries_) {
    if (entry.spread) all.push_back(&entry);
  }
  make_whole(all, connections);
}

// Addresses have another order on each worker.
void SpreadParameters::make_whole(const std::vector<Entry*>& entries, Connections& connections) {
  std::map<int64_t, Entry*> sorted;
  for (Entry* each : entries) sorted.emplace(each->number, each);
  HeldParameters held;
  for (const auto& [number, entry] : sorted) {
    const int64_t elements = entry->memory->tensor().numel();
    EPL_CHECK(entry->placement == connections.placement() &&
                  entry->memory->kept() == range_of(connections, entry->role, elements),
              concat("workers keep parts of `", entry->name,
                     "` since an earlier step, whose devices lay otherwise"),
              kAskedBy,
              "trainer.gather_parameters() before epl::init() and before the trainer of that "
              "step is gone");
    connections.make_group({entry->role});
    entry->memory->bring();
    held.push_back(held_by(entry->memory->tensor(), entry->role));
  }
  if (held.empty()) return;
  gather_from_owners(connections, held,
                     [](const at::Tensor& memory) { return std::vector<at::Tensor>{memory}; });
  gathering_of(connections, held, Gather::kAll).run();
  for (const auto& [number, entry] : sorted) {
    entry->spread = false;
    const at::Tensor parameter(entry->parameter.lock());
    if (entry->shown.defined() && parameter.defined()) show(parameter, entry->shown);
    entry->shown = at::Tensor();
  }
}

void SpreadParameters::check_held_alone() const {
  for (const auto& [key, entry] : entries_) {
    const at::Tensor parameter(entry.parameter.lock());
    const bool held =
        entry.spread && parameter.defined() && !is_hidden(parameter) && !is_held_alone(parameter);
    if (held) refuse_holder(entry.name);
  }
}

// --- what the program sees
// ------------------------------------------------------------------------------

SpreadParameters::Shown::Shown(SpreadParameters& parameters) : parameters_(parameters) {
  if (parameters_.shown_ == 0) {
    parameters_.show_hidden();
    try {
      parameters_.follow_program();
    } catch (...) {
      parameters_.hide();
      throw;
    }
  }
  ++parameters_.shown_;
}

SpreadParameters::Shown::~Shown() {
  if (--parameters_.shown_ == 0) parameters_.hide();
}

void SpreadParameters::show_hidden() {
  for (auto& [key, entry] : entries_) {
    const at::Tensor parameter(entry.parameter.lock());
    if (entry.shown.defined() && parameter.defined()) show(parameter, entry.shown);
    entry.shown = at::Tensor();
  }
}

void SpreadParameters::follow_program() {
  forget_freed();
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const at::Tensor parameter(entry->second.parameter.lock());
    const bool stays =
        !parameter.defined() || entry->second.spread || follow(parameter, entry->second);
    if (!stays) ++version_;
    entry = stays ? std::next(entry) : entries_.erase(entry);
  }
}

void SpreadParameters::hide() {
  for (auto& [key, entry] : entries_) {
    const at::Tensor parameter(entry.parameter.lock());
    const bool hides = entry.spread && parameter.defined() && !is_hidden(parameter);
    if (hides) entry.shown = epl::hide(parameter, entry.name);
  }
}

}  // namespace epl

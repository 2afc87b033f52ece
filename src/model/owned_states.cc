#include "model/owned_states.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "base/text.h"
#include "runtime/owner_gathering.h"
#include "runtime/pages.h"
#include "runtime/update_state.h"
#include "state/state_map.h"

namespace epl {
namespace {

// A parameter in the list of an optimizer that has it.
struct Kept {
  ModelOptimizer& optimizer;
  size_t number;

  ParameterState state() const { return optimizer.state(number); }

  // Whether steps make a state for it at all.
  bool keeps_state() const {
    const size_t group = optimizer.listed()[number].group;
    return optimizer.row() != nullptr && optimizer.row()->keeps_state(optimizer.options(group));
  }

  void forget() const {
    const ParameterState here = state();
    for (at::Tensor* tensor : here.tensors) {
      if (tensor != nullptr) *tensor = at::Tensor();
    }
    optimizer.set_partial(number, true);
  }
};

std::vector<Kept> kept_for(const Model& model, const at::Tensor& parameter) {
  std::vector<Kept> kept;
  for (size_t i : model.optimizers_of(parameter)) {
    kept.push_back({*model.optimizers()[i], model.number_of(parameter, i)});
  }
  return kept;
}

// How often the lists of all optimizers have each parameter.
std::unordered_map<const c10::TensorImpl*, int> times_listed(const Model& model) {
  std::unordered_map<const c10::TensorImpl*, int> times;
  for (const auto& optimizer : model.optimizers()) {
    for (const auto& listed : optimizer->listed()) ++times[listed.parameter.unsafeGetTensorImpl()];
  }
  return times;
}

// Whether this worker keeps some of the states: of shards each of its workers does.
bool keeps_some(const Connections& connections, const HeldParameter& held) {
  if (held.shards.empty()) return owned_here(connections, held).length > 0;
  return std::any_of(held.roles.begin(), held.roles.end(), [&](int role) {
    const Connections::Sharers& sharers = connections.sharers_of(role);
    return sharers.rank >= 0 &&
           (held.owners.kind == Owners::Kind::kRanges || held.owners.rank == sharers.rank);
  });
}

bool has_tensors(const ParameterState& state) {
  return std::any_of(state.tensors.begin(), state.tensors.end(), [](const at::Tensor* tensor) {
    return tensor != nullptr && tensor->defined();
  });
}

void release_rest(const ParameterState& state, const at::Tensor& parameter, const Piece& owned) {
  for (at::Tensor* tensor : state.tensors) {
    const bool there = tensor != nullptr && tensor->defined() && tensor->device().is_cpu() &&
                       lies_like(parameter, *tensor) && tensor->is_non_overlapping_and_dense();
    if (there) release_pages_besides(*tensor, owned.begin, owned.length);
  }
}

// Elements are owned in the order in which a parameter lies in memory: where that has changed, the
// parts that workers keep are not those that they would go on with.
void check_order(const HeldParameter& held, const ParameterState& state) {
  if (held.owners.kind != Owners::Kind::kRanges) return;
  for (const at::Tensor* tensor : state.tensors) {
    if (tensor == nullptr || !tensor->defined()) continue;
    EPL_CHECK(lies_like(held.parameter, *tensor),
              concat("a parameter of sizes ", held.parameter.sizes(),
                     " lies in memory with strides ", held.parameter.strides(),
                     ", and its optimizer's states, of which workers keep parts, with strides ",
                     tensor->strides()),
              "zero.level",
              "channels_last and other orders before the first step, or trainer.save() and load() "
              "with a new network");
  }
}

// What a worker says of the state of a parameter: that it is there, with which tensors, after how
// many steps. Of an owner it holds; the others say nothing.
constexpr int64_t kFacts = 2 + static_cast<int64_t>(kMostStateTensors);  // tensors by their types

void say(const ParameterState& state, double* facts) {
  facts[0] = state.exists ? 1 : 0;
  facts[1] = state.step != nullptr ? static_cast<double>(*state.step) : 0;
  for (size_t i = 0; i < state.tensors.size(); ++i) {
    const at::Tensor* const tensor = state.tensors[i];
    const bool there = tensor != nullptr && tensor->defined();
    facts[2 + i] = there ? 1 + static_cast<double>(tensor->scalar_type()) : 0;
  }
}

class StateGathering {
 public:
  StateGathering(const Connections& connections, StatesTo to)
      : connections_(connections), to_(to) {}

  void run(const HeldParameter& held, const Kept& kept) const {
    const bool own = keeps_some(connections_, held);
    const at::Tensor facts = at::zeros({kFacts}, at::kDouble);
    if (own) say(kept.state(), facts.data_ptr<double>());
    connections_.workers_of(held.roles)->all_reduce({facts}, ReduceOp::kMax);
    const double* const known = facts.data_ptr<double>();
    if (known[0] == 0) {  // no step has made it
      if (kept.optimizer.is_partial(kept.number)) kept.optimizer.drop_state(kept.number);
      return;
    }
    const std::vector<at::Tensor> tensors = take_up(held.parameter, kept, known);
    gather_from_owners(connections_, {held},
                       [&](const at::Tensor& /*parameter*/) { return tensors; });
    settle(held, kept, own);
  }

 private:
  // The state with all its tensors, whatever they hold yet.
  static std::vector<at::Tensor> take_up(const at::Tensor& parameter, const Kept& kept,
                                         const double* known) {
    if (!kept.state().exists) {
      kept.optimizer.make_state(kept.number);
      kept.optimizer.set_partial(kept.number, true);
    }
    const ParameterState state = kept.state();
    if (state.step != nullptr) *state.step = static_cast<int64_t>(known[1]);
    std::vector<at::Tensor> tensors;
    for (size_t i = 0; i < state.tensors.size(); ++i) {
      at::Tensor* const tensor = state.tensors[i];
      if (tensor == nullptr || known[2 + i] == 0) continue;
      const auto type = static_cast<at::ScalarType>(static_cast<int>(known[2 + i]) - 1);
      if (!tensor->defined()) *tensor = zeros_for(parameter.detach(), type);
      tensors.push_back(*tensor);
    }
    return tensors;
  }

  static at::Tensor zeros_for(const at::Tensor& parameter, at::ScalarType type) {
    if (type == parameter.scalar_type()) return zeros_by_page(parameter);
    return at::zeros_like(parameter, parameter.options().dtype(type), at::MemoryFormat::Preserve);
  }

  void settle(const HeldParameter& held, const Kept& kept, bool own) const {
    const std::vector<int> workers = connections_.workers_with(held.roles);
    const bool wanted =
        to_ == StatesTo::kAll || workers.front() == connections_.cluster().worker_index;
    if (wanted) return kept.optimizer.set_partial(kept.number, false);
    if (!own) return kept.forget();
    if (!held.shards.empty()) return;
    release_rest(kept.state(), held.parameter, owned_here(connections_, held));
  }

  const Connections& connections_;
  const StatesTo to_;
};

}  // namespace

void keep_owned_states(const Model& model, const Connections& connections,
                       const HeldParameters& held) {
  for (const HeldParameter& each : held) {
    if (each.owners.are_all()) continue;
    const bool own = keeps_some(connections, each);
    for (const Kept& kept : kept_for(model, each.parameter)) {
      const ParameterState state = kept.state();
      const bool whole = state.exists && !kept.optimizer.is_partial(kept.number);
      const bool unmarked = !state.exists && kept.keeps_state();
      if (!own && (whole || unmarked || has_tensors(state))) kept.forget();
      if (!own || !state.exists) continue;
      if (each.shards.empty() && !whole) check_order(each, state);
      if (!whole) continue;
      kept.optimizer.set_partial(kept.number, true);
      if (!each.shards.empty()) continue;
      release_rest(kept.state(), each.parameter, owned_here(connections, each));
    }
  }
}

void gather_owned_states(const Model& model, const Connections& connections,
                         const HeldParameters& held, StatesTo to) {
  const c10::AutoGradMode no_grad(false);
  const StateGathering gathering(connections, to);
  for (const HeldParameter& each : held) {
    const std::vector<int> workers = connections.workers_with(each.roles);
    const bool member = std::find(workers.begin(), workers.end(),
                                  connections.cluster().worker_index) != workers.end();
    if (each.owners.are_all() || workers.size() < 2 || !member) continue;
    for (const Kept& kept : kept_for(model, each.parameter)) gathering.run(each, kept);
  }
}

PartsOfOwners::PartsOfOwners(const Model& model, const Connections* connections,
                             const GradientHistory& history)
    : model_(model), connections_(connections) {
  std::unordered_map<const c10::TensorImpl*, Home> homes;
  history.for_each([&](const GradientHistory::Lies& lies) {
    if (lies.home.owners.are_all()) return;
    homes.emplace(lies.parameter, lies.home);
    placement_ = lies.placement;
  });
  for (const auto& [name, parameter] : model.parameters()) {
    const auto found = homes.find(parameter.unsafeGetTensorImpl());
    if (found == homes.end()) continue;
    HeldParameter& each = held_.emplace_back();
    static_cast<Home&>(each) = found->second;
    each.parameter = parameter;
  }
}

const Connections& PartsOfOwners::connections() const {
  EPL_ASSERT(connections_ != nullptr, "owners of parameters, and no way to them");
  return *connections_;
}

std::optional<Piece> PartsOfOwners::owned(const at::Tensor& parameter) const {
  for (const HeldParameter& each : held_) {
    if (each.parameter.is_same(parameter)) return owned_here(connections(), each);
  }
  return std::nullopt;
}

void PartsOfOwners::keep_states() const {
  if (!held_.empty()) keep_owned_states(model_, connections(), held_);
}

void PartsOfOwners::gather_states(StatesTo to) const {
  if (!held_.empty()) gather_owned_states(model_, connections(), held_, to);
}

void PartsOfOwners::gather_parameters() const {
  if (held_.empty()) return;
  gather_from_owners(connections(), held_, [](const at::Tensor& parameter) {
    return std::vector<at::Tensor>{parameter.detach()};
  });
}

std::map<std::string, std::string> updated_whole(const Model& model) {
  std::map<const c10::StorageImpl*, int> users;
  for (const auto& [name, tensor] : model.all_tensors()) {
    if (tensor.has_storage()) ++users[tensor.storage().unsafeGetStorageImpl()];
  }
  auto times = times_listed(model);
  std::map<std::string, std::string> reasons;
  for (const auto& [name, parameter] : model.parameters()) {
    const bool alone =
        parameter.has_storage() && users[parameter.storage().unsafeGetStorageImpl()] == 1;
    if (!alone) reasons[name] = "that share memory with other tensors";
    if (times[parameter.unsafeGetTensorImpl()] > 1) {
      reasons[name] = "that optimizers list more than once";
    }
    for (size_t index : model.optimizers_of(parameter)) {
      const ModelOptimizer& optimizer = *model.optimizers()[index];
      if (optimizer.row() != nullptr) continue;
      reasons[name] = concat("by ", optimizer.name(), ", which may look at all of a parameter");
    }
  }
  return reasons;
}

}  // namespace epl

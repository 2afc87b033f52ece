#include "runtime/step_gradients.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "config/libtorch.h"

namespace epl {

std::map<int, std::vector<int>> roles_by_leaf(const Plan& plan) {
  std::map<int, std::vector<int>> roles;
  for (size_t role = 0; role < plan.roles(); ++role) {
    for (const auto& gradient : plan.program_of(role).gradients) {
      auto& list = roles[gradient.leaf];
      const auto number = static_cast<int>(role);
      if (list.empty() || list.back() != number) list.push_back(number);
    }
  }
  return roles;
}

namespace {

Owners owners_of(int leaf, const Program& program) {
  for (const auto& gradient : program.gradients) {
    if (gradient.leaf == leaf) return gradient.owners;
  }
  return {};
}

}  // namespace

StepGradients::StepGradients(const Plan& plan, Devices devices)
    : plan_(plan), devices_(std::move(devices)) {
  find_entries();
  find_readers();
}

// What does not stay on the device is in the sum that the worker keeps.
const at::Tensor& StepGradients::gradient(const Contribution& part) const {
  const GradientExchange* const exchange =
      devices_.exchanges[static_cast<size_t>(devices_.places[part.device].role)];
  const auto index = static_cast<int>(part.gradient);
  if (exchange->sums().has(index)) return exchange->sums().of(index);
  return devices_.executors[part.device]->tensor(
      program(part.device).gradients[part.gradient].slot);
}

bool StepGradients::is_sparse(const Contribution& part) const {
  const SlotId slot = program(part.device).gradients[part.gradient].slot;
  return program(part.device).slots[static_cast<size_t>(slot)].type.layout != c10::kStrided;
}

// In the order of the roles' updates; a tied parameter where it comes first, and the pieces of
// one that is cut together.
void StepGradients::find_entries() {
  using Key = std::pair<int, int>;  // leaf, and the role where it is cut
  const auto key_of = [&](size_t role, size_t gradient) {
    const Program& holder = plan_.program_of(role);
    const int leaf = holder.gradients[gradient].leaf;
    const bool cut = holder.leaves[static_cast<size_t>(leaf)].shard.is_cut();
    return Key{leaf, cut ? static_cast<int>(role) : -1};
  };
  std::map<Key, std::vector<Contribution>> parts;
  for (size_t device = 0; device < devices_.places.size(); ++device) {
    const auto role = static_cast<size_t>(devices_.places[device].role);
    for (size_t i = 0; i < program(device).gradients.size(); ++i) {
      parts[key_of(role, i)].push_back({device, i});
    }
  }
  std::map<int, std::vector<Key>> keys;  // by leaf
  for (const auto& [key, contributions] : parts) keys[key.first].push_back(key);
  std::set<int> seen;
  for (size_t i = 0; i < plan_.roles(); ++i) {
    const Program& holder = plan_.program_of(i);
    for (const auto& instruction : holder.instructions) {
      const bool early = instruction.kind == Instruction::Kind::kUpdateEarly;
      if (instruction.kind != Instruction::Kind::kUpdate && !early) continue;
      std::vector<size_t> group;
      for (int index : instruction.gradients) {
        const int leaf = holder.gradients[static_cast<size_t>(index)].leaf;
        if (!seen.insert(leaf).second) continue;
        for (const Key& key : keys[leaf]) {
          group.push_back(entries_.size());
          entries_.push_back(entry_of(parts[key]));
        }
      }
      if (group.empty()) continue;
      group_of_[{static_cast<int>(i), &instruction}] = groups_.size();
      if (early) early_.insert(groups_.size());
      groups_.push_back(std::move(group));
    }
  }
}

std::optional<size_t> StepGradients::group_of(int role, const Instruction& update) const {
  const auto found = group_of_.find({role, &update});
  return found == group_of_.end() ? std::nullopt : std::optional<size_t>(found->second);
}

StepGradients::Entry StepGradients::entry_of(const std::vector<Contribution>& parts) const {
  const Contribution& first = parts[0];
  const int index = program(first.device).gradients[first.gradient].leaf;
  const PlanLeaf& own = program(first.device).leaves[static_cast<size_t>(index)];
  const int role = devices_.places[first.device].role;
  const bool tied = plan_.is_tied(role, static_cast<int>(first.gradient));
  Entry entry{index, own.name, leaf(index),
              parts, tied,     plan_.role(static_cast<size_t>(role)).shard(index)};
  const PlanGradient& of_plan = program(first.device).gradients[first.gradient];
  const int64_t elements = plan_.role(static_cast<size_t>(role)).type(of_plan.slot).numel();
  entry.owned = owned_of(role, of_plan.owners, elements);
  entry.scattered = entry.owned && comes_to_owners(program(first.device), of_plan);
  return entry;
}

std::optional<Piece> StepGradients::owned_of(int role, const Owners& owners,
                                             int64_t elements) const {
  if (owners.are_all()) return std::nullopt;
  const Connections::Sharers& sharers = devices_.sharers[static_cast<size_t>(role)];
  EPL_ASSERT(sharers.rank >= 0, concat("this worker has no device of role ", role));
  return owned_elements(owners, elements, sharers.devices, sharers.rank);
}

bool StepGradients::are_scattered() const {
  return !sums_to_all_ && std::any_of(entries_.begin(), entries_.end(),
                                      [](const Entry& entry) { return entry.scattered; });
}

at::Tensor StepGradients::known_part(const Entry& entry, const at::Tensor& sum) const {
  if (!entry.scattered || sums_to_all_ || entry.owned->length == sum.numel()) return sum;
  return sum.as_strided({sum.numel()}, {1}).narrow(0, entry.owned->begin, entry.owned->length);
}

// The exchange leaves the sum of all parts in the first one, or in that of the worker.
bool StepGradients::summed_between_workers(const Entry& entry) const {
  const auto role = static_cast<size_t>(devices_.places[entry.parts[0].device].role);
  const GradientExchange& exchange = *devices_.exchanges[role];
  return exchange.sums().has(static_cast<int>(entry.parts[0].gradient)) ||
         (!entry.tied && exchange.sums_into_first());
}

ParameterGradient StepGradients::bound(const Entry& entry) const {
  ParameterGradient result{entry.parameter, gradient(entry.parts[0]), {}, {}, entry.owned};
  if (summed_between_workers(entry)) return result;
  for (size_t i = 1; i < entry.parts.size(); ++i) {
    result.addends.push_back(gradient(entry.parts[i]));
  }
  return result;
}

// Sparse gradients of several devices are summed elsewhere.
ParameterGradient StepGradients::sum_of(const Entry& entry) const {
  const Contribution& first = entry.parts[0];
  const int role = devices_.places[first.device].role;
  const Program& holder = plan_.program_of(static_cast<size_t>(role));
  const bool elsewhere = is_sparse(first) && plan_.replicas * holder.devices > 1;
  if (!elsewhere) return {entry.parameter, gradient(first), {}, {}};
  const auto index = static_cast<int>(first.gradient);
  return {entry.parameter, devices_.exchanges[static_cast<size_t>(role)]->sparse(index), {}, {}};
}

bool StepGradients::made_late(const Entry& entry) const {
  const Program& holder = program(entry.parts[0].device);
  const SlotId slot = holder.gradients[entry.parts[0].gradient].slot;
  return holder.slots[static_cast<size_t>(slot)].where == Slot::Where::kMadeByOperator;
}

std::vector<HeldParameter> StepGradients::given() const {
  std::vector<HeldParameter> given;
  for (const auto& [index, roles] : roles_by_leaf(plan_)) {
    HeldParameter held;
    held.leaf = index;
    held.parameter = leaf(index);
    held.roles = roles;
    held.owners = owners_of(index, plan_.program_of(static_cast<size_t>(roles[0])));
    for (int role : roles) {
      const Shard own = plan_.role(static_cast<size_t>(role)).shard(index);
      if (own.is_cut()) held.shards.push_back(own);
    }
    EPL_ASSERT(held.shards.empty() || held.shards.size() == roles.size(),
               concat("`", plan_.programs[0].leaves[static_cast<size_t>(index)].name,
                      "` is whole in one role and cut in another"));
    held.readers = readers_of(held.parameter);
    given.push_back(std::move(held));
  }
  return given;
}

void StepGradients::bind_updates(const StepOptimizers& optimizers) {
  updates_.clear();
  written_zeros_.clear();
  have_several_optimizers_ = false;
  held_ = given();
  resting_ = optimizers.resting;
  for (const auto& group : groups_) bind_group(group, optimizers);
  bind_zero_gradient_updates(optimizers);
}

void StepGradients::bind_group(const std::vector<size_t>& group, const StepOptimizers& optimizers) {
  std::map<size_t, Part> parts;
  for (size_t begin = 0, end = 0; begin < group.size(); begin = end) {
    const Entry& entry = entries_[group[begin]];
    for (end = begin; end < group.size() && entries_[group[end]].leaf == entry.leaf;) ++end;
    const std::vector<size_t> of_leaf(group.begin() + static_cast<std::ptrdiff_t>(begin),
                                      group.begin() + static_cast<std::ptrdiff_t>(end));
    const bool some_here = std::any_of(of_leaf.begin(), of_leaf.end(), [&](size_t index) {
      return !entries_[index].owned || entries_[index].owned->length > 0;
    });
    if (!some_here) continue;
    have_several_optimizers_ |= optimizers.of(entry.parameter).size() > 1;
    for (size_t optimizer : optimizers.of(entry.parameter)) {
      parts[optimizer].optimizer = optimizer;
      add_update(of_leaf, parts[optimizer]);
    }
  }
  auto& list = updates_.emplace_back();
  for (auto& [optimizer, part] : parts) list.push_back(std::move(part));
}

void StepGradients::add_update(const std::vector<size_t>& entries, Part& part) const {
  const Entry& first = entries_[entries[0]];
  part.entries.push_back(entries);
  if (!first.shard.is_cut()) {
    part.gradients.push_back(bound(first));
    part.summed.push_back({first.parameter, gradient(first.parts[0]), {}, {}, first.owned});
    return;
  }
  ParameterGradient whole{first.parameter, {}, {}, {}};
  ParameterGradient summed = whole;
  for (size_t index : entries) {
    const Entry& entry = entries_[index];
    ParameterGradient piece = bound(entry);
    summed.pieces.push_back({entry.shard, piece.gradient, {}, entry.owned});
    whole.pieces.push_back({entry.shard, piece.gradient, std::move(piece.addends), entry.owned});
  }
  part.gradients.push_back(std::move(whole));
  part.summed.push_back(std::move(summed));
}

void StepGradients::refresh() {
  const c10::AutoGradMode no_grad(false);
  for (at::Tensor& zeros : written_zeros_) zeros.zero_();
  for (auto& list : updates_) {
    for (auto& part : list) {
      for (size_t i = 0; i < part.entries.size(); ++i) {
        const Entry& entry = entries_[part.entries[i][0]];
        if (entry.shard.is_cut() || !made_late(entry)) continue;
        part.summed[i] = sum_of(entry);
        part.summed[i].owned = entry.owned;
        part.gradients[i] = is_sparse(entry.parts[0]) ? part.summed[i] : bound(entry);
      }
    }
  }
}

bool StepGradients::has_one_of(const std::vector<int>& roles) const {
  return std::any_of(devices_.places.begin(), devices_.places.end(), [&](const Place& place) {
    return std::find(roles.begin(), roles.end(), place.role) != roles.end();
  });
}

void StepGradients::find_readers() {
  for (size_t role = 0; role < plan_.roles(); ++role) {
    const Program& program = plan_.program_of(role);
    const auto number = static_cast<int>(role);
    const auto look = [&](SlotId id) {
      const Slot& slot = program.slots[static_cast<size_t>(id)];
      if (slot.where != Slot::Where::kLeaf) return;
      auto& readers = readers_[leaf(slot.index).unsafeGetTensorImpl()];
      if (readers.empty() || readers.back() != number) readers.push_back(number);
    };
    for (const auto& segment : program.segments) {
      for (const auto& call : segment.calls) for_each_operand(call, look);
    }
  }
}

std::vector<int> StepGradients::readers_of(const at::Tensor& parameter) const {
  const auto found = readers_.find(parameter.unsafeGetTensorImpl());
  return found == readers_.end() ? std::vector<int>() : found->second;
}

// As the gradient of what this worker has of the parameter; none where that is nothing.
std::optional<ParameterGradient> StepGradients::zeros_for(const at::Tensor& parameter,
                                                          const Home& home) const {
  const at::Tensor whole = parameter.detach();
  if (home.shards.empty()) {
    const auto owned =
        home.owners.are_all() ? std::nullopt : owned_of(home.roles[0], home.owners, whole.numel());
    if (owned && owned->length == 0) return std::nullopt;
    return ParameterGradient{parameter, at::zeros_like(whole), {}, {}, owned};
  }
  ParameterGradient zeros{parameter, {}, {}, {}};
  std::set<int64_t> begins;  // devices with other rows may have the same piece
  for (size_t i = 0; i < home.shards.size(); ++i) {
    const Piece& piece = home.shards[i].piece;
    if (!has_one_of({home.roles[i]}) || !begins.insert(piece.begin).second) continue;
    const at::Tensor own = whole.narrow(home.shards[i].dim, piece.begin, piece.length);
    const auto owned = owned_of(home.roles[i], home.owners, own.numel());
    if (owned && owned->length == 0) continue;
    zeros.pieces.push_back({home.shards[i], at::zeros(own.sizes(), own.options()), {}, owned});
  }
  if (zeros.pieces.empty()) return std::nullopt;
  return zeros;
}

// A layer that is frozen in mid-training, or that other steps train, is updated with a zero
// gradient and goes on by its momentum, which lies with the role that the layer was in (in
// LibTorch 1; later it rests there). Where its optimizer has gradients as well, all of them are one
// call: an optimizer of the user's own may count its steps.
void StepGradients::bind_zero_gradient_updates(const StepOptimizers& optimizers) {
  std::map<size_t, Part> parts;
  for (const auto& [parameter, home] : optimizers.without_gradient) {
    HeldParameter held;
    static_cast<Home&>(held) = home;
    held.parameter = parameter;
    held.readers = readers_of(parameter);
    held_.push_back(std::move(held));
    if (!kZeroGradLeavesZeros || !has_one_of(home.roles)) continue;
    for (size_t optimizer : optimizers.of(parameter)) {
      std::optional<ParameterGradient> zeros = zeros_for(parameter, home);
      if (!zeros) continue;
      parts[optimizer].optimizer = optimizer;
      // One of the user's own may write into its gradients, which zero_grad() makes zeros of again.
      if (!optimizers.fused(optimizer) && zeros->gradient.defined()) {
        written_zeros_.push_back(zeros->gradient);
      }
      parts[optimizer].gradients.push_back(std::move(*zeros));
    }
  }
  for (auto& [optimizer, part] : parts) add_zero_gradient_updates(std::move(part));
}

bool StepGradients::somebody_woke() const {
  return std::any_of(resting_.begin(), resting_.end(),
                     [](const at::Tensor& parameter) { return parameter.grad().defined(); });
}

// Not with one that is updated while the step runs: it may still read these parameters.
void StepGradients::add_zero_gradient_updates(Part updates) {
  for (size_t group = updates_.size(); group-- > 0;) {
    if (early_.count(group) != 0) continue;
    for (auto& part : updates_[group]) {
      if (part.optimizer != updates.optimizer) continue;
      part.gradients.insert(part.gradients.end(), updates.gradients.begin(),
                            updates.gradients.end());
      part.summed.insert(part.summed.end(), updates.gradients.begin(), updates.gradients.end());
      return;
    }
  }
  updates.summed = updates.gradients;
  updates_.emplace_back().push_back(std::move(updates));
}

void StepGradients::sum_into_first(DeviceTeam& team) {
  team.run([&](int device) {
    const c10::AutoGradMode no_grad(false);
    for (auto i = static_cast<size_t>(device); i < entries_.size();
         i += static_cast<size_t>(team.size())) {
      const Entry& entry = entries_[i];
      if (summed_between_workers(entry) || is_sparse(entry.parts[0])) continue;
      at::Tensor sum = gradient(entry.parts[0]);
      for (size_t part = 1; part < entry.parts.size(); ++part) {
        sum.add_(gradient(entry.parts[part]));
      }
    }
  });
}

std::vector<at::Tensor> StepGradients::of_devices() const {
  std::vector<at::Tensor> gradients;
  for (const auto& entry : entries_) {
    for (const auto& part : entry.parts) gradients.push_back(gradient(part));
  }
  return gradients;
}

std::vector<at::Tensor> StepGradients::reduced() const {
  std::vector<at::Tensor> gradients;
  for (const auto& entry : entries_) {
    gradients.push_back(known_part(entry, sum_of(entry).gradient));
  }
  return gradients;
}

std::vector<at::Tensor> StepGradients::reduced(const std::vector<size_t>& entries) const {
  std::vector<at::Tensor> gradients;
  for (size_t entry : entries) {
    gradients.push_back(known_part(entries_[entry], sum_of(entries_[entry]).gradient));
  }
  return gradients;
}

std::vector<at::Tensor> StepGradients::addends(const std::vector<size_t>& entries) const {
  std::vector<at::Tensor> all;
  for (size_t index : entries) {
    const Entry& entry = entries_[index];
    if (is_sparse(entry.parts[0])) {
      all.push_back(sum_of(entry).gradient);
      continue;
    }
    const size_t parts = summed_between_workers(entry) ? 1 : entry.parts.size();
    for (size_t i = 0; i < parts; ++i) {
      all.push_back(known_part(entry, gradient(entry.parts[i])));
    }
  }
  return all;
}

std::vector<size_t> StepGradients::entries_of(const EndPhase& phase) const {
  std::set<std::pair<int, int>> named;  // role and gradient
  for (const auto& [role, instruction] : phase.instructions) {
    for (int gradient : instruction->gradients) named.insert({role, gradient});
  }
  std::vector<size_t> found;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const auto& parts = entries_[i].parts;
    const auto count = std::count_if(parts.begin(), parts.end(), [&](const Contribution& part) {
      return named.count({devices_.places[part.device].role, static_cast<int>(part.gradient)});
    });
    EPL_ASSERT(
        count == 0 || count == static_cast<int64_t>(parts.size()),
        concat("instructions name some of the gradients of `", entries_[i].name, "`, and not all"));
    if (count > 0) found.push_back(i);
  }
  return found;
}

std::vector<at::Tensor> StepGradients::of_replica(int replica, const std::vector<size_t>& entries) {
  const c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor> gradients;
  for (size_t index : entries) {
    at::Tensor sum;
    for (const auto& part : entries_[index].parts) {
      if (devices_.places[part.device].replica != replica) continue;
      at::Tensor each = gradient(part);
      if (!sum.defined()) {
        sum = each;
      } else {
        sum.add_(each);
        each.zero_();
      }
    }
    gradients.push_back(sum);
  }
  return gradients;
}

void StepGradients::reduce_tied(const Entry& entry, Communicator& workers) {
  const c10::AutoGradMode no_grad(false);
  EPL_CHECK(
      !is_sparse(entry.parts[0]),
      concat("the gradient of `", entry.name, "`, which stages on several workers use, is sparse"),
      "epl::Trainer", "communication.sparse_as_dense = true");
  at::Tensor sum = gradient(entry.parts[0]);
  for (size_t part = 1; part < entry.parts.size(); ++part) {
    at::Tensor each = gradient(entry.parts[part]);
    sum.add_(each);
    each.zero_();
  }
  const at::Tensor travels = sum.contiguous();
  workers.all_reduce({travels}, ReduceOp::kSum);
  if (travels.data_ptr() != sum.data_ptr()) sum.copy_(travels);
}

}  // namespace epl

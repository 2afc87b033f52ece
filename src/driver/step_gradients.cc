#include "driver/step_gradients.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/check.h"

namespace epl {

std::map<int, std::vector<int>> stages_by_leaf(const Plan& plan) {
  std::map<int, std::vector<int>> stages;
  for (size_t stage = 0; stage < plan.programs.size(); ++stage) {
    for (const auto& gradient : plan.programs[stage].gradients) {
      auto& list = stages[gradient.leaf];
      const auto number = static_cast<int>(stage);
      if (list.empty() || list.back() != number) list.push_back(number);
    }
  }
  return stages;
}

StepGradients::StepGradients(const CompiledStep& step, Devices devices)
    : step_(step), devices_(std::move(devices)) {
  find_entries();
}

const at::Tensor& StepGradients::gradient(const Contribution& part) const {
  return devices_.executors[part.device]->tensor(
      program(part.device).gradients[part.gradient].slot);
}

bool StepGradients::is_sparse(const Contribution& part) const {
  const SlotId slot = program(part.device).gradients[part.gradient].slot;
  return program(part.device).slots[static_cast<size_t>(slot)].type.layout != c10::kStrided;
}

// In the order of the programs' updates; a tied parameter where it comes first.
void StepGradients::find_entries() {
  std::map<int, std::vector<Contribution>> parts;  // by leaf
  for (size_t device = 0; device < devices_.places.size(); ++device) {
    const auto& gradients = program(device).gradients;
    for (size_t i = 0; i < gradients.size(); ++i) parts[gradients[i].leaf].push_back({device, i});
  }
  std::set<int> tied;
  for (const auto& entry : step_.plan.tied) {
    const auto& first = entry[0];
    const Program& holder = step_.plan.programs[static_cast<size_t>(first.program)];
    tied.insert(holder.gradients[static_cast<size_t>(first.gradient)].leaf);
  }
  std::set<int> seen;
  for (const auto& holder : step_.plan.programs) {
    for (const auto& instruction : holder.instructions) {
      if (instruction.kind != Instruction::Kind::kUpdate) continue;
      std::vector<size_t> group;
      for (int index : instruction.gradients) {
        const int leaf = holder.gradients[static_cast<size_t>(index)].leaf;
        if (parts.count(leaf) == 0 || !seen.insert(leaf).second) continue;
        group.push_back(entries_.size());
        const Leaf& source = step_.graph.leaves[static_cast<size_t>(leaf)];
        entries_.push_back({leaf, source.name, source.tensor, parts[leaf], tied.count(leaf) != 0});
      }
      if (!group.empty()) groups_.push_back(std::move(group));
    }
  }
}

// The exchange leaves the sum of all parts in the first one.
bool StepGradients::summed_between_workers(const Entry& entry) const {
  const auto stage = static_cast<size_t>(devices_.places[entry.parts[0].device].stage);
  return !entry.tied && devices_.exchanges[stage]->sums_into_first();
}

ParameterGradient StepGradients::bound(const Entry& entry) const {
  ParameterGradient result{entry.parameter, gradient(entry.parts[0]), {}};
  if (summed_between_workers(entry)) return result;
  for (size_t i = 1; i < entry.parts.size(); ++i) {
    result.addends.push_back(gradient(entry.parts[i]));
  }
  return result;
}

// Sparse gradients of several devices are summed elsewhere.
ParameterGradient StepGradients::sum_of(const Entry& entry) const {
  const Contribution& first = entry.parts[0];
  const int stage = devices_.places[first.device].stage;
  const Program& holder = step_.plan.programs[static_cast<size_t>(stage)];
  const bool elsewhere = is_sparse(first) && step_.plan.replicas * holder.devices > 1;
  if (!elsewhere) return {entry.parameter, gradient(first), {}};
  const auto index = static_cast<int>(first.gradient);
  return {entry.parameter, devices_.exchanges[static_cast<size_t>(stage)]->sparse(index), {}};
}

bool StepGradients::made_late(const Entry& entry) const {
  const Program& holder = program(entry.parts[0].device);
  const SlotId slot = holder.gradients[entry.parts[0].gradient].slot;
  return holder.slots[static_cast<size_t>(slot)].where == Slot::Where::kMadeByOperator;
}

void StepGradients::bind_updates(Model& model, GradientHistory& history) {
  updates_.clear();
  holders_.clear();
  for (const auto& [leaf, stages] : stages_by_leaf(step_.plan)) {
    const at::Tensor& parameter = step_.graph.leaves[static_cast<size_t>(leaf)].tensor;
    holders_.push_back({parameter, stages, readers_of(parameter)});
    history[parameter.unsafeGetTensorImpl()] = stages;
  }
  for (const auto& group : groups_) {
    std::map<size_t, Part> parts;
    for (size_t index : group) {
      const Entry& entry = entries_[index];
      for (size_t optimizer : model.optimizers_of(entry.parameter)) {
        Part& part = parts[optimizer];
        part.optimizer = optimizer;
        part.gradients.push_back(bound(entry));
        part.summed.push_back({entry.parameter, gradient(entry.parts[0]), {}});
        part.entries.push_back(index);
      }
    }
    auto& list = updates_.emplace_back();
    for (auto& [optimizer, part] : parts) list.push_back(std::move(part));
  }
  bind_coasting(model, history);
}

void StepGradients::refresh_late() {
  for (auto& list : updates_) {
    for (auto& part : list) {
      for (size_t i = 0; i < part.entries.size(); ++i) {
        const Entry& entry = entries_[part.entries[i]];
        if (!made_late(entry)) continue;
        part.summed[i] = sum_of(entry);
        part.gradients[i] = is_sparse(entry.parts[0]) ? part.summed[i] : bound(entry);
      }
    }
  }
}

bool StepGradients::has_one_of(const std::vector<int>& stages) const {
  return std::any_of(devices_.places.begin(), devices_.places.end(), [&](const Place& place) {
    return std::find(stages.begin(), stages.end(), place.stage) != stages.end();
  });
}

std::vector<int> StepGradients::readers_of(const at::Tensor& parameter) const {
  std::vector<int> readers;
  for (size_t stage = 0; stage < step_.plan.programs.size(); ++stage) {
    const Program& program = step_.plan.programs[stage];
    bool reads = false;
    const auto look = [&](SlotId id) {
      const Slot& slot = program.slots[static_cast<size_t>(id)];
      reads |= slot.where == Slot::Where::kLeaf &&
               step_.graph.leaves[static_cast<size_t>(slot.index)].tensor.is_same(parameter);
    };
    for (const auto& segment : program.segments) {
      for (const auto& call : segment.calls) for_each_operand(call, look);
    }
    if (reads) readers.push_back(static_cast<int>(stage));
  }
  return readers;
}

// In the plain loop zero_grad() leaves zeros where a gradient once was, and the optimizer goes on
// with them: a layer that is frozen in mid-training coasts on its momentum, which lies with the
// stage that the layer was in.
void StepGradients::bind_coasting(Model& model, const GradientHistory& history) {
  std::set<c10::TensorImpl*> has_gradient;
  for (const auto& holders : holders_) has_gradient.insert(holders.parameter.unsafeGetTensorImpl());
  std::map<size_t, Part> parts;
  for (const auto& [name, parameter] : model.parameters()) {
    c10::TensorImpl* impl = parameter.unsafeGetTensorImpl();
    const auto had = history.find(impl);
    if (has_gradient.count(impl) != 0 || had == history.end()) continue;
    holders_.push_back({parameter, had->second, readers_of(parameter)});
    if (!has_one_of(had->second)) continue;
    for (size_t optimizer : model.optimizers_of(parameter)) {
      parts[optimizer].optimizer = optimizer;
      parts[optimizer].gradients.push_back({parameter, at::zeros_like(parameter.detach()), {}});
      parts[optimizer].summed.push_back(parts[optimizer].gradients.back());
    }
  }
  if (parts.empty()) return;
  auto& list = updates_.emplace_back();
  for (auto& [optimizer, part] : parts) list.push_back(std::move(part));
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

std::vector<at::Tensor> StepGradients::reduced() const {
  std::vector<at::Tensor> gradients;
  for (const auto& entry : entries_) gradients.push_back(sum_of(entry).gradient);
  return gradients;
}

std::vector<at::Tensor> StepGradients::of_replica(int replica) {
  const c10::AutoGradMode no_grad(false);
  std::vector<at::Tensor> gradients;
  for (const auto& entry : entries_) {
    at::Tensor sum;
    for (const auto& part : entry.parts) {
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

void StepGradients::reduce_tied(const std::function<Communicator*(const Entry&)>& workers_of) {
  const c10::AutoGradMode no_grad(false);
  for (const auto& entry : entries_) {
    Communicator* const workers = entry.tied ? workers_of(entry) : nullptr;
    if (workers == nullptr) continue;
    EPL_CHECK(!is_sparse(entry.parts[0]),
              concat("the gradient of `", entry.name,
                     "`, which stages on several workers use, is sparse"),
              "epl::Trainer", "communication.sparse_as_dense = true");
    at::Tensor sum = gradient(entry.parts[0]);
    for (size_t part = 1; part < entry.parts.size(); ++part) {
      at::Tensor each = gradient(entry.parts[part]);
      sum.add_(each);
      each.zero_();
    }
    const at::Tensor travels = sum.contiguous();
    workers->all_reduce({travels}, ReduceOp::kSum);
    if (travels.data_ptr() != sum.data_ptr()) sum.copy_(travels);
  }
}

}  // namespace epl

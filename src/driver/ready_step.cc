#include "driver/ready_step.h"

#include <algorithm>

#include "base/check.h"

namespace epl {

ReadyStep::ReadyStep(CompiledStep step, LocalReplicas& replicas, const Capture& capture,
                     TwoSizes sizes, const std::vector<Channel>& channels, ExchangeOptions options)
    : compiled_(std::move(step)),
      replicas_(replicas),
      own_state_(static_cast<size_t>(replicas.size())),
      executors_(static_cast<size_t>(replicas.size())),
      recorded_loss_(capture.loss),
      sizes_(std::move(sizes)),
      closed_over_(capture.closed_over) {
  replicas.team.run([&](int device) {
    LocalReplica& replica = replicas[device];
    replica.arena.ensure(program().arena_bytes);
    executors_[static_cast<size_t>(device)] = std::make_unique<Executor>(
        program(), replica.arena, leaves_for(device), replica.streams.default_generator(),
        [&replica](const at::Generator& users) { return replica.streams.of(users); });
  });
  std::vector<Executor*> devices;
  for (const auto& executor : executors_) devices.push_back(executor.get());
  exchange_ = std::make_unique<GradientExchange>(program(), devices, channels, options);
}

std::vector<at::Tensor> ReadyStep::leaves_for(int device) {
  std::vector<at::Tensor> tensors;
  for (const auto& leaf : compiled_.graph.leaves) tensors.push_back(leaf.tensor);
  if (device == 0) return tensors;
  for (int index : program().written_leaves) {
    at::Tensor& tensor = tensors[static_cast<size_t>(index)];
    tensor = tensor.detach().clone();
    own_state_[static_cast<size_t>(device)].push_back(tensor);
  }
  return tensors;
}

bool ReadyStep::out_of_date() const {
  return std::any_of(closed_over_.begin(), closed_over_.end(),
                     [](const WeakTensor& tensor) { return tensor.expired(); });
}

bool ReadyStep::rebind_if_moved() {
  bool moved = false;
  for (int device = 0; device < replicas_.size(); ++device) {
    if (replicas_[device].arena.bytes() >= program().arena_bytes) continue;
    // It was lost where a larger plan found no room.
    replicas_.team.run([&](int each) { replicas_[each].arena.ensure(program().arena_bytes); });
  }
  for (auto& executor : executors_) moved |= executor->rebind_if_moved();
  return moved;
}

bool ReadyStep::leaves_are_as_recorded() const {
  const Graph& graph = compiled_.graph;
  return std::all_of(graph.leaves.begin(), graph.leaves.end(), [&](const Leaf& leaf) {
    if (!leaf.tensor.defined() || leaf.tensor.layout() != c10::kStrided) return true;
    TensorType now = type_of(leaf.tensor);
    const TensorType& recorded = graph.value(leaf.value).type;
    now.offset = recorded.offset;  // the executor follows it
    return now.same_place(recorded);
  });
}

void ReadyStep::run(int device, const std::vector<Batch>& micro_batches, double seed,
                    DeviceRun& result) {
  const c10::AutoGradMode no_grad(false);
  Executor& executor = *executors_[static_cast<size_t>(device)];
  for (const auto& instruction : program().instructions) {
    if (replicas_.team.cancelled()) throw Cancelled();
    if (instruction.kind == Instruction::Kind::kReduce) {
      if (plan().reduces_early) exchange_->ready(instruction);
      continue;
    }
    if (instruction.kind == Instruction::Kind::kUpdate) return;
    result.micro_batch = instruction.micro_batch;
    if (instruction.kind == Instruction::Kind::kLoad) {
      executor.load(micro_batches[static_cast<size_t>(instruction.micro_batch)], seed);
      continue;
    }
    executor.run(instruction.segment, instruction.first_call, instruction.end_call);
    const auto segment = static_cast<size_t>(instruction.segment);
    if (instruction.end_call < static_cast<int>(program().segments[segment].calls.size())) continue;
    const SegmentOutputs& outputs = program().outputs[segment];
    result.losses.push_back(executor.tensor(outputs.loss).item<double>());
    for (const auto& metric : outputs.metrics) {
      DeviceRun::Metric& merged = result.metrics[metric.name];
      merged.collection = metric.collection;
      merged.parts.push_back(executor.tensor(metric.slot).clone());
    }
  }
}

void ReadyStep::hand_out_state() {
  const c10::AutoGradMode no_grad(false);
  const auto& written = program().written_leaves;
  for (size_t i = 0; i < written.size(); ++i) {
    const at::Tensor users =
        compiled_.graph.leaves[static_cast<size_t>(written[i])].tensor.detach();
    for (size_t device = 1; device < own_state_.size(); ++device) {
      own_state_[device][i].copy_(users);
    }
  }
}

void ReadyStep::average_state(Communicator* workers) {
  const c10::AutoGradMode no_grad(false);
  const int devices = plan().replicas * program().devices;
  if (devices == 1) return;
  std::map<at::ScalarType, std::vector<at::Tensor>> travelling;
  std::vector<std::pair<at::Tensor, at::Tensor>> sums;
  const auto& written = program().written_leaves;
  for (size_t i = 0; i < written.size(); ++i) {
    const at::Tensor users =
        compiled_.graph.leaves[static_cast<size_t>(written[i])].tensor.detach();
    if (!users.is_floating_point()) continue;
    at::Tensor sum = users.contiguous().clone();
    for (size_t device = 1; device < own_state_.size(); ++device) sum.add_(own_state_[device][i]);
    travelling[sum.scalar_type()].push_back(sum);
    sums.emplace_back(users, sum);
  }
  if (workers != nullptr) {
    for (const auto& [type, tensors] : travelling) workers->all_reduce(tensors, ReduceOp::kSum);
  }
  for (auto& [users, sum] : sums) users.copy_(sum.div_(devices));
}

std::vector<at::Tensor> ReadyStep::gradients_of(int device) const {
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < program().gradients.size(); ++i) gradients.push_back(gradient(device, i));
  return gradients;
}

const at::Tensor& ReadyStep::parameter_of(size_t gradient) const {
  const int leaf = program().gradients[gradient].leaf;
  return compiled_.graph.leaves[static_cast<size_t>(leaf)].tensor;
}

void ReadyStep::bind_updates(Model& model, std::set<c10::TensorImpl*>& had_gradient) {
  updates_.clear();
  for (const auto& instruction : program().instructions) {
    if (instruction.kind != Instruction::Kind::kUpdate) continue;
    std::map<size_t, Part> parts;
    for (int index : instruction.gradients) {
      const auto at = static_cast<size_t>(index);
      ParameterGradient bound{parameter_of(at), gradient(0, at), {}};
      for (int device = 1; device < replicas_.size(); ++device) {
        bound.addends.push_back(gradient(device, at));
      }
      for (size_t optimizer : model.optimizers_of(bound.parameter)) {
        parts[optimizer].optimizer = optimizer;
        parts[optimizer].gradients.push_back(bound);
        parts[optimizer].summed.push_back({bound.parameter, bound.gradient, {}});
        parts[optimizer].indices.push_back(index);
      }
    }
    auto& list = updates_.emplace_back();
    for (auto& [optimizer, part] : parts) list.push_back(std::move(part));
  }
  bind_coasting(model, had_gradient);
}

void ReadyStep::refresh_late_gradients() {
  for (auto& list : updates_) {
    for (auto& part : list) {
      for (size_t i = 0; i < part.indices.size(); ++i) {
        const auto index = static_cast<size_t>(part.indices[i]);
        const Slot& slot = program().slots[static_cast<size_t>(program().gradients[index].slot)];
        if (slot.where != Slot::Where::kMadeByOperator) continue;
        const bool sparse = slot.type.layout != c10::kStrided;
        const bool elsewhere = sparse && plan().replicas * program().devices > 1;
        ParameterGradient& whole = part.summed[i];
        whole.gradient = elsewhere ? exchange_->sparse(part.indices[i]) : gradient(0, index);
        part.gradients[i] = whole;
        for (int device = 1; device < replicas_.size() && !sparse; ++device) {
          part.gradients[i].addends.push_back(gradient(device, index));
        }
      }
    }
  }
}

// In the plain loop zero_grad() leaves zeros where a gradient once was, and the optimizer goes on
// with them: a layer that is frozen in mid-training coasts on its momentum.
void ReadyStep::bind_coasting(Model& model, std::set<c10::TensorImpl*>& had_gradient) {
  std::set<c10::TensorImpl*> has_gradient;
  for (size_t i = 0; i < program().gradients.size(); ++i) {
    has_gradient.insert(parameter_of(i).unsafeGetTensorImpl());
  }
  std::map<size_t, Part> parts;
  for (const auto& [name, parameter] : model.parameters()) {
    c10::TensorImpl* impl = parameter.unsafeGetTensorImpl();
    if (has_gradient.count(impl) != 0 || had_gradient.count(impl) == 0) continue;
    for (size_t optimizer : model.optimizers_of(parameter)) {
      parts[optimizer].optimizer = optimizer;
      parts[optimizer].gradients.push_back({parameter, at::zeros_like(parameter.detach()), {}});
      parts[optimizer].summed.push_back(parts[optimizer].gradients.back());
    }
  }
  had_gradient.insert(has_gradient.begin(), has_gradient.end());
  if (parts.empty()) return;
  auto& list = updates_.emplace_back();
  for (auto& [optimizer, part] : parts) list.push_back(std::move(part));
}

}  // namespace epl

#include "runtime/step_end.h"

#include <ATen/Functions.h>

#include <map>
#include <utility>

#include "base/check.h"
#include "runtime/finite_gradients.h"
#include "runtime/update_on_devices.h"

namespace epl {

bool StepEnd::run() {
  for (const BoundPhase& bound : step_.end()) {
    const Instruction::Kind kind = bound.phase.kind;
    const bool changes =
        kind == Instruction::Kind::kUpdate ||
        (kind == Instruction::Kind::kClip && bound.phase.over == Instruction::Over::kAll);
    if (refused_ && changes) continue;
    before(bound.phase);
    run(bound);
    after(bound.phase);
  }
  return !refused_;
}

void StepEnd::run(const BoundPhase& bound) {
  const EndPhase& phase = bound.phase;
  switch (phase.kind) {
    case Instruction::Kind::kReport:
      return report();
    case Instruction::Kind::kMerge:
      return step_.merge_state(phase);
    case Instruction::Kind::kReduce:
      if (phase.over == Instruction::Over::kRoles) return reduce_tied(bound);
      return step_.start_reductions(phase);
    case Instruction::Kind::kAwait:
      return step_.wait_for_reductions();
    case Instruction::Kind::kCheck:
      refused_ = !accepts_loss();
      return;
    case Instruction::Kind::kFinite:
      refused_ |= !are_all_finite(bound);
      return;
    case Instruction::Kind::kClip:
      if (phase.over == Instruction::Over::kReplica) return clip_replicas(bound);
      return clip_reduced(bound);
    case Instruction::Kind::kUpdate:
      return update(bound);
    case Instruction::Kind::kGather:
      if (phase.over == Instruction::Over::kReplicas) return step_.gather_from_owners();
      return step_.gather();
    case Instruction::Kind::kLoad:
    case Instruction::Kind::kReceive:
    case Instruction::Kind::kRun:
    case Instruction::Kind::kSend:
    case Instruction::Kind::kUpdateEarly:
    case Instruction::Kind::kAwaitGroup:
    case Instruction::Kind::kFetch:  // those of an update are in its phase
    case Instruction::Kind::kWait:
    case Instruction::Kind::kStore:
      break;
  }
  EPL_ASSERT(false, "an instruction that computes stands in the end of a step");
}

// Every replica clips its own gradients, those of all its stages and slices together. Clipping by
// value would hide that they are not finite.
void StepEnd::clip_replicas(const BoundPhase& bound) {
  const Placement& placement = step_.placement();
  std::map<int, int> devices_here;  // by replica
  for (int device = 0; device < step_.devices(); ++device) {
    ++devices_here[step_.place(device).replica];
  }
  std::vector<int> whole;
  for (const auto& [replica, devices] : devices_here) {
    EPL_CHECK(devices == placement.devices_of_replica(),
              concat("cannot clip the gradients of a replica of ", placement.devices_of_replica(),
                     " devices before they are reduced: worker ",
                     step_.connections().cluster().worker_index, " has ", devices, " of them"),
              "TrainerOptions", "communication.clip_after_allreduce = true");
    whole.push_back(replica);
  }
  step_.team().run([&](int device) {
    const c10::AutoGradMode no_grad(false);
    for (auto i = static_cast<size_t>(device); i < whole.size();
         i += static_cast<size_t>(step_.devices())) {
      const auto gradients = step_.gradients().of_replica(whole[i], bound.entries);
      const bool stays = step_.plan().scales_loss() && !are_finite(gradients);
      if (stays) continue;
      clip_gradients(gradients, request_.clip, request_.local_scale, step_.loss_scale());
    }
  });
}

// The reduced gradients are clipped where each replica has not clipped its own; else it is their
// norm that is asked for. Where stages lie on other workers, their part of the norm comes from
// there.
void StepEnd::clip_reduced(const BoundPhase& bound) {
  sum();
  const ClipOptions asked = step_.clips_each_replica() ? request_.clip.norm_alone() : request_.clip;
  const std::vector<at::Tensor> gradients = step_.gradients().reduced(bound.entries);
  unscale(gradients);
  const Connections& connections = step_.connections();
  const bool scattered = step_.gradients().are_scattered();
  const auto& counts = scattered ? bound.counts_scattered : bound.counts;
  gradient_norm_ = connections.roles_on_workers() || scattered
                       ? clip_gradients_of_workers(gradients, counts, asked, *connections.workers())
                       : clip_gradients(gradients, asked);
}

// Before anything is updated. What one worker finds all of them hear, so that they skip together.
bool StepEnd::are_all_finite(const BoundPhase& bound) const {
  const c10::AutoGradMode no_grad(false);
  const bool here = are_finite(step_.gradients().addends(bound.entries), step_.team());
  Communicator* const workers = step_.connections().workers();
  if (workers == nullptr) return here;
  const at::Tensor infinite = at::full({1}, here ? 0.0 : 1.0, at::kDouble);
  workers->all_reduce({infinite}, ReduceOp::kMax);
  return infinite.item<double>() == 0;
}

// Once, where somebody looks at gradients; else the update does it as it reads them.
void StepEnd::unscale(const std::vector<at::Tensor>& gradients) {
  if (std::exchange(unscaled_, true) || step_.loss_scale() == 1) return;
  unscale_gradients(gradients, step_.loss_scale());
}

void StepEnd::reduce_tied(const BoundPhase& bound) {
  StepGradients& gradients = step_.gradients();
  for (size_t i = 0; i < bound.entries.size(); ++i) {
    if (bound.workers[i] == nullptr) continue;
    gradients.reduce_tied(gradients.entries()[bound.entries[i]], *bound.workers[i]);
  }
}

namespace {

// What is offloaded is at home again when an update ends, also by an exception: the program may put
// other numbers there before the next step.
class WrittenBack {
 public:
  explicit WrittenBack(const BoundStep& step) : step_(step) {}
  ~WrittenBack() { step_.write_back(); }
  WrittenBack(const WrittenBack&) = delete;
  WrittenBack& operator=(const WrittenBack&) = delete;

 private:
  const BoundStep& step_;
};

}  // namespace

// Group by group, as the instructions cut them; what is offloaded comes and goes in between.
void StepEnd::update(const BoundPhase& bound) {
  const c10::AutoGradMode no_grad(false);
  step_.check_written();
  const WrittenBack at_the_end(step_);
  StepGradients& gradients = step_.gradients();
  if (request_.keeps_sums || gradients.have_several_optimizers()) sum();
  if (request_.keeps_sums) unscale(gradients.reduced());
  gradients.refresh();
  for (const auto& [role, instruction] : bound.phase.instructions) {
    if (is_of_offload(instruction->kind)) {
      step_.bring(role, *instruction);
    } else if (const auto group = gradients.group_of(role, *instruction)) {
      update_group(*group);
    }
  }
  for (size_t i = gradients.groups(); i < gradients.updates().size(); ++i) update_group(i);
}

void StepEnd::update_group(size_t group) {
  const double factor = unscaled_ ? 1 : 1 / step_.loss_scale();
  for (auto& part : step_.gradients().updates()[group]) {
    Update& update = request_.update_of(part.optimizer);
    update.scale_gradients(factor);
    update_on_devices(update, summed_ ? part.summed : part.gradients, step_.team());
  }
}

// Once, where somebody looks at gradients that the update would sum as it reads them.
void StepEnd::sum() {
  if (step_.devices() == 1 || std::exchange(summed_, true)) return;
  step_.gradients().sum_into_first(step_.team());
}

}  // namespace epl

#include "verify/replayed_step.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "base/check.h"
#include "config/settings.h"
#include "ops/facts.h"
#include "runtime/merge_outputs.h"

namespace epl {
namespace {

// A tensor that the step writes and no optimizer updates; empty where there is none.
std::string written_state(const CompiledStep& step, const Model& model) {
  for (const auto& program : step.plan.programs) {
    for (int index : program.written_leaves) {
      const Leaf& leaf = step.graph.leaves[static_cast<size_t>(index)];
      const auto same = [&](const auto& entry) { return entry.second.is_same(leaf.tensor); };
      const auto& updated = model.parameters();
      if (std::none_of(updated.begin(), updated.end(), same)) return leaf.name;
    }
  }
  return "";
}

// Into how many parts the rows of a step are cut.
int parts_of(const BoundStep& step) {
  const std::vector<int>& devices = step.placement().role_devices;
  return step.placement().replicas * *std::max_element(devices.begin(), devices.end()) *
         step.plan().micro_batches;
}

// Into how many parts its sums are cut: over rows, or over the operators of a stage that is split.
int parts_of_sums(const BoundStep& step) {
  const Placement& placement = step.placement();
  int most = 1;
  for (int stage = 0; stage < placement.stages(); ++stage) {
    most = std::max(most, placement.devices_of_stage(stage));
  }
  return placement.replicas * most * step.plan().micro_batches;
}

// Why the step is by intention not the undivided one: the exceptions of docs/exactness.md.
std::string why_divided(const ReplayedStep& step) {
  if (parts_of(step.bound) == 1) return "";
  const Graph& graph = step.compiled.graph;
  if (draws_random_numbers(graph)) return "each part draws its own random numbers";
  if (takes_batch_statistics(graph)) return "batch norm takes its statistics from a part";
  const std::string state = written_state(step.compiled, step.model);
  if (!state.empty()) return concat("the step writes `", state, "` once for each part");
  if (step.bound.clips_each_replica()) return "communication.clip_after_allreduce = false";
  if (!averages_gradients(step.config)) return "communication.gradients_reduce_method = \"sum\"";
  if (step.bound.plan().scales_loss()) return "each part rounds its sums to amp.dtype";
  return "";
}

// The loss of all rows is that of slices of them, added up.
bool is_sum(const ReplayedStep& step) { return step.compiled.loss.kind == OverRows::kSum; }

// Why the plain program cannot stand in for devices that share the rows of a micro batch, where it
// has to; else empty.
std::string why_not_by_slices(const ReplayedStep& step) {
  const RowResult& loss = step.compiled.loss;
  const bool slices = step.bound.placement().role_devices[0] > 1;
  if (!slices || loss.kind != OverRows::kNeither) return "";
  const std::string divided = why_divided(step);
  if (divided.empty()) return "";
  return concat("its loss is neither a mean nor a sum over rows (", loss.why, "), and ", divided);
}

// The rows put together again, where the plain program can take them at once; else the reason.
void find_whole_batch(PlainRequest& request) {
  if (!request.divided.empty()) return;
  if (auto whole = whole_batch(request.batches, request.slices, request.workers)) {
    request.whole = std::move(*whole);
  } else {
    request.divided = "a tensor of the batch has no rows";
  }
}

PlainRequest request_for(const ReplayedStep& step, const DeviceBatches& batches) {
  const Placement& placement = step.bound.placement();
  const Plan& plan = step.bound.plan();
  const bool mean = averages_gradients(step.config);
  const int slices = placement.role_devices[0];
  PlainRequest request{batches};
  request.divided = why_divided(step);
  // Of the loss of what the plain program sees of a micro batch: a slice of its rows.
  request.seed = is_sum(step) ? plan.seed : plan.seed / slices;
  request.loss_scale = step.loss_scale;
  request.clip = step.clip;
  request.clips_locally = step.bound.clips_each_replica();
  request.local_scale = mean ? plan.replicas : 1;
  request.slices = std::min(slices, static_cast<int>(batches.size()));
  request.random_state = [&step, &placement](int device) {
    LocalReplica& replica = step.replicas[placement.has_roles() ? 0 : device];
    return replica.streams.default_generator().get_state();
  };
  request.devices = placement.replicas * slices;
  request.workers = step.workers;
  find_whole_batch(request);
  return request;
}

double sum_over_workers(double value, Communicator* workers) {
  if (workers == nullptr) return value;
  const at::Tensor sum = at::full({1}, value, at::kDouble);
  workers->all_reduce({sum}, ReduceOp::kSum);
  return sum.item<double>();
}

// What the parts of this worker gave, as a step reports it: that of all.
double loss_of_parts(double loss, const PlainRequest& request, const ReplayedStep& step) {
  const Plan& plan = step.bound.plan();
  if (is_sum(step)) loss *= step.bound.placement().role_devices[0];
  loss *= parts_in_loss(plan);
  loss *= static_cast<double>(request.batches.size()) / request.devices;
  return sum_over_workers(loss, request.workers);
}

// By name; those that are cut are put together.
std::map<std::string, at::Tensor> whole_gradients(const StepGradients& of_step) {
  std::map<std::string, at::Tensor> gradients;
  const std::vector<at::Tensor> reduced = of_step.reduced();
  for (size_t i = 0; i < reduced.size(); ++i) {
    const StepGradients::Entry& entry = of_step.entries()[i];
    at::Tensor& gradient = gradients[entry.name];
    if (!entry.shard.is_cut()) {
      gradient = reduced[i];
      continue;
    }
    if (!gradient.defined()) gradient = at::zeros_like(entry.parameter.detach());
    gradient.narrow(entry.shard.dim, entry.shard.piece.begin, entry.shard.piece.length)
        .copy_(reduced[i]);
  }
  return gradients;
}

}  // namespace

std::optional<PlainStep> run_beside(const ReplayedStep& step, const DeviceBatches& batches,
                                    const StateSnapshot& before) {
  const Placement& placement = step.bound.placement();
  EPL_CHECK(!placement.has_roles() || step.workers == nullptr,
            "the plain program cannot run beside stages or parts on several workers",
            step.config.asked_by("debug.verify_steps"), "all of them on one worker: EPL_DEVICES");
  if (placement.has_roles() && draws_random_numbers(step.compiled.graph)) {
    std::clog << "epl: step " << step.number
              << " is not verified: its devices draw random numbers of their own\n";
    return std::nullopt;
  }
  if (const std::string why = why_not_by_slices(step); !why.empty()) {
    std::clog << "epl: step " << step.number << " is not verified: " << why << "\n";
    return std::nullopt;
  }
  const PlainRequest request = request_for(step, batches);
  step.replicas.begin_step();
  PlainStep plain = run_plain_step(step.model, step.function, request, before);
  plain.parts = parts_of_sums(step.bound);
  plain.rounds_otherwise = step.bound.plan().scales_loss() && placement.splits();
  if (!request.divided.empty()) plain.loss = loss_of_parts(plain.loss, request, step);
  return plain;
}

void compare(const ReplayedStep& step, const PlainStep& plain, double loss) {
  const auto gradients = whole_gradients(step.bound.gradients());
  std::clog << "epl: "
            << compare_with_plain(plain, step.model, gradients, loss, step.number, step.config)
            << "\n";
}

}  // namespace epl

#include <algorithm>
#include <iostream>

#include "base/check.h"
#include "compile/outputs.h"
#include "driver/trainer_impl.h"
#include "runtime/merge_outputs.h"
#include "state/state_snapshot.h"

namespace epl {

namespace {

bool has_batch_norm(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    constexpr size_t kTraining = 5;
    const bool norm = node.op.schema().name().find("batch_norm") != std::string::npos;
    return norm && node.arguments.size() > kTraining &&
           node.arguments[kTraining].constant.isBool() &&
           node.arguments[kTraining].constant.toBool();
  });
}

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
int parts_of(const ReadyStep& ready) {
  const std::vector<int>& devices = ready.placement().stage_devices;
  return ready.placement().replicas * *std::max_element(devices.begin(), devices.end()) *
         ready.plan().micro_batches;
}

}  // namespace

// Why the step is by intention not the undivided one: the exceptions of docs/exactness.md.
std::string Trainer::Impl::why_divided(const ReadyStep& ready) const {
  if (parts_of(ready) == 1) return "";
  if (draws_random_numbers(ready.compiled().graph)) return "each part draws its own random numbers";
  if (has_batch_norm(ready.compiled().graph)) return "batch norm takes its statistics from a part";
  const std::string state = written_state(ready.compiled(), model);
  if (!state.empty()) return concat("the step writes `", state, "` once for each part");
  if (ready.bound().clips_each_replica()) return "communication.clip_after_allreduce = false";
  if (!takes_mean()) return "communication.gradients_reduce_method = \"sum\"";
  return "";
}

// None where the two draw random numbers that cannot be the same: in a pipeline, and where
// operators are cut, each device draws its own.
std::optional<PlainStep> Trainer::Impl::run_plainly(const DeviceBatches& batches) {
  const ReadyStep& ready = step_cache.find(batches[0][0], 0, steps);
  const Placement& placement = ready.placement();
  EPL_CHECK(!placement.has_roles() || job->workers() == nullptr,
            "the plain program cannot run beside stages or parts on several workers",
            config.asked_by("debug.verify_steps"), "all of them on one worker: EPL_DEVICES");
  if (placement.has_roles() && draws_random_numbers(ready.compiled().graph)) {
    std::clog << "epl: step " << steps
              << " is not verified: its devices draw random numbers of their own\n";
    return std::nullopt;
  }
  const StateSnapshot before = snapshot_of(ready.compiled());
  const int slices = placement.stage_devices[0];
  const int slices_here = std::min(slices, static_cast<int>(batches.size()));
  PlainRequest request{batches,
                       {},
                       why_divided(ready),
                       seed_for(ready.plan(), takes_mean(), slices),
                       clipping,
                       ready.bound().clips_each_replica(),
                       local_scale(ready),
                       slices_here,
                       {},
                       placement.replicas * slices,
                       job->workers()};
  if (request.divided.empty()) {
    if (auto whole = whole_batch(batches, slices_here, job->workers())) {
      request.whole = std::move(*whole);
    } else {
      request.divided = "a tensor of the batch has no rows";
    }
  }
  replicas.begin_step();
  request.random_state = [&](int device) {
    return replicas[placement.has_roles() ? 0 : device].streams.default_generator().get_state();
  };
  PlainStep plain = run_plain_step(model, function, request, before);
  plain.parts = parts_of(ready);
  if (request.divided.empty()) return plain;
  if (ready.plan().loss.merge == SliceMerge::kSum) plain.loss *= slices;
  plain.loss *= parts_in_loss(ready.plan());
  plain.loss *= static_cast<double>(batches.size()) / (placement.replicas * slices);
  plain.loss = sum_over_workers(plain.loss);
  return plain;
}

void Trainer::Impl::compare(const PlainStep& plain, ReadyStep& ready, double loss) {
  std::map<std::string, at::Tensor> gradients;
  const std::vector<at::Tensor> reduced = ready.bound().gradients().reduced();
  for (size_t i = 0; i < reduced.size(); ++i) {
    const StepGradients::Entry& entry = ready.bound().gradients().entries()[i];
    at::Tensor& gradient = gradients[entry.name];
    if (!entry.shard.is_cut()) {
      gradient = reduced[i];
      continue;
    }
    if (!gradient.defined()) gradient = at::zeros_like(entry.parameter.detach());
    gradient.narrow(entry.shard.dim, entry.shard.piece.begin, entry.shard.piece.length)
        .copy_(reduced[i]);
  }
  const std::string report = compare_with_plain(plain, model, gradients, loss, steps, config);
  std::clog << "epl: " << report << "\n";
}

}  // namespace epl

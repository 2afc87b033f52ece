#include "compile/outputs.h"

#include "compile/loss_of_parts.h"

namespace epl {
namespace {

void find_programs(Plan& plan) {
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    const auto program = static_cast<int>(i);
    for (const auto& outputs : plan.programs[i].outputs) {
      if (outputs.loss != kNoSlot) plan.loss.program = program;
      for (const auto& made : outputs.metrics) {
        for (auto& metric : plan.metrics) {
          if (metric.name == made.name) metric.program = program;
        }
      }
    }
  }
}

// Devices that a layer is split over all have its loss and metrics, those of slices aside.
void find_devices(const Placement& placement, bool of_slices, PlanOutput& output) {
  const int group = placement.group(output.program);
  output.devices = placement.devices_of_group(group);
  output.all_alike = placement.parts(group) > 1 && !of_slices;
}

double parts_of_loss(const Plan& plan, const TwoSizes& sizes, bool averages) {
  const double micro_batches = static_cast<double>(plan.replicas) * plan.micro_batches;
  double parts = micro_batches * plan.loss.devices;
  if (!averages && sizes.loss_of_parts == SliceMerge::kSum) parts /= micro_batches;
  return plan.loss.merge == SliceMerge::kSum ? parts / plan.loss.devices : parts;
}

void note_loss_of_parts(bool averages, TwoSizes& sizes, CompiledStep& step) {
  const int parts = step.plan.replicas * step.plan.micro_batches;
  if (parts < 2) return;
  const RowResult loss = loss_of_part(step, sizes);
  if (loss.kind == OverRows::kSum) sizes.loss_of_parts = SliceMerge::kSum;
  step.loss_remark = remark_on_loss(loss, parts, averages);
  step.metrics_remark = remark_on_metrics(step.graph, parts);
}

}  // namespace

double seed_for(const Plan& plan, bool averages, int slices) {
  const double of_slice = plan.loss.merge == SliceMerge::kMean ? 1.0 / slices : 1.0;
  const auto parts = static_cast<double>(plan.micro_batches);
  return averages ? of_slice / (parts * plan.replicas) : of_slice;
}

void settle_outputs(TwoSizes sizes, const CutStep& cut, const Config& config, CompiledStep& step) {
  Plan& plan = step.plan;
  const bool averages = config.get<std::string>("communication.gradients_reduce_method") == "mean";
  note_loss_of_parts(averages, sizes, step);
  const auto& metrics = step.graph.metrics;
  plan.loss.merge = sizes.loss;
  for (size_t i = 0; i < metrics.size(); ++i) {
    PlanOutput& output = plan.metrics.emplace_back();
    output.collection = metrics[i].collection;
    output.name = metrics[i].name;
    if (i >= sizes.metrics.size()) continue;
    output.merge = sizes.metrics[i];
    if (output.merge == SliceMerge::kConcat) output.batch_dim = sizes.metric_batch_dims[i];
  }
  find_programs(plan);
  find_devices(step.placement, cut.loss_of_slices, plan.loss);
  for (size_t i = 0; i < metrics.size(); ++i) {
    const bool of_slices = i < cut.metrics_of_slices.size() && cut.metrics_of_slices[i];
    find_devices(step.placement, of_slices, plan.metrics[i]);
  }
  plan.loss_parts = parts_of_loss(plan, sizes, averages);
  plan.seed = seed_for(plan, averages, plan.loss.slices());
}

}  // namespace epl

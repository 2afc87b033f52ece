#include "compile/outputs.h"

#include "config/settings.h"

namespace epl {
namespace {

void find_roles(Plan& plan) {
  for (size_t i = 0; i < plan.roles(); ++i) {
    const auto role = static_cast<int>(i);
    for (const auto& outputs : plan.program_of(i).outputs) {
      if (outputs.loss != kNoSlot) plan.loss.role = role;
      for (const auto& made : outputs.metrics) {
        for (auto& metric : plan.metrics) {
          if (metric.name == made.name) metric.role = role;
        }
      }
    }
  }
}

// Addends are summed, rows put one behind the other; what is whole they all have.
void find_devices(const Placement& placement, Layout layout, PlanOutput& output) {
  output.devices = placement.devices_of_stage(placement.stage_of(output.role));
  output.all_alike = output.devices > 1 && layout.is_whole();
  if (layout.is_partial()) output.merge = SliceMerge::kSum;
  if (layout.is_cut()) {
    output.merge = SliceMerge::kConcat;
    output.batch_dim = layout.dim;
  }
}

double parts_of_loss(const Plan& plan, bool sums_parts) {
  const double micro_batches = static_cast<double>(plan.replicas) * plan.micro_batches;
  const double parts = sums_parts ? 1 : micro_batches;
  return plan.loss.merge == SliceMerge::kSum ? parts : parts * plan.loss.devices;
}

}  // namespace

double seed_for(const Plan& plan, bool averages) {
  return averages ? 1.0 / (static_cast<double>(plan.micro_batches) * plan.replicas) : 1.0;
}

LayoutsOfRoles output_layouts(const Placement& placement, const SlicedSteps& sliced,
                              const CutStep& cut, size_t metrics) {
  LayoutsOfRoles layouts;
  for (int devices : placement.role_devices) {
    const auto found = sliced.find(devices);
    OutputLayouts& own = layouts.emplace_back();
    if (found != sliced.end()) {
      own = {found->second.sharding.loss, found->second.sharding.metrics};
    } else if (!placement.is_pipeline()) {
      own = {cut.loss, cut.metrics};
    }
    own.metrics.resize(metrics);
  }
  return layouts;
}

void settle_outputs(const LayoutsOfRoles& layouts, const Config& config, CompiledStep& step) {
  Plan& plan = step.plan;
  const bool averages = averages_gradients(config);
  const auto& metrics = step.graph.metrics;
  for (const auto& metric : metrics) {
    PlanOutput& output = plan.metrics.emplace_back();
    output.collection = metric.collection;
    output.name = metric.name;
  }
  find_roles(plan);
  const auto of = [&](const PlanOutput& output) {
    return layouts[static_cast<size_t>(output.role)];
  };
  find_devices(step.placement, of(plan.loss).loss, plan.loss);
  for (size_t i = 0; i < metrics.size(); ++i) {
    find_devices(step.placement, of(plan.metrics[i]).metrics[i], plan.metrics[i]);
  }
  plan.loss_parts = parts_of_loss(plan, !averages && step.loss.kind == OverRows::kSum);
  plan.seed = seed_for(plan, averages);
}

}  // namespace epl

#include "sim/measured_costs.h"

#include <algorithm>
#include <map>

#include "program/span_kind.h"

namespace epl {
namespace {

using TaskOfAny = std::pair<Span::Kind, int>;  // and chunk

// A last backward comes in pieces, with reductions in between: those of a micro batch count as one.
std::map<TaskOfAny, double> mean_task_seconds(const Timeline& timeline) {
  std::map<TaskOfAny, double> sums;
  std::map<TaskOfAny, std::map<std::pair<size_t, int>, bool>> runs;  // by device and micro batch
  for (size_t device = 0; device < timeline.devices.size(); ++device) {
    for (const auto& span : timeline.devices[device].spans) {
      const TaskOfAny task{span.kind, span.chunk};
      sums[task] += span.end - span.begin;
      runs[task][{device, span.micro_batch}] = true;
    }
  }
  for (auto& [task, sum] : sums) sum /= static_cast<double>(runs[task].size());
  return sums;
}

}  // namespace

PlanCosts measured_costs(const Timeline& timeline, const Plan& plan) {
  std::map<TaskOfAny, double> mean = mean_task_seconds(timeline);
  const auto update = mean[{Span::Kind::kUpdate, -1}];
  PlanCosts costs = stamped_costs(plan);
  costs.run = [mean, &plan](int role, const Instruction& run) {
    const Segment& segment =
        plan.program_of(static_cast<size_t>(role)).segments[static_cast<size_t>(run.segment)];
    const auto found = mean.find({span_kind(segment.kind), segment.chunk});
    const auto calls = static_cast<double>(segment.calls.size());
    const double share =
        calls == 0 ? 1 : (std::min<double>(run.end_call, calls) - run.first_call) / calls;
    return PlanCosts::Run{found == mean.end() ? 0 : found->second * share, 0};
  };
  costs.end = [update, &plan](int role, const Instruction& instruction) {
    if (instruction.kind != Instruction::Kind::kUpdate) return instruction.cost.seconds;
    const auto all = plan.program_of(static_cast<size_t>(role)).gradients.size();
    const auto some = instruction.gradients.size();
    return all == 0 ? 0 : update * static_cast<double>(some) / static_cast<double>(all);
  };
  return costs;
}

}  // namespace epl

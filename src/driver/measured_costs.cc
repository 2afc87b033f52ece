#include "driver/measured_costs.h"

#include <algorithm>
#include <map>

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

SimulatedCosts measured_costs(const Timeline& timeline, const Plan& plan) {
  std::map<TaskOfAny, double> mean = mean_task_seconds(timeline);
  SimulatedCosts costs;
  for (int chunk = 0; chunk < plan.schedule.chunks(); ++chunk) {
    costs.chunks.push_back({mean[{Span::Kind::kForward, chunk}],
                            mean[{Span::Kind::kBackward, chunk}],
                            mean[{Span::Kind::kWeights, chunk}]});
  }
  const double update = mean[{Span::Kind::kUpdate, -1}];
  costs.updates.assign(plan.schedule.stages.size(), update);
  return costs;
}

}  // namespace epl

#include "footprint/step_memory.h"

#include <cstdlib>
#include <iostream>
#include <set>

#include "comm/segment.h"
#include "model/model_state.h"
#include "model/plan_only.h"
#include "runtime/device_memory.h"
#include "state/memory_report.h"

namespace epl {
namespace {

// The tensors that a model keeps from step to step, each memory once.
struct KeptMemory {
  int64_t bytes = 0;    // resident
  int64_t counted = 0;  // of those, what an account of a device has as well
};

// What rests elsewhere is counted as it is brought. That in the memory of the host may lie in
// memory that a device counts.
KeptMemory kept_memory(const Model& model, const Offload* offload) {
  KeptMemory kept;
  std::set<const void*> seen;
  const auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.layout() != c10::kStrided) return;
    const bool rests = offload != nullptr && offload->homes().has(tensor);
    if (rests && offload->is_in_file()) return;
    const void* const data = tensor.storage().data();
    if (data == nullptr || !seen.insert(data).second) return;
    const int64_t bytes =
        DeviceMemory::resident(data, static_cast<int64_t>(tensor.storage().nbytes()));
    kept.bytes += rests ? 0 : bytes;
    if (DeviceMemory::counts(data)) kept.counted += bytes;
  };
  for (const auto& [name, tensor] : model.all_tensors()) add(tensor);
  for (const auto& [name, parameter] : model.parameters()) {
    for (const at::Tensor& state : model.states_of(parameter)) add(state);
  }
  return kept;
}

}  // namespace

MemoryReport forecast_step(const Plan& plan, const Placement& placement,
                           const MemorySubject& subject) {
  Job& job = subject.job;
  const Config& config = subject.config;
  StateMap state = state_of(subject.model, job.gradient_history(), placement);
  state.place(plan);
  if (subject.offload != nullptr) subject.offload->mark(state, &plan);
  MemorySources sources{plan, placement, job.cluster(), state};
  sources.made = states_made_with_optimizers(subject.model);
  sources.releases_others =
      job.workers() != nullptr && !config.get<bool>("pipeline.gather_parameters");
  sources.communicators = comm::Segment::mapped();
  if (config.get<bool>("communication.fp16")) {
    sources.halves = static_cast<int>(config.get<int64_t>("communication.num_communicators"));
  }
  return forecast_memory(sources);
}

// By the shortest way out: devices wait for a step that will not come, and there is nothing to
// save.
void end_where_only_planned(const Config& config, const std::function<MemoryReport()>& forecast) {
  if (!config.get<bool>("plan.only")) return;
  MemoryReport report = forecast();
  report.recording = 0;  // it took no memory
  std::cout << report.str();
  for (const std::string& assumed : planning_assumptions()) {
    std::cout << "  assumed: " << assumed << "\n";
  }
  std::cout << std::flush;
  std::_Exit(EXIT_SUCCESS);
}

void DeviceLaps::begin(DeviceTeam& team, const Offload* offload, NearAccount& spread) {
  spread.begin_lap();
  if (offload != nullptr) offload->homes().begin_lap();
  DeviceMemory::begin_lap_here();
  for (int device = 1; device < team.size(); ++device) team.memory(device).begin_lap();
}

void DeviceLaps::keep(DeviceTeam& team, const Offload* offload, const NearAccount& spread) {
  most_near_ = spread.most_near() + (offload == nullptr ? 0 : offload->homes().most_near());
  most_held_ = {DeviceMemory::account_here().lap_peak};
  for (int device = 1; device < team.size(); ++device) {
    most_held_.push_back(team.memory(device).account().lap_peak);
  }
}

// What is shared lies in memory of the program's own, or was made by the first device.
void DeviceLaps::add_to(MemoryReport::Worker& here, const Plan& plan,
                        const MemorySubject& subject) const {
  if (most_held_.empty()) return;
  const Offload* const offload = subject.offload;
  const KeptMemory kept = kept_memory(subject.model, offload);
  const int64_t written = offload == nullptr ? 0 : offload->bytes_written_by(plan);
  here.measured_shared = kept.bytes + comm::Segment::mapped() + most_near_ + written;
  for (size_t i = 0; i < most_held_.size(); ++i) {
    here.devices[i].measured = most_held_[i] - (i == 0 ? kept.counted : 0);
  }
}

}  // namespace epl

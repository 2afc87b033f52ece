// What a step of a trainer needs of memory, by its plan, and what the devices of this worker held
// in the last one.
//
//   DeviceLaps laps;
//   laps.begin(team, offload);  ... the devices run a step ...  laps.keep(team, offload);
//
//   MemoryReport report = forecast_step(plan, placement, {model, job, config, offload});
//   laps.add_to(report.workers[worker], plan, subject);  // measured, beside the forecast
#pragma once

#include <epl/config.h>
#include <epl/memory.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "job/job.h"
#include "model/model.h"
#include "offload/offload.h"
#include "program/placement.h"
#include "program/program.h"
#include "runtime/device_team.h"

namespace epl {

// Whose step it is.
struct MemorySubject {
  const Model& model;
  Job& job;
  const Config& config;
  const Offload* offload = nullptr;  // null where nothing is offloaded
};

// Of all workers (state/memory_report.h), with what the model's optimizers keep and what this
// process has made of ways to others.
MemoryReport forecast_step(const Plan& plan, const Placement& placement,
                           const MemorySubject& subject);

// With plan.only: prints the forecast of a step, and the process ends. Else nothing happens.
void end_where_only_planned(const Config& config, const std::function<MemoryReport()>& forecast);

// The accounts of the devices of this worker over one step. Device 0 is this thread, whatever
// memory it uses.
class DeviceLaps {
 public:
  static void begin(DeviceTeam& team, const Offload* offload, NearAccount& spread);
  void keep(DeviceTeam& team, const Offload* offload, const NearAccount& spread);

  // Nothing before a step was kept. What devices share, the tensors of the model, is measured as
  // they lie now.
  void add_to(MemoryReport::Worker& here, const Plan& plan, const MemorySubject& subject) const;

 private:
  // By device: bytes that it held at once in the last step that was replayed.
  std::vector<int64_t> most_held_;
  int64_t most_near_ = 0;  // bytes of what is offloaded, likewise
};

}  // namespace epl

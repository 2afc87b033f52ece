// Which changes of a configuration would make a step fit into a limit of bytes a device.
//
//   FittingReport report = what_fits({config, limit, plan});
//   std::cout << report.str();
//
// Tried are, each alone and then in pairs: recomputation within the limit, the further levels of
// zero.level and offload.level, twice the micro batches, and amp.level. Values that init() would
// refuse, since they do not exist yet or have no effect, are left out. What a change costs is asked
// of `plan`, so that nothing here knows how steps are recorded or compiled.
#pragma once

#include <epl/config.h>
#include <epl/memory.h>

#include <cstdint>
#include <functional>
#include <string>

namespace epl {

struct PlannedNeed {
  int64_t bytes = 0;   // of the device that holds most
  double seconds = 0;  // of a step, estimated
  // Why a step gives other numbers where its rows are cut into more micro batches, beyond the order
  // of sums and random numbers; empty where it does not.
  std::string by_rows = {};
};

struct FittingRequest {
  const Config& config;
  int64_t limit = 0;
  // Throws, mostly epl::Error, where a step cannot be planned so.
  std::function<PlannedNeed(const Config&)> plan = nullptr;
  bool several_workers = false;
  bool rows_can_be_halved = false;  // those of a micro batch
};

// Throws what `plan` throws for the configuration as it is. Where that has a memory.limit which
// cannot be kept, it is planned without one.
FittingReport what_fits(const FittingRequest& request);

}  // namespace epl

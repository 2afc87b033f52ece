// The ways between workers that the stages of a trainer need: for each set of workers that sum
// gradients of a stage, and for each pair of devices of neighbouring stages on different workers.
//
// Making them is a matter for all workers together, in the same order: each makes them once, with
// the first step that needs them, and keeps them for the steps of all shapes.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "driver/device_groups.h"
#include "driver/job.h"
#include "program/placement.h"
#include "runtime/stage_mail.h"

namespace epl {

class StageWays {
 public:
  StageWays(Job& job, const Placement& placement, const Config& config);
  ~StageWays();
  StageWays(const StageWays&) = delete;
  StageWays& operator=(const StageWays&) = delete;

  const Placement& placement() const { return placement_; }

  // For the gradients of a stage; none where one worker has all devices of it.
  const std::vector<Channel>& channels(int stage) const;

  // A communicator of all workers that have one of these stages, for the main thread; null where
  // that is this one alone. All workers make them beforehand.
  void make_group(const std::vector<int>& stages);
  Communicator* workers_of(const std::vector<int>& stages) const;

  // The device's end of the communicator of those that operators are cut over; null: none.
  Communicator* parts_of(int device) const { return groups_of_parts_.of(device); }
  // After a run in which a device failed.
  void renew_parts() { groups_of_parts_.renew(); }

  // Between devices of different workers.
  const std::vector<StageWay>& between_devices() const { return ways_; }
  Mailbox& mailbox() { return mailbox_; }

 private:
  std::vector<int> workers_with(const std::vector<int>& stages) const;
  void make_channels(Job& job, const Config& config);
  void make_ways(Job& job, const Config& config);

  const Placement placement_;
  const Cluster cluster_;
  Mailbox mailbox_;
  std::vector<const std::vector<Channel>*> by_stage_;
  // By stage, never shared: stages get ready in another order on each worker.
  std::vector<std::vector<Channel>> channels_;
  std::map<std::vector<int>, std::unique_ptr<Communicator>> groups_;  // by their workers
  DeviceGroups groups_of_parts_;
  Communicator* all_ = nullptr;
  std::vector<StageWay> ways_;
};

}  // namespace epl

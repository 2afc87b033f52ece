// The groups of devices along one axis of a mesh (layout/mesh.h), such as those that run a stage
// together, each with its piece: for every device of this worker its end of the communicator of its
// group.
//
//   DeviceGroups groups(links, {{0, 1}, {2, 3}});      // on all workers alike
//   links.team.run([&](int local) {
//     const CollectiveScope scope({{kPartAxis, groups.of(first + local)}});
//     ...
//   });
//
// Devices are numbered worker by worker. Where devices of one worker are all there is to a group,
// they read each other's memory; else the members are threads of several workers, over shared
// memory or TCP.
//
// A device that waits for others ends with Cancelled as soon as a device of this worker fails. The
// others of a group over several workers hear of it as of any failure of a worker: their Watch
// fails.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "runtime/worker_links.h"

namespace epl {

class DeviceGroups {
 public:
  // A group lists its devices in the order of their ranks; no device is in two groups. Made by the
  // main threads of all workers in the same order, with the same groups.
  DeviceGroups(const WorkerLinks& links, std::vector<std::vector<int>> groups);

  // For the thread of a device of this worker, by its number in the job; null where it is in no
  // group. Valid until renew().
  Communicator* of(int device) const;

  // After a run in which a device failed: calls may have been given up in the middle. Groups
  // within this worker are whole again; a failure with several workers ends their job.
  void renew();

 private:
  void connect(const std::vector<int>& group);
  CommunicatorOptions options_of(const std::vector<int>& group) const;
  bool is_here(int device) const;
  std::vector<int> workers_of(const std::vector<int>& group) const;  // by rank

  const WorkerLinks links_;
  const std::vector<std::vector<int>> groups_;
  std::vector<std::unique_ptr<Communicator>> ends_;  // by device of the job
};

}  // namespace epl

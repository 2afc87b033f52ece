// Connections: the routes between workers that the roles of a trainer need. For each set of
// workers that sum gradients of a role, and for each pair of devices of a replica on different
// workers. And the groups of devices that compute together, by axis of their mesh (layout/mesh.h).
//
// Making them is a matter for all workers together, in the same order: each makes them once, with
// the first step that needs them, and keeps them for the steps of all shapes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "program/placement.h"
#include "runtime/collectives.h"
#include "runtime/device_groups.h"
#include "runtime/mailbox.h"
#include "runtime/worker_links.h"

namespace epl {

class Connections {
 public:
  Connections(const WorkerLinks& links, const Placement& placement);
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  const Placement& placement() const { return placement_; }
  const Cluster& cluster() const { return links_.cluster; }
  Communicator* workers() const { return links_.workers; }  // all of them; null where there is one
  // Whether what a worker needs of a step may lie on another one.
  bool roles_on_workers() const { return placement_.has_roles() && workers() != nullptr; }

  // For the gradients of a role; none where one worker has all devices of it.
  const std::vector<Route>& routes(int role) const;

  // The workers that have a device of one of these roles, in order.
  std::vector<int> workers_with(const std::vector<int>& roles) const;

  // Those that have a role: how many devices of it each has, and the place of this one among them.
  struct Sharers {
    std::vector<int> devices;
    int rank = -1;  // -1: this worker has none
  };
  const Sharers& sharers_of(int role) const { return sharers_[static_cast<size_t>(role)]; }

  // A communicator of all workers that have one of these roles, for the main thread; null where
  // that is this one alone. All workers make them beforehand.
  void make_group(const std::vector<int>& roles);
  Communicator* workers_of(const std::vector<int>& roles) const;

  // The groups of devices along an axis of the meshes of their stages. Those along "part" are there
  // where a stage has several devices; others are made for the first step that names their axis, by
  // all workers together.
  void make_groups_along(const std::string& axis);
  // The ends of a device of this worker, by axis.
  AxisGroups groups_of(int device) const;
  // After a run in which a device failed.
  void renew_groups();

  // For what workers of a role keep of its parameters and others fetch; of a role that is here.
  // All workers make it beforehand, where several have the role.
  void make_fetch_route(int role);
  const Route& fetch_route(int role) const { return fetch_routes_.at(role); }
  Watch& watch() const { return links_.watch; }
  std::chrono::milliseconds deadline() const { return links_.deadline; }

  // Between devices of different workers.
  const std::vector<DeviceRoute>& between_devices() const { return between_devices_; }
  Mailbox& mailbox() { return mailbox_; }

 private:
  Sharers find_sharers(int role) const;
  void make_routes();
  void make_device_routes();

  const WorkerLinks links_;
  const Placement placement_;
  std::vector<Sharers> sharers_;  // by role
  Mailbox mailbox_;
  std::vector<const std::vector<Route>*> by_role_;
  // By role, never shared: roles get ready in another order on each worker.
  std::vector<std::vector<Route>> routes_;
  std::map<std::vector<int>, std::unique_ptr<Communicator>> groups_;  // by their workers
  std::map<std::string, DeviceGroups> groups_by_axis_;
  std::map<int, Route> fetch_routes_;  // by role
  std::vector<DeviceRoute> between_devices_;
};

}  // namespace epl

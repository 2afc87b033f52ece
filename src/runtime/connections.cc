#include "runtime/connections.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/text.h"

namespace epl {
namespace {

bool has(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// Whoever is alone along the axis has nobody to talk to.
std::vector<std::vector<int>> groups_of_several(std::vector<std::vector<int>> groups) {
  groups.erase(std::remove_if(groups.begin(), groups.end(),
                              [](const auto& group) { return group.size() == 1; }),
               groups.end());
  return groups;
}

}  // namespace

Connections::Connections(const WorkerLinks& links, const Placement& placement)
    : links_(links),
      placement_(placement),
      mailbox_(links.watch, links.deadline, links.cluster.local_devices()) {
  for (int role = 0; role < placement.roles(); ++role) sharers_.push_back(find_sharers(role));
  groups_by_axis_.try_emplace(kPartAxis, links,
                              groups_of_several(placement.groups_along(kPartAxis)));
  if (!roles_on_workers()) {
    by_role_.assign(static_cast<size_t>(placement.roles()), &links.routes);
    return;
  }
  make_routes();
  make_device_routes();
}

// The lanes end before the communicators that they drive.
Connections::~Connections() {
  for (auto& each : between_devices_) each.route.lane.reset();
  for (auto& routes : routes_) {
    for (auto& route : routes) route.lane.reset();
  }
  for (auto& [role, route] : fetch_routes_) route.lane.reset();
}

std::vector<int> Connections::workers_with(const std::vector<int>& roles) const {
  std::set<int> workers;
  for (int role : roles) {
    for (int worker : placement_.workers_of(role, links_.cluster)) workers.insert(worker);
  }
  return {workers.begin(), workers.end()};
}

Connections::Sharers Connections::find_sharers(int role) const {
  Sharers sharers;
  for (int worker : workers_with({role})) {
    if (worker == links_.cluster.worker_index) {
      sharers.rank = static_cast<int>(sharers.devices.size());
    }
    const auto devices = placement_.devices_of(role, worker, links_.cluster);
    sharers.devices.push_back(static_cast<int>(devices.size()));
  }
  return sharers;
}

void Connections::make_routes() {
  routes_.resize(static_cast<size_t>(placement_.roles()));
  for (int role = 0; role < placement_.roles(); ++role) {
    const std::vector<int> workers = workers_with({role});
    auto& routes = routes_[static_cast<size_t>(role)];
    by_role_.push_back(&routes);
    if (workers.size() == 1) continue;
    for (size_t i = 0; i < links_.routes.size(); ++i) {
      auto group = links_.routes[i].communicator->group(workers);
      auto lane =
          std::make_unique<Lane>(concat("epl role ", role, ".", i), links_.watch, links_.deadline);
      routes.push_back({std::move(group), std::move(lane)});
    }
  }
}

// One for each pair of devices of a replica that lie on different workers: which of them have
// something to say to each other depends on the step.
void Connections::make_device_routes() {
  const Cluster& cluster = links_.cluster;
  for (int from = 0; from < cluster.total_gpu_num; ++from) {
    for (int to = 0; to < cluster.total_gpu_num; ++to) {
      const Place sender = placement_.place(from);
      const Place receiver = placement_.place(to);
      const int ends[] = {worker_of(from, cluster), worker_of(to, cluster)};
      if (sender.replica != receiver.replica || sender.role == receiver.role) continue;
      if (ends[0] == ends[1]) continue;
      auto communicator = links_.workers->group({ends[0], ends[1]});
      if (!has({ends[0], ends[1]}, cluster.worker_index)) continue;
      DeviceRoute made;
      made.from = from;
      made.to = to;
      made.peer_rank = ends[0] == cluster.worker_index ? 1 : 0;
      made.route.communicator = std::move(communicator);
      made.route.lane =
          std::make_unique<Lane>(concat("epl ", from, " to ", to), links_.watch, links_.deadline);
      between_devices_.push_back(std::move(made));
    }
  }
}

void Connections::make_group(const std::vector<int>& roles) {
  const std::vector<int> workers = workers_with(roles);
  const bool whole = static_cast<int>(workers.size()) == links_.cluster.worker_num;
  if (whole || workers.size() == 1 || groups_.count(workers) != 0) return;
  groups_[workers] = links_.workers->group(workers);
}

void Connections::make_fetch_route(int role) {
  if (fetch_routes_.count(role) != 0) return;
  Route& made = fetch_routes_[role];
  made.communicator = links_.workers->group(workers_with({role}));
  if (made.communicator == nullptr) return;
  made.lane = std::make_unique<Lane>(concat("epl fetch ", role), links_.watch, links_.deadline);
}

void Connections::make_groups_along(const std::string& axis) {
  if (groups_by_axis_.count(axis) != 0) return;
  groups_by_axis_.try_emplace(axis, links_, placement_.groups_along(axis));
}

AxisGroups Connections::groups_of(int device) const {
  AxisGroups groups;
  for (const auto& [axis, ends] : groups_by_axis_) {
    if (Communicator* end = ends.of(device)) groups.push_back({axis, end});
  }
  return groups;
}

void Connections::renew_groups() {
  for (auto& [axis, ends] : groups_by_axis_) ends.renew();
}

const std::vector<Route>& Connections::routes(int role) const {
  return *by_role_[static_cast<size_t>(role)];
}

Communicator* Connections::workers_of(const std::vector<int>& roles) const {
  const std::vector<int> workers = workers_with(roles);
  if (workers.size() == 1) return nullptr;
  if (static_cast<int>(workers.size()) == links_.cluster.worker_num) return links_.workers;
  const auto group = groups_.find(workers);
  EPL_ASSERT(group != groups_.end(),
             concat("no communicator of workers ", join(workers, " "), " was made"));
  return group->second.get();
}

}  // namespace epl

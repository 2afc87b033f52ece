#include "runtime/device_groups.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "program/placement.h"

namespace epl {
namespace {

bool all_equal(const std::vector<int>& list) {
  return std::all_of(list.begin(), list.end(), [&](int each) { return each == list[0]; });
}

}  // namespace

DeviceGroups::DeviceGroups(const WorkerLinks& links, std::vector<std::vector<int>> groups)
    : links_(links),
      groups_(std::move(groups)),
      ends_(static_cast<size_t>(links.cluster.total_gpu_num)) {
  std::set<int> seen;
  for (const std::vector<int>& group : groups_) {
    EPL_ASSERT(!group.empty(), "a group has a device");
    for (const int device : group) {
      EPL_ASSERT(device >= 0 && device < links.cluster.total_gpu_num,
                 concat("device ", device, " of ", links.cluster.total_gpu_num));
      EPL_ASSERT(seen.insert(device).second, concat("device ", device, " is in one group"));
    }
    connect(group);
  }
}

Communicator* DeviceGroups::of(int device) const {
  EPL_ASSERT(is_here(device), concat("device ", device, " is one of another worker"));
  return ends_[static_cast<size_t>(device)].get();
}

void DeviceGroups::renew() {
  for (const std::vector<int>& group : groups_) {
    if (all_equal(workers_of(group))) connect(group);
  }
}

bool DeviceGroups::is_here(int device) const {
  return worker_of(device, links_.cluster) == links_.cluster.worker_index;
}

std::vector<int> DeviceGroups::workers_of(const std::vector<int>& group) const {
  std::vector<int> workers;
  for (const int device : group) workers.push_back(worker_of(device, links_.cluster));
  return workers;
}

CommunicatorOptions DeviceGroups::options_of(const std::vector<int>& group) const {
  CommunicatorOptions options;
  options.name = concat("devices ", join(group, ", "));
  options.deadline = links_.deadline;
  options.meanwhile = [&team = links_.team] {
    if (team.cancelled()) throw Cancelled();
  };
  return options;
}

void DeviceGroups::connect(const std::vector<int>& group) {
  const std::vector<int> workers = workers_of(group);
  std::vector<std::unique_ptr<Communicator>> made;
  if (!all_equal(workers)) {
    made = links_.membership->make_communicators(workers, options_of(group));
  } else if (is_here(group[0])) {
    made =
        make_local_communicators(static_cast<int>(group.size()), links_.watch, options_of(group));
  }
  auto end = made.begin();
  for (const int device : group) {
    if (end != made.end() && is_here(device))
      ends_[static_cast<size_t>(device)] = std::move(*end++);
  }
}

}  // namespace epl

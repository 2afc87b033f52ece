#include "driver/stage_ways.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace epl {
namespace {

std::chrono::milliseconds deadline_of(const Config& config) {
  return std::chrono::seconds(config.get<int64_t>("communication.wait_seconds"));
}

bool has(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// For each replica the devices that its operators are cut over.
std::vector<std::vector<int>> groups_of_parts(const Placement& placement) {
  std::vector<std::vector<int>> groups;
  for (int replica = 0; replica < placement.replicas; ++replica) {
    for (int group = 0; group < placement.groups(); ++group) {
      const std::vector<int> stages = placement.stages_of(group);
      if (stages.size() == 1) continue;
      std::vector<int>& devices = groups.emplace_back();
      for (int stage : stages) devices.push_back(placement.device({replica, stage, 0}));
    }
  }
  return groups;
}

}  // namespace

StageWays::StageWays(Job& job, const Placement& placement, const Config& config)
    : placement_(placement),
      cluster_(job.cluster()),
      mailbox_(job.watch(), deadline_of(config), job.cluster().local_devices()),
      groups_of_parts_(job, groups_of_parts(placement), config),
      all_(job.workers()) {
  if (!placement.has_roles() || job.workers() == nullptr) {
    by_stage_.assign(static_cast<size_t>(placement.stages()), &job.channels());
    return;
  }
  make_channels(job, config);
  make_ways(job, config);
}

// The lanes end before the communicators that they drive.
StageWays::~StageWays() {
  for (auto& way : ways_) way.lane.reset();
  for (auto& channels : channels_) {
    for (auto& channel : channels) channel.lane.reset();
  }
}

std::vector<int> StageWays::workers_with(const std::vector<int>& stages) const {
  std::set<int> workers;
  for (int stage : stages) {
    for (int worker : placement_.workers_of(stage, cluster_)) workers.insert(worker);
  }
  return {workers.begin(), workers.end()};
}

void StageWays::make_channels(Job& job, const Config& config) {
  channels_.resize(static_cast<size_t>(placement_.stages()));
  for (int stage = 0; stage < placement_.stages(); ++stage) {
    const std::vector<int> workers = workers_with({stage});
    auto& channels = channels_[static_cast<size_t>(stage)];
    by_stage_.push_back(&channels);
    if (workers.size() == 1) continue;
    for (size_t i = 0; i < job.channels().size(); ++i) {
      auto group = job.channels()[i].communicator->group(workers);
      auto lane = std::make_unique<Lane>(concat("epl stage ", stage, ".", i), job.watch(),
                                         deadline_of(config));
      channels.push_back({std::move(group), std::move(lane)});
    }
  }
}

// One for each pair of devices of a replica that lie on different workers: which of them have
// something to say to each other depends on the step.
void StageWays::make_ways(Job& job, const Config& config) {
  for (int from = 0; from < cluster_.total_gpu_num; ++from) {
    for (int to = 0; to < cluster_.total_gpu_num; ++to) {
      const Place sender = placement_.place(from);
      const Place receiver = placement_.place(to);
      const int ends[] = {worker_of(from, cluster_), worker_of(to, cluster_)};
      if (sender.replica != receiver.replica || sender.stage == receiver.stage) continue;
      if (ends[0] == ends[1]) continue;
      auto communicator = job.workers()->group({ends[0], ends[1]});
      if (!has({ends[0], ends[1]}, cluster_.worker_index)) continue;
      StageWay way;
      way.from = from;
      way.to = to;
      way.peer_rank = ends[0] == cluster_.worker_index ? 1 : 0;
      way.communicator = std::move(communicator);
      way.lane = std::make_unique<Lane>(concat("epl ", from, " to ", to), job.watch(),
                                        deadline_of(config));
      ways_.push_back(std::move(way));
    }
  }
}

void StageWays::make_group(const std::vector<int>& stages) {
  const std::vector<int> workers = workers_with(stages);
  const bool whole = static_cast<int>(workers.size()) == cluster_.worker_num;
  if (whole || workers.size() == 1 || groups_.count(workers) != 0) return;
  groups_[workers] = all_->group(workers);
}

const std::vector<Channel>& StageWays::channels(int stage) const {
  return *by_stage_[static_cast<size_t>(stage)];
}

Communicator* StageWays::workers_of(const std::vector<int>& stages) const {
  const std::vector<int> workers = workers_with(stages);
  if (workers.size() == 1) return nullptr;
  const auto group = groups_.find(workers);
  return group == groups_.end() ? all_ : group->second.get();
}

}  // namespace epl

#include "config/cluster_map.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace epl {
namespace {

constexpr double kGiga = 1e9;
constexpr double kGibibyte = 1024.0 * 1024 * 1024;
constexpr double kMicro = 1e-6;

// The last run that begins at or before `index`. Runs are not empty.
size_t run_with(const std::vector<int64_t>& firsts, int64_t index) {
  return static_cast<size_t>(std::upper_bound(firsts.begin(), firsts.end(), index) -
                             firsts.begin()) -
         1;
}

// What is reached of a device by large works: what plans by ClusterShape compare.
DeviceSpeed speed_of(const DeviceKind& kind) {
  const auto best = [](const EfficiencyCurve& curve) {
    return curve.empty() ? 1.0 : curve.front().share;
  };
  DeviceSpeed speed;
  speed.flops_per_second = kind.flops_of("f32") * best(kind.product_efficiency);
  speed.bytes_per_second = kind.memory_gbps * kGiga * best(kind.memory_efficiency);
  speed.seconds_per_call = kind.call_us * kMicro;
  return speed;
}

// A Link counts the bytes that leave a member, while what a link in memory moves is read and
// written: twice for a tensor that is sent, and in an all_reduce of two as often as
// docs/planner.md says.
Link as_link(const LinkKind& kind) {
  const bool in_memory =
      kind.algorithm == LinkAlgorithm::kThreads || kind.algorithm == LinkAlgorithm::kSharedMemory;
  double reduced = 1;
  if (kind.algorithm == LinkAlgorithm::kThreads) reduced = 2;
  if (kind.algorithm == LinkAlgorithm::kSharedMemory) reduced = 5;
  Link link;
  link.seconds_per_call = kind.us * kMicro;
  link.bytes_per_second = kind.bytes_per_second() / reduced;
  link.sent_bytes_per_second = kind.bytes_per_second() / (in_memory ? 2 : 1);
  return link;
}

void set_links(ClusterShape& shape, const ClusterMap& map) {
  const ClusterDescription& description = map.description();
  const HostRun& first = description.hosts.front();
  shape.link_in_worker = as_link(description.links[first.inside]);
  shape.link_in_host = as_link(description.links[first.between_workers]);
  shape.link_between_hosts =
      map.levels() == 0 ? shape.link_in_host : as_link(map.link_at(map.levels(), 0));
}

DeviceSpeed slower_of(const DeviceSpeed& a, const DeviceSpeed& b) {
  return {std::min(a.flops_per_second, b.flops_per_second),
          std::min(a.bytes_per_second, b.bytes_per_second),
          std::max(a.seconds_per_call, b.seconds_per_call)};
}

// Of consecutive devices; the others wait for the slowest.
DeviceSpeed speed_of_devices(const ClusterMap& map, int64_t first, int64_t count) {
  DeviceSpeed speed = speed_of(map.kind_of(first));
  for (int64_t device = first + 1; device < first + count; ++device) {
    speed = slower_of(speed, speed_of(map.kind_of(device)));
  }
  return speed;
}

}  // namespace

double efficiency_at(const EfficiencyCurve& curve, double size) {
  if (curve.empty()) return 1;
  if (size >= curve.front().size) return curve.front().share;
  for (size_t i = 1; i < curve.size(); ++i) {
    const EfficiencyPoint& larger = curve[i - 1];
    const EfficiencyPoint& smaller = curve[i];
    if (size < smaller.size) continue;
    const double part = std::log(size / smaller.size) / std::log(larger.size / smaller.size);
    return smaller.share * std::pow(larger.share / smaller.share, part);
  }
  return curve.back().share;
}

double DeviceKind::flops_of(const std::string& dtype) const {
  const auto found = flops.find(dtype);
  return found != flops.end() ? found->second : flops.at("f32");
}

int64_t DeviceKind::memory_bytes() const {
  return static_cast<int64_t>(std::llround(memory_gib * kGibibyte));
}

int64_t HostRun::devices_of_host() const {
  int64_t sum = 0;
  for (const DevicesOfKind& run : devices) sum += run.count;
  return sum;
}

ClusterMap::ClusterMap(ClusterDescription description) : description_(std::move(description)) {
  first_hosts_ = {0};
  first_devices_ = {0};
  for (const HostRun& run : description_.hosts) {
    first_hosts_.push_back(first_hosts_.back() + run.count);
    first_devices_.push_back(first_devices_.back() + run.count * run.devices_of_host());
    std::vector<int64_t>& firsts = first_indices_.emplace_back();
    int64_t index = 0;
    for (const DevicesOfKind& devices : run.devices) {
      firsts.push_back(index);
      index += devices.count;
    }
  }
  EPL_ASSERT(devices() > 0, "a cluster has devices");
}

DevicePlace ClusterMap::place_of(int64_t device) const {
  EPL_ASSERT(device >= 0 && device < devices(),
             concat("device ", device, " of ", devices(), " of ", description_.name));
  DevicePlace place;
  place.run = run_with(first_devices_, device);
  const HostRun& run = description_.hosts[place.run];
  const int64_t within = device - first_devices_[place.run];
  place.host = first_hosts_[place.run] + within / run.devices_of_host();
  place.index = within % run.devices_of_host();
  place.kind = run.devices[run_with(first_indices_[place.run], place.index)].kind;
  return place;
}

size_t ClusterMap::run_of(int64_t host) const {
  EPL_ASSERT(host >= 0 && host < hosts(), concat("host ", host, " of ", hosts()));
  return run_with(first_hosts_, host);
}

int64_t ClusterMap::first_device_of(int64_t host) const {
  const size_t run = run_of(host);
  return first_devices_[run] +
         (host - first_hosts_[run]) * description_.hosts[run].devices_of_host();
}

const DeviceKind& ClusterMap::kind_of(int64_t device) const {
  return description_.kinds[place_of(device).kind];
}

int ClusterMap::level_between(int64_t device, int64_t other) const {
  const int64_t a = place_of(device).host;
  const int64_t b = place_of(other).host;
  if (a == b) return 0;
  for (int level = 1; level <= levels(); ++level) {
    const int64_t hosts = description_.levels[static_cast<size_t>(level - 1)].hosts;
    if (a / hosts == b / hosts) return level;
  }
  EPL_ASSERT(false, "the last level joins all hosts");
}

const LinkKind& ClusterMap::link_at(int level, size_t run) const {
  if (level > 0) {
    return description_.links[description_.levels.at(static_cast<size_t>(level - 1)).link];
  }
  const HostRun& hosts = description_.hosts.at(run);
  const bool threads = description_.workers == ClusterDescription::Workers::kHost;
  return description_.links[threads ? hosts.inside : hosts.between_workers];
}

ClusterShape shape_of(const ClusterMap& map) {
  ClusterShape shape;
  shape.worker_devices.clear();
  shape.worker_hosts.clear();
  shape.worker_speeds.clear();
  const bool one_a_host = map.description().workers == ClusterDescription::Workers::kHost;
  for (int64_t host = 0; host < map.hosts(); ++host) {
    const int64_t first = map.first_device_of(host);
    const int64_t devices = map.description().hosts[map.run_of(host)].devices_of_host();
    const int64_t workers = one_a_host ? 1 : devices;
    for (int64_t worker = 0; worker < workers; ++worker) {
      const int64_t count = devices / workers;
      shape.worker_devices.push_back(static_cast<int>(count));
      shape.worker_hosts.push_back(concat("host ", host));
      shape.worker_speeds.push_back(speed_of_devices(map, first + worker * count, count));
    }
  }
  shape.worker_num = static_cast<int>(shape.worker_devices.size());
  shape.total_gpu_num = static_cast<int>(map.devices());
  if (shape.worker_num == 1) shape.worker_hosts = {""};
  set_links(shape, map);
  return shape;
}

void describe_speeds(ClusterShape& job, const ClusterMap& map, const std::string& asked_by) {
  EPL_CHECK(job.total_gpu_num <= map.devices(),
            concat(map.description().name, " describes ", map.devices(),
                   " devices, and this job has ", job.total_gpu_num),
            asked_by, "a description of this cluster: epl-plan --calibrate makes one");
  job.worker_speeds.clear();
  int64_t first = 0;
  for (const int devices : job.worker_devices) {
    job.worker_speeds.push_back(speed_of_devices(map, first, devices));
    first += devices;
  }
  set_links(job, map);
}

}  // namespace epl

// ClusterMap: a cluster that is described, whether or not anybody has it: hosts, devices, links.
//
//   const ClusterMap map = load_cluster("selene_3072", asked_by);     // config/cluster_file.h
//   map.devices();                 // 3072
//   map.place_of(1001);            // host 125, device 1 of it, of kind 0
//   map.level_between(0, 9);       // 1: not on one host, and the first of `levels` joins those
//
// Equal hosts are written once, with their number, and every question is answered from sums over
// such runs: ten thousand devices cost what two do. Units are those of the file (docs/planner.md),
// so that what is read prints the same; functions give seconds and bytes.
#pragma once

#include <epl/cluster.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace epl {

// How much of its peak a device reaches, by the size of the work: points by falling size. Between
// them the logarithms are interpolated, outside of them the nearest holds. A larger work never
// takes less time: the file is refused where it would.
struct EfficiencyPoint {
  double size = 0;
  double share = 1;
};
using EfficiencyCurve = std::vector<EfficiencyPoint>;
double efficiency_at(const EfficiencyCurve& curve, double size);  // 1 where there are no points

// What a kind of device does without traffic between operators.
enum class Fuses : uint8_t { kPointwise, kAttention };

struct DeviceKind {
  std::string name;
  std::map<std::string, double> flops;  // a second, by the name of the element type: f32, bf16, ...
  double memory_gib = 0;
  double memory_gbps = 0;              // what one device reads and writes
  double call_us = 0;                  // of each operator
  EfficiencyCurve product_efficiency;  // by GFLOP of a product
  EfficiencyCurve memory_efficiency;   // by MB of an operator's traffic
  std::vector<Fuses> fuses;
  std::string costs;  // a file of measured costs; "" where there is none

  // Of a type that the file does not name: those of f32.
  double flops_of(const std::string& dtype) const;
  int64_t memory_bytes() const;
};

// What a collective does on a link (cost/collective_cost.h).
enum class LinkAlgorithm : uint8_t {
  kThreads,       // devices read each other's memory: comm/local.cc
  kSharedMemory,  // by rounds through memory between processes: comm/shared_memory.cc
  kDirect,        // all to all in one or two steps: comm/tcp.cc
  kRing,          // as libraries of accelerators have it
};

struct LinkKind {
  std::string name;
  double gbps = 0;        // that a device moves
  double us = 0;          // of a step of a collective
  double message_us = 0;  // of each message of a step
  double efficiency = 1;  // what is reached of gbps
  int64_t ports = 1;      // that a host has; only where the link joins hosts
  LinkAlgorithm algorithm = LinkAlgorithm::kDirect;

  double bytes_per_second() const { return gbps * 1e9 * efficiency; }
};

struct DevicesOfKind {
  size_t kind = 0;  // of ClusterDescription::kinds
  int64_t count = 1;
};

struct OffloadSpace {
  double gib = 0;   // of a host
  size_t link = 0;  // of a device to it
};

// Hosts that are alike, one after the other.
struct HostRun {
  int64_t count = 1;
  std::vector<DevicesOfKind> devices;
  size_t inside = 0;                  // the link between devices of a worker
  size_t between_workers = 0;         // and between workers of the host
  std::vector<OffloadSpace> offload;  // none or one
  double cores = 0;                   // that its devices share; 0: each has its own
  double memory_gbps = 0;             // that its devices share; 0: each has its own

  int64_t devices_of_host() const;
};

// Groups of so many consecutive hosts are joined by a link. The last level joins all.
struct HostLevel {
  int64_t hosts = 1;
  size_t link = 0;
};

// What a file says.
struct ClusterDescription {
  enum class Workers : uint8_t { kDevice, kHost };  // a process for each of them

  std::string name;  // for messages
  std::vector<DeviceKind> kinds;
  std::vector<LinkKind> links;
  std::vector<HostRun> hosts;
  std::vector<HostLevel> levels;  // none where there is one host
  Workers workers = Workers::kDevice;
};

struct DevicePlace {
  int64_t host = 0;
  int64_t index = 0;  // among the devices of the host
  size_t kind = 0;
  size_t run = 0;  // of hosts
};

class ClusterMap {
 public:
  explicit ClusterMap(ClusterDescription description);

  const ClusterDescription& description() const { return description_; }
  int64_t devices() const { return first_devices_.back(); }
  int64_t hosts() const { return first_hosts_.back(); }

  DevicePlace place_of(int64_t device) const;
  int64_t first_device_of(int64_t host) const;
  size_t run_of(int64_t host) const;
  const DeviceKind& kind_of(int64_t device) const;

  // 0: on one host. Else the number of the first of `levels`, from 1, that joins their hosts.
  int level_between(int64_t device, int64_t other) const;
  int levels() const { return static_cast<int>(description_.levels.size()); }
  // The link of a level; of level 0 that of devices in this run of hosts.
  const LinkKind& link_at(int level, size_t run) const;

 private:
  ClusterDescription description_;
  // Of each run of hosts, and behind the last one.
  std::vector<int64_t> first_hosts_;
  std::vector<int64_t> first_devices_;
  // Of each run: the first index of each run of devices in a host.
  std::vector<std::vector<int64_t>> first_indices_;
};

// The cluster as compile() takes it: workers and devices by number, one speed a worker.
ClusterShape shape_of(const ClusterMap& map);

// How fast the devices and links of a job are, by a map in which its devices are the first ones.
// Throws epl::Error where the map has fewer devices than the job; `asked_by`: whom it names.
void describe_speeds(ClusterShape& job, const ClusterMap& map, const std::string& asked_by);

}  // namespace epl

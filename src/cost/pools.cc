#include "cost/pools.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "cost/cost.h"

namespace epl {
namespace {

// The links that join hosts, each once.
std::vector<size_t> links_between_hosts(const ClusterDescription& cluster) {
  std::set<size_t> links;
  for (const HostLevel& level : cluster.levels) links.insert(level.link);
  return {links.begin(), links.end()};
}

}  // namespace

std::string Pool::str() const {
  const char* const names[] = {"cores", "memory", "ports"};
  const std::string hosts_text =
      hosts == 1 ? concat("host ", first_host)
                 : concat("each of the hosts ", first_host, " to ", first_host + hosts - 1);
  const std::string much = of == Of::kCores ? concat(capacity) : concat(capacity / kGiga, " GB/s");
  return concat(names[static_cast<size_t>(of)], " of ", hosts_text, ", ", devices,
                " devices: ", much);
}

std::vector<Pool> pools_of(const ClusterMap& map) {
  const ClusterDescription& cluster = map.description();
  const std::vector<size_t> between = links_between_hosts(cluster);
  std::vector<Pool> pools;
  int64_t first_host = 0;
  for (const HostRun& run : cluster.hosts) {
    Pool pool;
    pool.first_host = first_host;
    pool.hosts = run.count;
    pool.devices = run.devices_of_host();
    const auto add = [&](Pool::Of of, double capacity, size_t link) {
      pool.of = of;
      pool.capacity = capacity;
      pool.link = link;
      pools.push_back(pool);
    };
    if (run.cores > 0) add(Pool::Of::kCores, run.cores, 0);
    if (run.memory_gbps > 0) add(Pool::Of::kMemory, run.memory_gbps * kGiga, 0);
    for (const size_t link : between) {
      const LinkKind& kind = cluster.links[link];
      if (kind.ports >= pool.devices) continue;  // each device has one
      add(Pool::Of::kPorts, static_cast<double>(kind.ports) * kind.bytes_per_second(), link);
    }
    first_host += run.count;
  }
  return pools;
}

double rate_in(const Pool& pool, double alone, int64_t users) {
  EPL_ASSERT(users >= 1, "somebody uses a pool");
  return std::min(alone, pool.capacity / static_cast<double>(users));
}

}  // namespace epl

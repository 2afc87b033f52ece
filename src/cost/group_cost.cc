// Collectives of a group whose members are on several hosts: CostModel's answers about them.
#include <algorithm>

#include "base/check.h"
#include "cost/cost_model.h"

namespace epl {
namespace {

// Which of two links is the slower one for a call of some size.
bool is_slower(const LinkKind& a, const LinkKind& b) {
  return link_seconds(a, Collective::kAllReduce, kMega, 2) >
         link_seconds(b, Collective::kAllReduce, kMega, 2);
}

}  // namespace

GroupShape CostModel::group(int64_t first, int64_t count, int64_t stride) const {
  EPL_ASSERT(count >= 1 && stride >= 1, "a group has members");
  GroupShape shape;
  const std::vector<LinkKind>& links = map_.description().links;
  const bool threads = map_.description().workers == ClusterDescription::Workers::kHost;
  int64_t host = -1;
  int64_t here = 0;
  shape.hosts = 0;
  for (int64_t i = 0; i < count; ++i) {
    const DevicePlace place = map_.place_of(first + i * stride);
    here = place.host == host ? here + 1 : 1;
    shape.near = std::max(shape.near, here);
    if (place.host == host) continue;
    host = place.host;
    const HostRun& run = map_.description().hosts[place.run];
    const size_t link = threads ? run.inside : run.between_workers;
    if (shape.hosts++ == 0 || is_slower(links[link], links[shape.near_link])) {
      shape.near_link = link;
    }
  }
  // Groups of hosts lie side by side, so the outermost two members are the farthest.
  const int level = map_.level_between(first, first + (count - 1) * stride);
  if (level > 0) {
    shape.far_link = map_.description().levels[static_cast<size_t>(level - 1)].link;
  }
  return shape;
}

Cost CostModel::flat(size_t link, Collective collective, double bytes, int64_t members,
                     double sharers) const {
  const LinkKind& kind = map_.description().links.at(link);
  Cost cost;
  cost.bytes = steps_of(kind.algorithm, collective, bytes, members).bytes;
  cost.seconds = link_seconds(kind, collective, bytes, members, sharers);
  if (members == 1 || sharers > 1) return cost;
  for (const auto& [device, table] : tables_) {
    const auto of_link = table.collectives.find(kind.name);
    if (of_link == table.collectives.end()) continue;
    const auto curves = of_link->second.find(collective_names()[static_cast<size_t>(collective)]);
    if (curves == of_link->second.end()) continue;
    const auto curve = curves->second.find(members);
    if (curve == curves->second.end()) continue;
    const bool within = bytes >= curve->second.front().size && bytes <= curve->second.back().size;
    cost.seconds = seconds_on(curve->second, bytes);
    cost.source = within ? CostSource::kMeasured : CostSource::kFitted;
    return cost;
  }
  return cost;
}

Cost CostModel::of_collective(const CollectiveCall& call, const GroupShape& group) const {
  const auto bytes = static_cast<double>(call.bytes);
  if (group.hosts == 1) return flat(group.near_link, call.collective, bytes, group.near);
  if (group.near == 1) return flat(group.far_link, call.collective, bytes, group.hosts);
  const LinkKind& far = map_.description().links.at(group.far_link);
  return far.algorithm == LinkAlgorithm::kRing ? two_rings(call, group) : two_levels(call, group);
}

// comm/two_level.cc: reduced inside, exchanged between the first members, spread inside.
Cost CostModel::two_levels(const CollectiveCall& call, const GroupShape& group) const {
  const auto given = static_cast<double>(call.bytes);
  const double bytes = call.half ? 2 * given : given;  // of what is summed
  const auto near = [&](Collective collective, double of) {
    return flat(group.near_link, collective, of, group.near);
  };
  const auto far = [&](Collective collective, double of) {
    return flat(group.far_link, collective, of, group.hosts);
  };
  switch (call.collective) {
    case Collective::kAllReduce:
      return near(Collective::kReduce, bytes) + far(Collective::kAllReduce, bytes) +
             near(Collective::kBroadcast, bytes);
    case Collective::kReduce:
      return near(Collective::kReduce, bytes) + far(Collective::kReduce, bytes) +
             near(Collective::kBroadcast, bytes);
    case Collective::kBroadcast:
      return near(Collective::kBroadcast, given) + far(Collective::kBroadcast, given) +
             near(Collective::kBroadcast, given);
    case Collective::kReduceScatter: {
      const Cost cost = near(Collective::kReduce, bytes) + far(Collective::kReduceScatter, bytes);
      // The first member hands each of the others its part, one after the other.
      const auto others = static_cast<double>(group.near - 1);
      Cost handed = near(Collective::kSend, bytes / static_cast<double>(group.members()));
      handed.seconds *= others;
      handed.bytes *= others;
      return cost + handed;
    }
    case Collective::kAllGather:
      return near(Collective::kAllGather, given / static_cast<double>(group.hosts)) +
             far(Collective::kAllGather, given) + near(Collective::kBroadcast, given);
    case Collective::kBarrier:
      return near(Collective::kBarrier, 0) + far(Collective::kBarrier, 0) +
             near(Collective::kBarrier, 0);
    case Collective::kSend:
      return flat(group.far_link, Collective::kSend, given, 2);
    case Collective::kAllToAll: {
      // Without detours: the members of a host share its ports.
      const LinkKind& link = map_.description().links.at(group.far_link);
      const double sharers =
          std::max(1.0, static_cast<double>(group.near) / static_cast<double>(link.ports));
      return near(Collective::kBarrier, 0) + far(Collective::kBarrier, 0) +
             near(Collective::kBarrier, 0) +
             flat(group.far_link, Collective::kAllToAll, given, group.members(), sharers);
    }
  }
  return {};
}

// As libraries of accelerators do it: parts inside, each member exchanges its part through a port,
// the whole inside.
Cost CostModel::two_rings(const CollectiveCall& call, const GroupShape& group) const {
  const auto bytes = static_cast<double>(call.bytes);
  const auto members = static_cast<double>(group.near);
  const LinkKind& link = map_.description().links.at(group.far_link);
  const double sharers = std::max(1.0, members / static_cast<double>(link.ports));
  const auto near = [&](Collective collective) {
    return flat(group.near_link, collective, bytes, group.near);
  };
  // What each of the `near` members of all hosts exchange among themselves.
  const auto far = [&](Collective collective) {
    return flat(group.far_link, collective, bytes / members, group.hosts, sharers);
  };
  switch (call.collective) {
    case Collective::kAllReduce:
      return near(Collective::kReduceScatter) + far(Collective::kAllReduce) +
             near(Collective::kAllGather);
    case Collective::kReduceScatter:
      return near(Collective::kReduceScatter) + far(Collective::kReduceScatter);
    case Collective::kAllGather:
      return far(Collective::kAllGather) + near(Collective::kAllGather);
    case Collective::kReduce:
      return near(Collective::kReduceScatter) + far(Collective::kReduce) +
             near(Collective::kAllGather);
    case Collective::kBroadcast:
      return near(Collective::kReduceScatter) + far(Collective::kBroadcast) +
             near(Collective::kAllGather);
    case Collective::kBarrier:
      return near(Collective::kBarrier) + far(Collective::kBarrier);
    case Collective::kSend:
      return flat(group.far_link, Collective::kSend, bytes, 2);
    case Collective::kAllToAll:
      // What goes to the own host is little beside what goes to all others.
      return flat(group.far_link, Collective::kAllToAll, bytes, group.members(), sharers);
  }
  return {};
}

}  // namespace epl

#include "cost/collective_cost.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "cost/cost.h"

namespace epl {
namespace {

// comm/tcp.cc: up to kSmall all send everything to all; a reduction by parts stages kStaged bytes.
constexpr double kDirectSmall = 8192;
constexpr double kDirectStaged = 4 << 20;
// comm/shared_memory.cc: up to this every member sums all by itself; a round has a chunk.
constexpr double kSumAlone = 16 * 1024;
constexpr double kChunk = 256 * 1024;

// Up to how many bytes a call is made in the way of small ones; 0 where there is one way.
double border_of(LinkAlgorithm algorithm, Collective collective, int64_t members) {
  const bool cut = collective == Collective::kAllReduce || collective == Collective::kReduce ||
                   collective == Collective::kBroadcast;
  if (algorithm == LinkAlgorithm::kDirect && cut) return kDirectSmall;
  if (algorithm == LinkAlgorithm::kSharedMemory && collective == Collective::kAllReduce &&
      members > 2) {
    return kSumAlone;
  }
  return 0;
}

CollectiveSteps direct_steps(Collective collective, double bytes, double members) {
  const double others = members - 1;
  const double share = others / members;
  const bool small = bytes <= kDirectSmall;
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kBroadcast:
      if (small) return {1, others, others * bytes};
      return {2, 2 * others, 2 * share * bytes};
    case Collective::kReduceScatter: {
      const double phases = std::max(1.0, std::ceil(bytes / kDirectStaged));
      return {phases, phases * others, share * bytes};
    }
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return {1, others, share * bytes};
    case Collective::kSend:
      return {1, 1, bytes};
    case Collective::kBarrier:
      return {1, others, 0};
  }
  return {};
}

// Each works on its share of all tensors, in place (comm/local.cc). What a share of reads or writes
// comes to shrinks with the members; it counts as for two.
CollectiveSteps thread_steps(Collective collective, double bytes, double members) {
  const double others = members - 1;
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return {1, others, 2 * bytes};
    case Collective::kReduce:
    case Collective::kReduceScatter:
      return {1, others, 1.5 * bytes};
    case Collective::kBroadcast:
      return {1, others, bytes};
    case Collective::kSend:
      return {1, 1, 2 * bytes};
    case Collective::kBarrier:
      return {1, others, 0};
  }
  return {};
}

// Into a board and out of it, a chunk a round (comm/shared_memory.cc). Rounds overlap, but for the
// first chunk.
CollectiveSteps board_steps(Collective collective, double bytes, double members) {
  const double others = members - 1;
  const double share = others / members;
  const double rounds = std::max(1.0, std::ceil(bytes / kChunk));
  const double begin = std::min(bytes, kChunk);
  switch (collective) {
    case Collective::kAllReduce:
      // Out 2, the sum of two 3. Shared by more members it is 5 - 2 / members.
      if (members > 2 && bytes <= kSumAlone) return {1, others, (members + 3) * bytes};
      return {members > 2 ? 2.0 : 1.0, rounds * others, 5 * bytes};
    case Collective::kReduce:
      return {1, rounds * others, (members + 1) * bytes + 2 * begin};
    case Collective::kBroadcast:
      return {1, rounds * others, 2 * bytes + 2 * begin};
    case Collective::kReduceScatter:
      return {1, rounds * others, (3 - 1 / members) * bytes};
    case Collective::kAllGather:
      return {1, rounds * others, 2 * bytes};
    case Collective::kAllToAll:
      return {1, rounds * others, 4 * share * bytes};
    case Collective::kSend:
      return {1, rounds, 2 * bytes + 2 * begin};
    case Collective::kBarrier:
      return {1, others, 0};
  }
  return {};
}

CollectiveSteps ring_steps(Collective collective, double bytes, double members) {
  const double others = members - 1;
  const double share = others / members;
  switch (collective) {
    case Collective::kAllReduce:
      return {2 * others, 0, 2 * share * bytes};
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      return {others, 0, share * bytes};
    case Collective::kReduce:
    case Collective::kBroadcast:
      return {others, 0, bytes};
    case Collective::kAllToAll:
      return {1, others, share * bytes};
    case Collective::kSend:
      return {1, 1, bytes};
    case Collective::kBarrier:
      return {std::ceil(std::log2(members)), 0, 0};
  }
  return {};
}

// What such libraries do with little data between many: log2 steps, and no share left out.
CollectiveSteps tree_steps(Collective collective, double bytes, double members) {
  const double depth = std::ceil(std::log2(members));
  if (collective == Collective::kAllReduce) return {2 * depth, 0, 2 * bytes};
  if (collective == Collective::kReduceScatter || collective == Collective::kAllGather ||
      collective == Collective::kReduce || collective == Collective::kBroadcast) {
    return {depth, 0, bytes};
  }
  return ring_steps(collective, bytes, members);
}

}  // namespace

const std::vector<std::string>& collective_names() {
  static const std::vector<std::string> names = {"all_reduce", "reduce_scatter", "all_gather",
                                                 "all_to_all", "broadcast",      "reduce",
                                                 "send",       "barrier"};
  return names;
}

CollectiveSteps steps_of(LinkAlgorithm algorithm, Collective collective, double bytes,
                         int64_t members) {
  EPL_ASSERT(members >= 1 && bytes >= 0, concat("a collective of ", members, " members"));
  if (members == 1) return {};
  const auto count = static_cast<double>(members);
  switch (algorithm) {
    case LinkAlgorithm::kThreads:
      return thread_steps(collective, bytes, count);
    case LinkAlgorithm::kSharedMemory:
      return board_steps(collective, bytes, count);
    case LinkAlgorithm::kDirect:
      return direct_steps(collective, bytes, count);
    case LinkAlgorithm::kRing:
      return ring_steps(collective, bytes, count);
  }
  return {};
}

double seconds_of(const CollectiveSteps& steps, const LinkKind& link) {
  return (steps.steps * link.us + steps.messages * link.message_us) * kMicro +
         steps.bytes / link.bytes_per_second();
}

double link_seconds(const LinkKind& link, Collective collective, double bytes, int64_t members,
                    double sharers) {
  const auto seconds = [&](CollectiveSteps steps) {
    steps.bytes *= sharers;
    return seconds_of(steps, link);
  };
  double found = seconds(steps_of(link.algorithm, collective, bytes, members));
  if (link.algorithm == LinkAlgorithm::kRing && members > 1) {
    found = std::min(found, seconds(tree_steps(collective, bytes, static_cast<double>(members))));
  }
  const double border = border_of(link.algorithm, collective, members);
  if (border > 0 && bytes > border) {
    found = std::max(found, seconds(steps_of(link.algorithm, collective, border, members)));
  }
  return found;
}

LinkFit fit_link(LinkKind named, const std::vector<CollectiveTime>& times) {
  EPL_ASSERT(!times.empty(), "a link is fitted to times");
  std::vector<PlanePoint> points;
  for (const CollectiveTime& time : times) {
    const CollectiveSteps steps =
        steps_of(named.algorithm, time.collective, time.bytes, time.members);
    points.push_back({steps.steps, steps.bytes, time.seconds});
  }
  const PlaneFit fit = fit_plane(points);
  // A link that seems to cost nothing a step, or a byte, costs too little to be told.
  constexpr double kLeastStep = 1e-9;
  constexpr double kLeastByte = 1e-14;
  named.us = std::max(fit.a, kLeastStep) / kMicro;
  named.gbps = 1 / std::max(fit.b, kLeastByte) / kGiga;
  named.message_us = 0;
  named.efficiency = 1;
  return {std::move(named), fit.error};
}

}  // namespace epl

// What a collective does on a link: steps, messages, bytes. By the algorithms that EPL runs
// (src/comm), which a link names (config/cluster_map.h); `ring` stands for the libraries of
// accelerators.
//
//   const CollectiveSteps steps = steps_of(LinkAlgorithm::kDirect, Collective::kAllReduce, 1 << 20,
//   4); seconds_of(steps, link);   // steps * us + messages * message_us + bytes / what the link
//   moves
//
// Bytes are those of the whole tensor: what each member has before all_reduce, broadcast, reduce
// and all_to_all, what all have together in reduce_scatter and all_gather.
//
// Time never falls with bytes or members, though the algorithms themselves have borders where they
// begin to share work and would be faster with a little more of it: behind a border the time is at
// least that before it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/cluster_map.h"
#include "cost/fits.h"

namespace epl {

enum class Collective : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kReduce,
  kSend,  // between two
  kBarrier,
};
const std::vector<std::string>& collective_names();  // "all_reduce", ... in their order

// As one member sees it who has most to do.
struct CollectiveSteps {
  double steps = 0;
  double messages = 0;
  double bytes = 0;  // through a wire; in memory those that are read and written
};

CollectiveSteps steps_of(LinkAlgorithm algorithm, Collective collective, double bytes,
                         int64_t members);

double seconds_of(const CollectiveSteps& steps, const LinkKind& link);

// The same of a call: never less than for fewer bytes. `sharers`: members that have to share what
// the link moves; 1 where each has its own.
double link_seconds(const LinkKind& link, Collective collective, double bytes, int64_t members,
                    double sharers = 1);

// The link whose `us` and `gbps` fit these times of calls best, its algorithm and name as given.
struct CollectiveTime {
  Collective collective = Collective::kAllReduce;
  int64_t members = 2;
  double bytes = 0;
  double seconds = 0;
};
struct LinkFit {
  LinkKind link;
  double error = 0;  // the largest relative one
};
LinkFit fit_link(LinkKind named, const std::vector<CollectiveTime>& times);

}  // namespace epl

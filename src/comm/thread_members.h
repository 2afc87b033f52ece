// Communicators whose members are threads of several workers.
//
// Each transport finds its peers by an Exchange of texts, in which every member takes part, while
// between workers there is one way: Membership. Here the threads of a worker meet, the last one to
// come speaks for all of them, and hands around what the other workers said.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/watch.h"

namespace epl::comm {

struct ThreadMembers {
  std::vector<int> worker_of;        // by rank
  int worker = 0;                    // this one
  std::vector<std::string> host_of;  // by worker; equal where memory can be shared
  std::string address;               // where this worker listens

  // The texts of these workers under a key that is used once, in their order.
  using Gather = std::function<std::vector<std::string>(
      const std::string& key, const std::vector<int>& workers, const std::string& mine)>;
  Gather gather;  // from any thread

  std::vector<int> ranks_here() const;
};

// The ends of this worker's members, in the order of ranks: of threads of one process over their
// memory, of one host over shared memory, between hosts over TCP, in two levels where a host has
// several members. Called by all workers that have a member; `key` is used once.
std::vector<std::unique_ptr<Communicator>> connect_threads(const ThreadMembers& members,
                                                           const std::string& key, Watch& watch,
                                                           const CommunicatorOptions& options);

}  // namespace epl::comm

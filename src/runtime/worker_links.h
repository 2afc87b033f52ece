// What a worker is part of, as far as whoever makes ways between devices has to know it.
#pragma once

#include <epl/cluster.h>

#include <chrono>
#include <vector>

#include "comm/communicator.h"
#include "comm/membership.h"
#include "comm/watch.h"
#include "runtime/device_team.h"
#include "runtime/route.h"

namespace epl {

// All of it outlives what is made with it.
struct WorkerLinks {
  const Cluster& cluster;
  Watch& watch;
  DeviceTeam& team;
  Membership* membership = nullptr;  // null where there is one worker
  Communicator* workers = nullptr;   // of the main threads of all; null likewise
  const std::vector<Route>& routes;  // for gradients, between all of them; empty likewise
  std::chrono::milliseconds deadline{};
};

}  // namespace epl

// Route: a way between workers. A communicator, and the thread that drives it.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/lane.h"

namespace epl {

struct Route {
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Lane> lane;
};

// From one device of the job to another one, on different workers. Here is one end of it.
struct DeviceRoute {
  int from = 0;  // devices
  int to = 0;
  int peer_rank = 0;  // of the other end in the communicator
  Route route;
};

}  // namespace epl

// What a worker says of itself and of the machine it runs on.
#pragma once

#include "comm/membership.h"

namespace epl::comm {

// Its host_key is equal for workers that can map each other's memory and see each other's
// processes: same boot of the same machine, same user, same namespaces of networks and processes
// (containers count as hosts).
WorkerInfo describe_this_worker(int devices);

}  // namespace epl::comm

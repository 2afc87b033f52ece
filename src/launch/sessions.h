// All processes that a worker has started, known by their session.
//
// A worker leads a session of its own. Process groups are not enough: `timeout` and shells with job
// control give their children groups of their own, but they stay in the session. As long as the
// leader is not reaped, its number is nobody else's, so no stranger can be meant.
#pragma once

#include <sys/types.h>

#include <map>
#include <set>
#include <vector>

namespace epl {

// The living processes of each of these sessions, zombies left out.
std::map<pid_t, std::vector<pid_t>> members_of_sessions(const std::set<pid_t>& leaders);

// Sends a signal to the leader's process group, and to each other process of the session. Stopped
// processes are continued, so that they see it.
void signal_session(pid_t leader, int signal);

}  // namespace epl

// Membership: this worker's place in the job. Who the others are, whether they live, how to reach
// them.
//
// Workers meet at a rendezvous (rendezvous.h), which worker 0 serves. From then on each gives signs
// of life; a peer that is gone (killed: at once; stopped, its host cut off: within `silence`) fails
// the Watch with its name, its host and what it did last, and a peer that left in good order is
// named as such by whoever still waits for it. All workers hear the same cause, the first one.
//
//   std::unique_ptr<Membership> membership = join_job(request);
//   try {
//     train(*membership->make_communicator({"gradients 0"}));
//   } catch (const std::exception& error) {
//     membership->report_failure(error.what());  // the others stop too, and say why
//     throw;
//   }
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/watch.h"

namespace epl::comm {

struct JoinRequest {
  int worker_num = 1;
  int worker_index = 0;
  int devices = 1;          // of this worker
  std::string master_host;  // where worker 0 listens
  int master_port = 0;
  std::chrono::milliseconds patience{std::chrono::seconds(60)};  // until all workers must have come
  std::chrono::milliseconds silence{
      std::chrono::seconds(5)};  // a peer that is silent for longer is gone
  std::chrono::milliseconds deadline{std::chrono::minutes(30)};  // of an exchange
};

struct WorkerInfo {
  std::string host;      // its name, for messages
  std::string host_key;  // equal for workers that can share memory
  int64_t pid = 0;
  int devices = 1;
};

class Membership {
 public:
  virtual ~Membership() = default;  // leaves in good order

  virtual int index() const = 0;
  virtual const std::vector<WorkerInfo>& workers() const = 0;
  virtual Watch& watch() = 0;

  // Every worker hands in a text under the same key, all get all, in the order of workers. A key is
  // used once.
  virtual std::vector<std::string> exchange(const std::string& key, const std::string& mine) = 0;

  // A communicator of all workers, over shared memory within a host and over TCP between hosts.
  // Made by all workers in the same order.
  virtual std::unique_ptr<Communicator> make_communicator(const CommunicatorOptions& options) = 0;

  // A communicator whose members are threads of the workers: member i is one of worker
  // worker_of[i]. All workers call this in the same order with the same list, and get the ends of
  // their own members, in the order of ranks.
  virtual std::vector<std::unique_ptr<Communicator>> make_communicators(
      const std::vector<int>& worker_of, const CommunicatorOptions& options) = 0;

  // Tells the others that this worker fails, before it goes, so that they name the true culprit.
  // Nothing where the job has failed already: what fails because of that is no news.
  virtual void report_failure(const std::string& message) = 0;
};

// Waits for the others. Throws JobFailed where they do not come, with the numbers of those that are
// missing, where two workers have the same index or another worker_num, and where the port is
// taken.
std::unique_ptr<Membership> join_job(const JoinRequest& request);

}  // namespace epl::comm

namespace epl {
using comm::join_job;
using comm::JoinRequest;
using comm::Membership;
using comm::WorkerInfo;
}  // namespace epl

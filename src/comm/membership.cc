#include "comm/membership.h"

#include <algorithm>
#include <numeric>
#include <thread>

#include "base/check.h"
#include "comm/health.h"
#include "comm/host.h"
#include "comm/rendezvous.h"
#include "comm/socket.h"
#include "comm/thread_members.h"

namespace epl::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// The only worker of a job: there is nobody to meet.
class Alone final : public Membership {
 public:
  explicit Alone(int devices) : workers_{describe_this_worker(devices)} {}

  int index() const override { return 0; }
  const std::vector<WorkerInfo>& workers() const override { return workers_; }
  Watch& watch() override { return watch_; }
  std::vector<std::string> exchange(const std::string& /*key*/, const std::string& mine) override {
    return {mine};
  }
  std::unique_ptr<Communicator> make_communicator(const CommunicatorOptions& options) override {
    return std::move(make_local_communicators(1, watch_, options)[0]);
  }
  std::vector<std::unique_ptr<Communicator>> make_communicators(
      const std::vector<int>& worker_of, const CommunicatorOptions& options) override {
    return make_local_communicators(static_cast<int>(worker_of.size()), watch_, options);
  }
  void report_failure(const std::string& /*message*/) override {}

 private:
  const std::vector<WorkerInfo> workers_;
  Watch watch_;
};

class Member final : public Membership {
 public:
  Member(const JoinRequest& request, std::unique_ptr<Rendezvous> rendezvous, Descriptor connection,
         const std::string& place)
      : index_(request.worker_index),
        deadline_(request.deadline),
        rendezvous_(std::move(rendezvous)),
        health_(std::move(connection),
                {request.worker_index, request.worker_num, request.devices, place, request.patience,
                 request.silence},
                watch_) {
    for (const WorkerRecord& record : health_.workers()) workers_.push_back(record.info);
    everyone_.resize(workers_.size());
    std::iota(everyone_.begin(), everyone_.end(), 0);
  }

  int index() const override { return index_; }
  const std::vector<WorkerInfo>& workers() const override { return workers_; }
  Watch& watch() override { return watch_; }
  void report_failure(const std::string& message) override { health_.report_failure(message); }

  std::vector<std::string> exchange(const std::string& key, const std::string& mine) override {
    return health_.gather(concat("exchange ", key), everyone_, mine, deadline_);
  }

  std::unique_ptr<Communicator> make_communicator(const CommunicatorOptions& options) override {
    return std::move(make_communicators(everyone_, options)[0]);
  }

  std::vector<std::unique_ptr<Communicator>> make_communicators(
      const std::vector<int>& worker_of, const CommunicatorOptions& options) override {
    ThreadMembers members;
    members.worker_of = worker_of;
    members.worker = index_;
    for (const WorkerRecord& record : health_.workers()) {
      members.host_of.push_back(record.info.host_key);
    }
    members.address = health_.workers()[static_cast<size_t>(index_)].address;
    members.gather = [this, &options](const std::string& key, const std::vector<int>& workers,
                                      const std::string& mine) {
      return health_.gather(key, workers, mine, options.deadline);
    };
    const std::string key = concat("communicator ", communicators_++, " \"", options.name, "\"");
    return connect_threads(members, key, watch_, options);
  }

 private:
  const int index_;
  const milliseconds deadline_;
  std::vector<int> everyone_;
  std::vector<WorkerInfo> workers_;
  int communicators_ = 0;
  Watch watch_;
  // Destroyed after health_, which says farewell to it.
  std::unique_ptr<Rendezvous> rendezvous_;
  Health health_;
};

void check(const JoinRequest& request) {
  EPL_CHECK(request.worker_num >= 1,
            concat("a job has at least one worker, not ", request.worker_num));
  EPL_CHECK(request.worker_index >= 0 && request.worker_index < request.worker_num,
            concat("worker ", request.worker_index, " of a job of ", request.worker_num,
                   " workers, which are 0 to ", request.worker_num - 1));
  EPL_CHECK(request.worker_num == 1 || (request.master_port > 0 && request.master_port < 65536 &&
                                        !request.master_host.empty()),
            concat("worker ", request.worker_index, " does not know where worker 0 listens: \"",
                   request.master_host, "\", port ", request.master_port));
}

// Tries until worker 0 listens or patience ends.
Descriptor reach_rendezvous(const JoinRequest& request, const std::string& place) {
  const Clock::time_point end = Clock::now() + request.patience;
  milliseconds pause(20);
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now());
    Connection connection = try_connect(request.master_host, request.master_port,
                                        std::clamp(left, milliseconds(1), milliseconds(3000)));
    if (connection.descriptor) return std::move(connection.descriptor);
    if (Clock::now() + pause > end) {
      throw JobFailed(
          concat("worker ", request.worker_index, " cannot reach worker 0 at ", place, " within ",
                 describe_duration(request.patience), ": ", connection.reason),
          "", "the log of worker 0, and whether its host can be reached at that port");
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, milliseconds(500));
  }
}

}  // namespace

std::unique_ptr<Membership> join_job(const JoinRequest& request) {
  check(request);
  if (request.worker_num == 1) return std::make_unique<Alone>(request.devices);
  const std::string place = concat(request.master_host, ":", request.master_port);
  std::unique_ptr<Rendezvous> rendezvous;
  if (request.worker_index == 0) {
    rendezvous = std::make_unique<Rendezvous>(
        listen_at(request.master_host, request.master_port),
        Rendezvous::Options{request.worker_num, place, request.patience, request.silence});
  }
  Descriptor connection = reach_rendezvous(request, place);
  return std::make_unique<Member>(request, std::move(rendezvous), std::move(connection), place);
}

}  // namespace epl::comm

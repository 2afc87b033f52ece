// Job: what this process is part of. Its devices, and where there are several workers, the ways to
// them.
//
// Made by epl::init(), shared by all trainers; it ends, and leaves the other workers in good order,
// when the last of them is gone.
#pragma once

#include <epl/cluster.h>
#include <epl/config.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "batch/written_batch.h"
#include "comm/membership.h"
#include "config/environment.h"
#include "model/holders.h"
#include "model/spread_parameters.h"
#include "runtime/device_team.h"
#include "runtime/file_homes.h"
#include "runtime/host_homes.h"
#include "runtime/worker_links.h"
#include "state/gradient_history.h"

namespace epl {

class Job {
 public:
  // Joins the other workers and waits for them. `previous` is the job of an earlier init(), or
  // null: workers that have met stay together.
  Job(const JobPlace& place, const Config& config, const Job* previous);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // What init() made last. Each trainer keeps the one it was made with.
  static std::shared_ptr<Job> current();
  static void replace(std::shared_ptr<Job> job);

  const Cluster& cluster() const { return cluster_; }
  // How fast the devices of each worker are, for whoever has measured it: on all workers alike,
  // before their first step.
  void set_speeds(std::vector<DeviceSpeed> speeds) { cluster_.worker_speeds = std::move(speeds); }
  DeviceTeam& team() { return *team_; }
  Watch& watch() { return membership_ ? membership_->watch() : own_watch_; }

  Membership* membership() { return membership_.get(); }  // null where there is one worker
  Communicator* workers() { return workers_.get(); }      // for the main threads; null likewise
  // What ways between devices are made with.
  WorkerLinks links(const Config& config);

  GradientHistory& gradient_history() { return *gradient_history_; }
  // Parameters of which workers keep parts, of all trainers.
  SpreadParameters& spread() { return *spread_; }
  // What steps wrote copies of: one trainer's step may be handed what another's has written.
  WrittenBatch& written_batch() { return written_batch_; }

  // Of what rests in files of a folder: parameters that several trainers have rest in one place.
  FileHomes& homes(const std::string& folder) EPL_EXCLUDES(making_homes_);
  HostHomes& host_homes() EPL_EXCLUDES(making_homes_);  // likewise, in the memory of the host

  // While it stands, a step of some trainer runs on this thread. All trainers of a job use the same
  // devices, so steps that several threads ask for run one after the other. Throws epl::Error where
  // a step is asked for inside of a step, and with several workers where two threads ask at once:
  // the order of their steps could be another one on every worker.
  class EPL_LOCK_TYPE StepTurn {
   public:
    explicit StepTurn(Job& job) EPL_ACQUIRES(job.stepping_);
    ~StepTurn() EPL_RELEASES();
    StepTurn(const StepTurn&) = delete;
    StepTurn& operator=(const StepTurn&) = delete;

   private:
    Job& job_;
  };

  // Counts who holds the tensors of a trainer's model, between the steps of all trainers, until it
  // is forgotten.
  void count(Holders& holders) EPL_EXCLUDES(counting_);
  void forget(const Holders& holders) EPL_EXCLUDES(counting_);

  // A key that was not used before, the same on all workers: they do the same things in the same
  // order.
  std::string next_key(const std::string& purpose);

 private:
  void find_cluster(const JobPlace& place);
  void enter_step() EPL_EXCLUDES(counting_);
  void leave_step() EPL_EXCLUDES(counting_);

  Cluster cluster_;
  Watch own_watch_;
  std::shared_ptr<Membership>
      membership_;  // with the jobs of earlier init()s that trainers still use
  std::unique_ptr<Communicator> workers_;
  std::vector<Route> routes_;  // for gradients; empty where there is one worker
  std::unique_ptr<DeviceTeam> team_;
  std::shared_ptr<GradientHistory> gradient_history_;  // with the jobs of earlier init()s
  std::shared_ptr<SpreadParameters> spread_;           // likewise
  WrittenBatch written_batch_;
  Mutex making_homes_;
  std::map<std::string, std::unique_ptr<FileHomes>> homes_
      EPL_GUARDED_BY(making_homes_);  // by folder
  std::unique_ptr<HostHomes> host_homes_ EPL_GUARDED_BY(making_homes_);
  const int number_;  // of init()s before
  int keys_ = 0;
  Mutex counting_;
  std::vector<Holders*> counted_ EPL_GUARDED_BY(counting_);
  Mutex stepping_;  // whose thread has it may use the devices
  std::atomic<std::thread::id> stepping_thread_{};
};

}  // namespace epl

// SpreadLeaves: fetches, waits and stores of leaves that are spread over the workers of a role
// (PlanLeaf::others), for the devices of that role on this worker.
//
// What workers keep comes together by one call for each fetch instruction, on a lane of the role.
// It sets out when the last device here has come to the instruction: all devices have stored then
// what stands before it, so no more is near than the program says, and all workers make the same
// calls in the same order. It is dropped when the last device has stored it.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "comm/waiting.h"
#include "program/program.h"
#include "runtime/connections.h"
#include "runtime/device_team.h"
#include "runtime/spread_tensor.h"

namespace epl {

// What all workers of a role that run a program fetch, in which order: a number that tells it from
// others. 0 where they fetch nothing.
int64_t fetched_by(const Program& program);
int64_t fetched_by(const Plan& plan);

// By leaf of a plan; null for those that are not spread.
using SpreadTensors = std::vector<std::shared_ptr<SpreadTensor>>;

class SpreadLeaves {
 public:
  // `devices`: of the role, on this worker. All but the tensors outlive it.
  SpreadLeaves(const Program& program, SpreadTensors tensors, Connections& connections, int role,
               int devices, DeviceTeam& team);
  // Waits for calls that a step which failed has left behind.
  ~SpreadLeaves();
  SpreadLeaves(const SpreadLeaves&) = delete;
  SpreadLeaves& operator=(const SpreadLeaves&) = delete;

  // Before a step, with the route of the role made and nothing near but what is kept here.
  void begin(int64_t step) EPL_EXCLUDES(mutex_);
  // On the thread of a device.
  void run(const Instruction& instruction) EPL_EXCLUDES(mutex_);

 private:
  struct Fetch {
    const Instruction* instruction = nullptr;
    int reached = 0;                       // devices
    std::shared_ptr<Work> work = nullptr;  // null before it sets out
  };

  void find_instructions() EPL_EXCLUDES(mutex_);
  void fetch(size_t number) EPL_EXCLUDES(mutex_);
  void wait(size_t number) EPL_EXCLUDES(mutex_);
  void store(const Instruction& instruction) EPL_EXCLUDES(mutex_);
  void gather(const Instruction& instruction, size_t number) const;
  void settle() EPL_EXCLUDES(mutex_);
  std::shared_ptr<Work> work_of(size_t number) EPL_EXCLUDES(mutex_);
  SpreadTensor& tensor(int leaf) const { return *tensors_[static_cast<size_t>(leaf)]; }

  const Program& program_;
  const SpreadTensors tensors_;
  Connections& connections_;
  const int role_;
  const int devices_;
  DeviceTeam& team_;
  const comm::Waiting waiting_;
  const int64_t about_;
  int64_t step_ = 0;
  const Route* route_ = nullptr;
  std::map<const Instruction*, size_t> number_of_;             // of fetches
  std::map<const Instruction*, std::vector<size_t>> awaited_;  // by wait: fetches
  comm::Doorbell bell_;
  std::atomic<uint64_t> started_{0};  // fetches, for whoever waits
  Mutex mutex_;
  std::vector<Fetch> fetches_ EPL_GUARDED_BY(mutex_);
  std::map<const Instruction*, int> stored_ EPL_GUARDED_BY(mutex_);  // devices
};

}  // namespace epl

// StageMail: what a pipeline's `send` and `receive` instructions do, for the devices of this
// worker.
//
// Between devices of one worker a value is copied into the Mailbox and out of it. Between workers
// each pair of devices that have something to say to each other has a route of its own
// (DeviceRoute): a lane that sends at one end, a lane that receives into the Mailbox at the other,
// so that devices go on computing while values travel.
//
// Where two stages have different numbers of devices, each device sends every peer the rows that
// both of them have.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "program/placement.h"
#include "program/program.h"
#include "runtime/device_team.h"
#include "runtime/executor.h"
#include "runtime/mailbox.h"
#include "runtime/route.h"

namespace epl {

class StageMail {
 public:
  // The routes that start or end at this worker; they must outlive the mail. What comes for a
  // device from another worker lies in that device's memory.
  StageMail(const Plan& plan, const Placement& placement, const Cluster& cluster, Mailbox& mailbox,
            const std::vector<DeviceRoute>& routes, DeviceTeam& team);
  ~StageMail();
  StageMail(const StageMail&) = delete;
  StageMail& operator=(const StageMail&) = delete;

  // Before devices run: receiving lanes set out.
  void begin();

  // From the thread of a device, which is given by its number in the job.
  void send(int device, const Executor& executor, const Instruction& send);

  // Returns when the last of it was sent: what was waited before that was a bubble.
  std::chrono::steady_clock::time_point receive(int device, const Executor& executor,
                                                const Instruction& receive,
                                                const std::function<void()>& meanwhile);

  // After devices have run: throws what a lane threw.
  void finish();

 private:
  // What one device has for another one, or from it: rows of each value of the transfer.
  struct OwnRows {
    int64_t first = 0;  // in what the device has
    int64_t count = 0;  // 0: none
  };
  struct Parcel {
    int peer = 0;                // device of its program, in one replica
    std::vector<OwnRows> items;  // one a value
  };
  static std::vector<Parcel> parcels_of(const Transfer& transfer, bool sends, int slice);
  // Of the transfer, for the role that the device has.
  size_t number_of(const Instruction& instruction, int device) const;
  const std::vector<Parcel>& parcels(const Instruction& instruction, int device) const;
  int peer_device(const Instruction& instruction, int device, const Parcel& parcel) const;
  at::Tensor piece(const Executor& executor, const Instruction& instruction, size_t item,
                   const OwnRows& rows) const;
  void receive_all(const DeviceRoute& each);

  const Plan& plan_;
  const Placement& placement_;
  const Cluster& cluster_;
  Mailbox& mailbox_;
  const std::vector<DeviceRoute>& routes_;
  DeviceTeam& team_;
  std::map<std::pair<int, int>, const DeviceRoute*> outgoing_;  // by devices
  // By transfer, and by device of the role at that end.
  std::vector<std::vector<std::vector<Parcel>>> sent_;
  std::vector<std::vector<std::vector<Parcel>>> received_;
  Mutex mutex_;
  std::vector<std::shared_ptr<Work>> works_ EPL_GUARDED_BY(mutex_);
};

}  // namespace epl

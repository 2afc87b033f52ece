// DeviceTeam: the devices of this worker. On CPUs a device is a thread with its own memory account
// and its share of the cores.
//
//   DeviceTeam team(cores);
//   team.run([&](int device) { executors[device]->run(0); });   // side by side; waits for all
//
// Device 0 is the thread that calls run(): a worker with one device starts no thread at all. Device
// threads wait for the next run with open eyes for a moment (a sleeping thread takes 50
// microseconds to wake), then they sleep.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "runtime/cores.h"
#include "runtime/device_memory.h"

namespace epl {

// Thrown on the other devices where one has failed, by whatever they wait for.
class Cancelled : public std::exception {
 public:
  const char* what() const noexcept override { return "another device of this worker failed"; }
};

class DeviceTeam {
 public:
  // `cores`: one share for each device; an empty share is not bound to any.
  explicit DeviceTeam(std::vector<CoreShare> cores);
  ~DeviceTeam();
  DeviceTeam(const DeviceTeam&) = delete;
  DeviceTeam& operator=(const DeviceTeam&) = delete;

  int size() const { return static_cast<int>(devices_.size()); }
  DeviceMemory& memory(int device) { return devices_[static_cast<size_t>(device)]->memory; }

  // Runs work(device) on every device, each with its memory in use, and waits for all of them.
  // Where some throw, the exception of the lowest device is thrown again, but never Cancelled where
  // there is another; failed_device() tells which one it was.
  void run(const std::function<void(int device)>& work);
  int failed_device() const { return failed_device_; }

  // Whether a device of the current run has thrown: long waits should end with Cancelled then.
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }

 private:
  struct Device {
    DeviceMemory memory;
    CoreShare cores;
    std::exception_ptr error;
    std::thread thread;  // none for device 0
  };

  void serve(int device);
  void work_on(int device) noexcept;
  uint64_t next_round(uint64_t seen);
  void wait_for_all();
  void rethrow_first();

  std::vector<std::unique_ptr<Device>> devices_;
  const std::function<void(int)>* work_ = nullptr;
  std::atomic<uint64_t> round_{0};  // counts the calls of run()
  std::atomic<int> still_running_{0};
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> ends_{false};
  // Guards no member. Who changes an atomic that sleepers look at has it before it wakes them, or
  // they could miss the change between their look and their sleep.
  Mutex mutex_;
  Condition started_;
  Condition done_;
  int failed_device_ = 0;
};

}  // namespace epl

// Cluster: the workers (processes) of a job, their devices, and how fast those compute and talk.
#pragma once

#include <string>
#include <vector>

namespace epl {

// How fast a device computes. What is compared with it is the speed of the links and of other
// devices: only ratios matter where work is shared out, and they change little from one server to
// the next. The numbers are those of one core, measured with LibTorch 1.13 and OpenBLAS.
struct DeviceSpeed {
  double flops_per_second = 90e9;  // a large float32 matrix product
  double bytes_per_second = 20e9;  // a pointwise operator, reading and writing
  double seconds_per_call = 2e-6;  // dispatch and allocation
};

// How fast devices talk. The numbers are those of threads of one process.
struct Link {
  double seconds_per_call = 20e-6;     // of a collective
  double bytes_per_second = 5e9;       // that a device moves in a collective
  double sent_bytes_per_second = 4e9;  // of a tensor that one device hands to another
};

// The workers and devices of a job, as all of its processes see them.
struct ClusterShape {
  int worker_num = 1;     // processes of this job
  int total_gpu_num = 1;  // devices of all workers, of whatever kind; EPL's own name

  std::vector<int> worker_devices = {1};  // devices of each worker
  std::vector<std::string> worker_hosts = {
      ""};  // the host of each worker; "" where there is only one worker

  // Of a device of each worker. Workers behind the last one are as fast as that.
  std::vector<DeviceSpeed> worker_speeds = {DeviceSpeed()};
  Link link_in_worker = {};      // between devices of one worker
  Link link_in_host = {};        // between workers of one host
  Link link_between_hosts = {};  // between workers of different hosts
};

struct Cluster : ClusterShape {
  int worker_index = 0;  // this process, counted from 0

  int local_devices() const { return worker_devices[static_cast<size_t>(worker_index)]; }
  // Devices are numbered worker by worker: the number of this worker's first one.
  int first_device() const {
    int first = 0;
    for (int i = 0; i < worker_index; ++i) first += worker_devices[static_cast<size_t>(i)];
    return first;
  }
};

}  // namespace epl

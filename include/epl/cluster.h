// Cluster: the workers (processes) of a job and their devices.
#pragma once

#include <string>
#include <vector>

namespace epl {

struct Cluster {
  int worker_num = 1;     // processes of this job
  int worker_index = 0;   // this process, counted from 0
  int total_gpu_num = 1;  // devices of all workers, of whatever kind; EPL's own name

  std::vector<int> worker_devices = {1};  // devices of each worker
  std::vector<std::string> worker_hosts = {
      ""};  // the host of each worker; "" where there is only one worker

  int local_devices() const { return worker_devices[static_cast<size_t>(worker_index)]; }
  // Devices are numbered worker by worker: the number of this worker's first one.
  int first_device() const {
    int first = 0;
    for (int i = 0; i < worker_index; ++i) first += worker_devices[static_cast<size_t>(i)];
    return first;
  }
};

}  // namespace epl

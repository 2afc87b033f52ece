// Cluster: the workers (processes) of a job and their devices.
#pragma once

namespace epl {

struct Cluster {
  int worker_num = 1;     // processes of this job
  int worker_index = 0;   // this process, counted from 0
  int total_gpu_num = 1;  // devices of all workers, of whatever kind; EPL's own name
};

}  // namespace epl

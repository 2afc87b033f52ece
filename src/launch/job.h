// What epl-launch starts on this machine: one command, and the variables of each worker.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launch/options.h"

namespace epl {

using Variables = std::map<std::string, std::string>;

struct WorkerPlan {
  int index = 0;          // in the whole job
  Variables environment;  // all of it
  Variables added;        // what epl-launch has set in it
};

// The variables by which workers find their place (config/job_variables.h), and
// OMP_NUM_THREADS = cores / devices of this machine, unless the user has set it: threads of several
// workers that fight for the same cores are slower than none.
std::vector<WorkerPlan> plan_workers(const LaunchOptions& options, const HostPort& master,
                                     int cores, const Variables& environment);

// EPL_DEVICES is what workers are told, not what epl-launch reads: where the user has set it to
// another number than --gpu_per_worker, nobody would ever see it. An Error.
void check_devices_variable(const LaunchOptions& options, const Variables& environment);

// "train-20240131-235959" for the label "" and the command "./train.sh". Characters that are
// awkward in file names become '_'.
std::string job_folder_name(const std::string& label, const std::string& program,
                            const std::string& time);

}  // namespace epl

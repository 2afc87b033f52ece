// The command line of epl-launch.
//
//   epl-launch --num_workers 2 --gpu_per_worker 1 train.sh --epochs 3
//
// Options of epl-launch stand before the program; all that follows it belongs to the program.
#pragma once

#include <string>
#include <vector>

#include "base/host_port.h"

namespace epl {

struct LaunchOptions {
  int num_workers = 0;             // of the whole job
  int gpu_per_worker = 1;          // devices of a worker, of whatever kind
  std::vector<HostPort> machines;  // empty: this machine alone
  int machine_rank = 0;
  std::string task_label;
  std::string log_dir;
  bool debug = false;
  std::vector<std::string> command;  // the program and its arguments
  std::string help;  // not empty where the user asked for it; then nothing else is set
};

// Throws Error: what is wrong, and what to try.
LaunchOptions parse_options(const std::vector<std::string>& arguments);

// The workers of one machine: `count` of them, from index `first` on.
struct WorkerRange {
  int first = 0;
  int count = 0;
};

// Workers lie on machines in order, equally many on each; parse_options() has checked that this is
// possible.
WorkerRange workers_of_machine(const LaunchOptions& options);

}  // namespace epl

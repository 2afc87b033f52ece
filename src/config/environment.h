// The environment variables of EPL. Nothing else in the library reads the environment.
#pragma once

#include <map>
#include <string>

namespace epl {

// The whole environment of the process.
std::map<std::string, std::string> process_environment();

// All variables whose names begin with EPL_.
std::map<std::string, std::string> epl_environment();

// EPL_DEVICES: the devices of this process; 1 where it is not set.
int devices_of_process();

// The place of this process in its job, as whoever started it says.
struct JobPlace {
  int worker_num = 1;
  int worker_index = 0;
  int local_num = 1;        // workers of this job on this machine
  int local_index = 0;      // this one among them
  std::string master_host;  // where worker 0 listens; empty where there is one worker
  int master_port = 0;
  std::string
      found_by;  // "epl-launch", "torchrun", "Open MPI", "Slurm"; "" where nobody says anything
};

// epl-launch's own variables, else those of torchrun, Open MPI's mpirun, Slurm; else one worker.
// Variables that are malformed, incomplete or contradict each other are an Error.
//
// A Slurm allocation in which the program runs without srun is one worker. Where a launcher leaves
// the port open (mpirun, Slurm, torchrun when it serves a store at its own port), the port follows
// from the job's id.
JobPlace find_job_place();
JobPlace find_job_place(const std::map<std::string, std::string>& environment);

// A variable of a known category that is no key, or one that is almost the name of a known
// variable, is a slip of the user's: an Error with the nearest name. EPL_ variables of other names
// are others'.
void check_variable_names(const std::map<std::string, std::string>& environment);

}  // namespace epl

// Prints what find_job_place() says, for tests that run under a launcher.
#include <iostream>

#include "config/environment.h"

int main() {
  const epl::JobPlace place = epl::find_job_place();
  std::cout << place.found_by << ": worker " << place.worker_index << " of " << place.worker_num
            << ", local " << place.local_index << " of " << place.local_num << ", master "
            << place.master_host << ":" << place.master_port << std::endl;
}

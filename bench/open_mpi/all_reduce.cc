// One side of bench_collectives: MPI_Allreduce between the ranks that mpirun started.
//
//   mpirun -np 2 bench_open_mpi <bytes>
//
// Speaks the protocol of bench/turns.h: after a check of the result it prints the seconds of the
// first calls, then, for each line on stdin, the seconds of one call. Ranks that wait for a turn
// sleep, so that they do not take the cores of the other sides.
#include <mpi.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

namespace {

void all_reduce(std::vector<float>& values) {
  MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT, MPI_SUM,
                MPI_COMM_WORLD);
}

double seconds_of(int calls, std::vector<float>& values) {
  all_reduce(values);
  const double begin = MPI_Wtime();
  for (int i = 0; i < calls; ++i) all_reduce(values);
  return (MPI_Wtime() - begin) / calls;
}

// The number that rank 0 has.
int from_first(int number) {
  MPI_Request request;
  MPI_Ibcast(&number, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
  for (int done = 0; !done;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (!done) usleep(1000);
  }
  return number;
}

}  // namespace

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives mpirun
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const size_t count = static_cast<size_t>(std::atol(argv[1])) / sizeof(float);

  std::vector<float> values(count, static_cast<float>(rank + 1));
  all_reduce(values);
  const float expected = static_cast<float>(size * (size + 1)) / 2;
  if (std::any_of(values.begin(), values.end(), [&](float v) { return v != expected; })) {
    std::cerr << "open mpi: wrong sum\n";
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  std::fill(values.begin(), values.end(), 0.0f);

  double first = seconds_of(3, values);
  first = std::min(first, seconds_of(3, values));
  const int calls = from_first(std::clamp(static_cast<int>(0.03 / first), 1, 2000));
  if (rank == 0) std::cout << first << std::endl;
  while (true) {
    std::string line;
    if (from_first(rank == 0 && !std::getline(std::cin, line))) break;
    const double seconds = seconds_of(calls, values);
    if (rank == 0) std::cout << seconds << std::endl;
  }
  MPI_Finalize();
}

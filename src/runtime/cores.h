// Which cores a device computes on, by hwloc.
//
// The cores that this process may use are cut evenly over the devices of all workers of the job on
// this machine. With more devices than cores nobody is bound to any, and each device computes on
// one thread.
#pragma once

#include <hwloc.h>

#include <memory>
#include <vector>

namespace epl {

struct CoreShare {
  std::vector<unsigned> cores;  // numbers as the operating system counts them; empty: not bound
  int threads = 1;              // for operators
};

// The share of each of `devices` devices of a machine that has `cores`.
std::vector<CoreShare> share_cores(const std::vector<unsigned>& cores, int devices);

// The cores that this process may run on.
std::vector<unsigned> allowed_cores();

// Binds the calling thread to the share, and its operators to that many threads, while it stands.
class OnCores {
 public:
  explicit OnCores(const CoreShare& share);
  ~OnCores();
  OnCores(const OnCores&) = delete;
  OnCores& operator=(const OnCores&) = delete;

 private:
  bool bound_ = false;
  int threads_before_ = 1;
  std::vector<unsigned> before_;
};

}  // namespace epl

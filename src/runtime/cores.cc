#include "runtime/cores.h"

#include <ATen/Parallel.h>
#include <omp.h>

#include <algorithm>

#include "base/check.h"

namespace epl {
namespace {

struct FreeBitmap {
  void operator()(hwloc_bitmap_t set) const { hwloc_bitmap_free(set); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

// Loaded once: looking through the machine takes some milliseconds. Never freed: devices' threads
// leave their cores when the process ends, after whatever was made later.
hwloc_topology_t topology() {
  static const hwloc_topology_t loaded = [] {
    hwloc_topology_t made = nullptr;
    EPL_ASSERT(hwloc_topology_init(&made) == 0 && hwloc_topology_load(made) == 0,
               "hwloc cannot read the topology of this machine");
    return made;
  }();
  return loaded;
}

std::vector<unsigned> cores_of_thread() {
  const Bitmap set(hwloc_bitmap_alloc());
  std::vector<unsigned> cores;
  if (hwloc_get_cpubind(topology(), set.get(), HWLOC_CPUBIND_THREAD) != 0) return cores;
  for (int core = hwloc_bitmap_first(set.get()); core >= 0;
       core = hwloc_bitmap_next(set.get(), core)) {
    cores.push_back(static_cast<unsigned>(core));
  }
  return cores;
}

// A machine that does not let threads be bound runs them where it likes.
bool bind_thread(const std::vector<unsigned>& cores) {
  const Bitmap set(hwloc_bitmap_alloc());
  for (unsigned core : cores) hwloc_bitmap_set(set.get(), core);
  return hwloc_set_cpubind(topology(), set.get(), HWLOC_CPUBIND_THREAD) == 0;
}

}  // namespace

std::vector<CoreShare> share_cores(const std::vector<unsigned>& cores, int devices) {
  std::vector<CoreShare> shares(static_cast<size_t>(devices));
  if (cores.size() < shares.size()) return shares;
  for (size_t i = 0; i < shares.size(); ++i) {
    const size_t begin = cores.size() * i / shares.size();
    const size_t end = cores.size() * (i + 1) / shares.size();
    shares[i].cores.assign(cores.begin() + static_cast<std::ptrdiff_t>(begin),
                           cores.begin() + static_cast<std::ptrdiff_t>(end));
    shares[i].threads = static_cast<int>(end - begin);
  }
  return shares;
}

std::vector<unsigned> allowed_cores() { return cores_of_thread(); }

// at::get_num_threads() comes first: on a thread's first call LibTorch sets the number itself.
OnCores::OnCores(const CoreShare& share) : threads_before_(at::get_num_threads()) {
  omp_set_num_threads(std::min(share.threads, threads_before_));
  if (share.cores.empty()) return;
  before_ = cores_of_thread();
  bound_ = bind_thread(share.cores);
}

OnCores::~OnCores() {
  omp_set_num_threads(threads_before_);
  if (bound_) bind_thread(before_);
}

}  // namespace epl

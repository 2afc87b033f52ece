#include "footprint/kernel_memory.h"

#include "runtime/device_memory.h"

namespace epl {

int64_t KernelMemory::bytes_besides(const std::function<void()>& kernel,
                                    const std::function<std::vector<const void*>()>& made) {
  if (!DeviceMemory::in_use_on_this_thread()) return kernel(), 0;
  const DeviceMemory::Log log;
  kernel();
  return log.peak_besides(made());
}

}  // namespace epl

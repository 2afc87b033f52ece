// What kernels hold besides their results while a step is recorded: the recorder asks, and the
// account of this thread's device answers.
#pragma once

#include <functional>
#include <vector>

#include "capture/capture.h"

namespace epl {

class KernelMemory final : public MemoryMeter {
 public:
  int64_t bytes_besides(const std::function<void()>& kernel,
                        const std::function<std::vector<const void*>()>& made) override;
};

}  // namespace epl

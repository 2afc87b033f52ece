// While it stands, the program's own generator gives the random numbers of a device.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include "runtime/random_streams.h"

namespace epl {

class DeviceNumbers {
 public:
  explicit DeviceNumbers(RandomStreams& streams)
      : generator_(at::detail::getDefaultCPUGenerator()), own_(streams.default_generator()) {
    if (own_ == generator_) return;
    before_ = generator_.get_state();
    generator_.set_state(own_.get_state());
  }
  ~DeviceNumbers() {
    if (own_ == generator_) return;
    own_.set_state(generator_.get_state());
    generator_.set_state(before_);
  }
  DeviceNumbers(const DeviceNumbers&) = delete;
  DeviceNumbers& operator=(const DeviceNumbers&) = delete;

 private:
  at::Generator generator_;
  at::Generator own_;
  at::Tensor before_;
};

}  // namespace epl

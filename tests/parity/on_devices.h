// While it stands, epl::init() finds so many devices in this process. At the end the devices'
// threads are gone, so that a test that follows may fork.
#pragma once

#include <epl/env.h>
#include <stdlib.h>

#include <string>

namespace epl::parity {

class OnDevices {
 public:
  explicit OnDevices(int count) : several_(count > 1) {
    if (several_) setenv("EPL_DEVICES", std::to_string(count).c_str(), 1);
  }
  ~OnDevices() {
    if (!several_) return;
    unsetenv("EPL_DEVICES");
    epl::init();
  }
  OnDevices(const OnDevices&) = delete;
  OnDevices& operator=(const OnDevices&) = delete;

 private:
  const bool several_;
};

}  // namespace epl::parity

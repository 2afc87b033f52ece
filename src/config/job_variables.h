// The environment variables by which epl-launch tells a worker its place in the job. Whoever starts
// workers by hand sets the first three.
#pragma once

namespace epl {

constexpr const char* kWorkerIndexVariable = "EPL_WORKER_INDEX";  // 0 to EPL_WORKER_NUM - 1
constexpr const char* kWorkerNumVariable = "EPL_WORKER_NUM";
constexpr const char* kMasterVariable = "EPL_MASTER";           // host:port where worker 0 listens
constexpr const char* kLocalIndexVariable = "EPL_LOCAL_INDEX";  // among the workers of its machine
constexpr const char* kLocalNumVariable = "EPL_LOCAL_NUM";
constexpr const char* kDevicesVariable = "EPL_DEVICES";  // devices of this worker

}  // namespace epl

// MemoryReport: what a training step needs of memory, by what it is for, before anything runs.
//
//   std::cout << trainer.forecast({x, y}).str();    // plans a step for such a batch, runs none
//   std::cout << trainer.memory().str();            // of the plan that runs, beside what was
//   measured
//
//   worker 0: 1.2 GiB (measured 1.2 GiB)
//                        shared    device 0    device 1
//     parameters      415.3 MiB
//     ...
//
// What the devices of a worker share (parameters, buffers, states of the optimizers) counts once,
// as the worker's. The rest is a device's own. The kinds add up to the peak.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace epl {

enum class MemoryKind : uint8_t {
  kParameters,
  kBuffers,         // and copies of those that devices write
  kOptimizerState,  // by the rules that EPL knows; of other optimizers what they keep by now
  kBatch,           // copies of a device's rows
  kGradients,
  kSaved,          // what forward makes and backward reads
  kTemporary,      // whatever else lives at the peak
  kWindows,        // parameters that are brought for the time of their use
  kCommunication,  // what is on its way, and buffers to send it through
  kWorkspace,      // what kernels hold while they run
  kFragmentation,  // of the arena: what nothing lives in at the peak
};
inline constexpr size_t kMemoryKinds = 11;
const char* memory_kind_name(MemoryKind kind);  // "saved activations"

class MemoryBytes {
 public:
  int64_t& operator[](MemoryKind kind) { return bytes_[static_cast<size_t>(kind)]; }
  int64_t operator[](MemoryKind kind) const { return bytes_[static_cast<size_t>(kind)]; }
  int64_t total() const;

 private:
  std::array<int64_t, kMemoryKinds> bytes_ = {};
};

struct MemoryReport {
  struct Device {
    int number = 0;     // in the job
    MemoryBytes bytes;  // its own, at its peak
    // When most lives: "aten::addmm.out, backward of micro batch 0".
    std::string peak_at;
    std::string workspace_at;  // the operator whose kernel holds most; empty where none holds any
    // Most bytes that it held in the last step, by its account; none before a step was replayed,
    // and of devices of other workers.
    std::optional<int64_t> measured;
  };
  struct Worker {
    int number = 0;
    MemoryBytes shared;
    std::vector<Device> devices;
    std::optional<int64_t> measured_shared;  // as above

    int64_t peak() const;  // what it shares, and all its devices at their peaks
    std::optional<int64_t> measured() const;
  };

  std::vector<Worker> workers;
  // Of the device that records: what it held most while the step was recorded. A recorded run keeps
  // what the plain loop keeps, and the states of optimizers besides once they are there.
  int64_t recording = 0;

  // A table for each worker.
  std::string str() const;
};

}  // namespace epl

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
//
// FittingReport: which changes of the configuration would make a step fit into so many bytes.
//
//   std::cout << trainer.what_fits({x, y}, 2LL << 30).str();
#pragma once

#include <epl/config.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
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
    // What lives on it, operator by operator, from the begin of a step to its last update. Of what
    // rests in a file it has what is near at the time, of which the worker has the most.
    std::vector<MemoryBytes> over_time;
    struct Phase {
      std::string name;  // "forward", "backward", "update"
      size_t begin = 0;  // of over_time
    };
    std::vector<Phase> phases;
    // Most bytes that it held in the last step, by its account; none before a step was replayed,
    // and of devices of other workers.
    std::optional<int64_t> measured;
  };
  struct Worker {
    int number = 0;
    MemoryBytes shared;
    std::vector<Device> devices;
    std::optional<int64_t> measured_shared;  // as above
    // What rests in the memory of the host (offload.level without offload.path): no device's.
    int64_t host = 0;

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

// A picture (SVG) of memory over the time of a step: one for each report, with its title, all to
// one scale. Below what the devices of worker 0 share, above it what lives on its first device.
// Time goes by operators: a phase is as wide as it has many, an update at least an eighth of all.
// `limit`: a line at so many bytes; 0: none.
std::string memory_svg(const std::vector<std::pair<std::string, MemoryReport>>& reports,
                       int64_t limit = 0);

// A configuration that a step was planned with, by what it changes.
struct FittingChange {
  std::vector<Setting> changes;  // one or two; none: the configuration as it is
  // Of the device that would hold most, by the account of memory.limit (docs/memory.md); 0 where
  // such a step cannot be planned, and the note says why.
  int64_t bytes = 0;
  double seconds_vs_now = 1;  // estimated time of a step, in times of the first row's
  bool fits = false;
  // A training gives other numbers, beyond the order in which sums are made and random numbers
  // drawn.
  bool changes_numbers = false;
  std::string note;

  std::string str() const;  // zero.level = "v0", pipeline.num_micro_batch = 4
};

struct FittingReport {
  int64_t limit = 0;  // bytes a device may have
  // The configuration as it is, and where that does not fit single changes, then pairs of them.
  std::vector<FittingChange> rows;
  size_t best = 0;

  // The configuration as it is, where that fits; else of those that fit the one with the shortest
  // step, and one that changes numbers only where no other fits. Where none does, the one that
  // needs least: look at `fits`.
  const FittingChange& recommended() const { return rows[best]; }

  std::string str() const;  // a table
};

}  // namespace epl

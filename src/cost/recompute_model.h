// RecomputeModel: what there is to decide where backward may compute values of the forward pass a
// second time, as plain numbers.
//
//   RecomputeModel model = ...;                      // cost/recompute_units.h makes it of a Graph
//   RecomputeMemory memory(model);
//   const RecomputeOutcome all_kept = memory.measure(Again(model.operations.size(), false));
//
// Operations run in their order. Those that run again do so right before the first reader in
// backward of what they make, after what they read themselves is there; all of backward behind it
// reads what was made again. So each runs at most twice.
//
// A step has one part. A stage of a pipeline has several (forward, backward, weights of a chunk),
// with other tasks in between: what lives from one part of a chunk to another one is there as often
// as the chunk has micro batches in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace epl {

struct RecomputeModel {
  struct Storage {
    int64_t bytes = 0;  // that it takes in an arena
    int maker = -1;     // operation; -1: it lies there when part `given` begins
    int given = 0;
    int until = -1;  // the part at whose end it is still read; -1: its last reader is an operation
  };

  // Views are no operations: they cost nothing, and who reads one reads its storage.
  struct Operation {
    size_t node = 0;  // its index in the graph
    int part = 0;
    bool backward = false;
    bool repeatable = false;
    double seconds = 0;
    std::vector<int> reads = {};  // storages that lie in the arena, each once
    std::vector<int> makes = {};
    // Where the one storage that it makes may lie, if nobody reads that any more: in this order.
    std::vector<int> may_take = {};
    int kind = 0;  // operations of one kind do the same on tensors of the same types
  };

  struct Part {
    int chunk = 0;  // all parts of a chunk stand together
  };

  std::vector<Storage> storages;
  std::vector<Operation> operations;
  std::vector<Part> parts = {Part()};
  std::vector<int> in_flight = {1};  // by chunk, of which micro batches are kept
};

using Again = std::vector<bool>;  // by operation: it runs a second time

struct RecomputeOutcome {
  int64_t peak = 0;    // most bytes at one moment, by lifetimes: no placement can do with less
  double seconds = 0;  // of the operations that run again
  int64_t excess = 0;  // bytes above the limit, summed over all moments
};

// Measures choices for one model. Not a function, since choices are tried by the thousand in memory
// that stays.
class RecomputeMemory {
 public:
  explicit RecomputeMemory(const RecomputeModel& model);

  RecomputeOutcome measure(const Again& again, int64_t limit = 0);

  // Of the choice that was measured last:
  Again ran_again() const;                  // whose results somebody reads
  std::vector<int> alive_at_peak() const;   // storages as forward made them
  std::vector<int> remade_at_peak() const;  // storages as they were made again
  size_t moments() const { return transient_.size(); }

 private:
  struct Entry {
    int operation;
    bool again;
    int position = 0;
  };
  struct Buffer {
    int64_t bytes;
    int first;
    int last;
  };

  void order(const Again& again);
  void emit(int operation, const Again& again);
  void place_entries();
  void find_last_uses();
  void find_buffers();
  int take_place(const Entry& entry, const RecomputeModel::Operation& operation) const;
  void touch(int version, int64_t bytes, int position);
  void sum_up();
  RecomputeOutcome outcome(int64_t limit) const;
  std::vector<int> alive(bool remade) const;
  int part_of(int position) const;
  // A storage as it is made again has a number behind all others.
  int version_read(const Entry& entry, int storage) const;
  int version_made(const Entry& entry, int storage) const {
    return entry.again ? storage + storages_ : storage;
  }

  const RecomputeModel& model_;
  const int storages_;
  std::vector<Entry> entries_;
  std::vector<bool> emitted_;        // by operation
  std::vector<int> part_again_;      // by operation
  std::vector<size_t> by_position_;  // entries
  std::vector<int> begins_;          // of parts, and the end of all
  std::vector<int> last_use_;        // by version
  std::vector<int> buffer_of_;       // by version
  std::vector<Buffer> buffers_;
  std::vector<int64_t> transient_;    // by position
  std::vector<int64_t> activations_;  // likewise
  std::vector<int> peaks_;            // positions that make up the peak
  int64_t kept_ = 0;                  // bytes of all micro batches in flight
  std::vector<int> stack_;
};

}  // namespace epl

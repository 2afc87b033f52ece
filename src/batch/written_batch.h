// A step that writes a tensor of its batch in place writes a copy: the user's own tensor stays as
// it was, where the plain program would change it. Nobody sees the difference but a program that
// hands the same memory in again, or twice in one batch, or reads it by another way: it is told.
#pragma once

#include <epl/step.h>

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/capture.h"
#include "ir/graph.h"

namespace epl {

// By place in the batch: the first operator that writes the tensor.
using InputWriters = std::map<size_t, std::string>;
InputWriters writers_of_inputs(const Graph& recorded);

// Throws epl::Error where two tensors of the batch share memory and one of them is written, or
// where the step writes what a tensor of the batch shares with one that it closes over.
void check_apart(const InputWriters& writers, const Batch& batch);
void check_apart(const Graph& recorded, const InputWriters& writers, const Batch& batch);

// A tensor that a step closes over and writes. Whether the user has since assigned another one to
// its variable is seen by who holds it, so this does not.
struct WrittenOutside {
  std::string name;
  WeakStorage storage;
  TensorType type;

  at::Tensor lock() const;  // undefined where the memory is gone
  bool is_same(const WrittenOutside& other) const;
};
// Only what was there before the step: not what it makes itself.
std::vector<WrittenOutside> find_written_outside(const Capture& captured);

// All that recordings have found, as long as it is there.
class AllWrittenOutside {
 public:
  void add(const Capture& captured);
  std::vector<std::pair<std::string, at::Tensor>> tensors() const;

 private:
  std::vector<WrittenOutside> all_;
};

// Why devices cannot have copies of their own of what the step writes: two tensors of the user's
// lie in one piece of memory. Empty where none do.
std::string writes_in_shared_memory(const Graph& recorded);

class WrittenBatch {
 public:
  // After a step that has written a copy of the batch.
  void note(const InputWriters& writers, const Batch& batch);
  // Before a step. Throws epl::Error where some memory of the batch was to be written in place by
  // an earlier step, and nobody has filled it since.
  void check(const Batch& batch) const;

 private:
  struct Written {
    size_t index;
    std::string writer;  // the operator
    int64_t begin, end;  // bytes of the storage
    uint32_t version;
  };
  struct Memory {
    WeakStorage storage;
    std::vector<Written> written;
  };
  void drop_dead();

  std::unordered_map<const c10::StorageImpl*, Memory> memories_;
  size_t most_ = 64;  // of them before the dead ones are dropped
};

}  // namespace epl

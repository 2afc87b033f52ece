// A step that writes a tensor of its batch in place writes a copy: the user's own tensor stays as
// it was, where the plain program would change it. Nobody sees the difference but a program that
// hands the same tensor in again: it is told.
#pragma once

#include <epl/step.h>

#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace epl {

// By place in the batch: the first operator that writes the tensor.
using InputWriters = std::map<size_t, std::string>;
InputWriters writers_of_inputs(const Graph& recorded);

class WrittenBatch {
 public:
  // After a step on the batch.
  void note(const InputWriters& writers, const Batch& batch);
  // Before a step. Throws epl::Error where one of its tensors was written in place by the last one,
  // and nobody has filled it since.
  void check(const Batch& batch) const;

 private:
  struct Written {
    size_t index;
    std::string writer;  // the operator
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    uint32_t version;
  };
  std::vector<Written> written_;
};

}  // namespace epl

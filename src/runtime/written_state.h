// What the devices wrote in a step into tensors that outlive it, brought together.
//
// Every device writes a copy of its own, from its own rows. What the plain loop would have written
// from all rows follows in two ways:
//   - kMean: floating-point buffers, whose running statistics are means over rows, become the mean.
//   - kWriters: parameters and integers take, element by element, what those devices wrote that
//     changed it. They have to agree: clamping or normalising a weight, the rows of an embedding
//     that were looked up, a counter of steps. Where they do not, the result would depend on who
//     had which rows, and there is an error with all of them as before the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "comm/communicator.h"

namespace epl {

struct WrittenState {
  enum class Merge : uint8_t { kMean, kWriters };

  std::string name;
  Merge merge = Merge::kMean;
  int role = 0;
  at::Tensor users;                 // the user's own, or a piece of it: gets the result
  at::Tensor before;                // kWriters: what it was before the step
  std::vector<at::Tensor> written;  // by the devices of this worker that count, in order
  int devices = 1;                  // of all workers that write it
};

// Alike on all workers but for `written`, which is empty where no device of the role is.
void merge_written_state(const std::vector<WrittenState>& states, Communicator* workers);

}  // namespace epl

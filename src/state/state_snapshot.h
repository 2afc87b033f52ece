// What a run changes besides its results: tensors that outlive it (buffers, what a step closes
// over) and random generators. For a run that may have to start over.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "ir/graph.h"

namespace epl {

// The default one, and those that the user made and handed to operators.
std::vector<at::Generator> generators_of(const Graph& graph);

class StateSnapshot {
 public:
  StateSnapshot(const std::vector<at::Tensor>& tensors,
                const std::vector<at::Generator>& generators);
  void restore() const;

  // The tensors themselves, as they are now.
  std::vector<at::Tensor> tensors() const;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> contents_;
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
};

}  // namespace epl

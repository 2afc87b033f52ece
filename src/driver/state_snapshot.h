// What a run of a compiled step changes besides its results: tensors that outlive it (buffers, what
// the step closes over) and random generators. For a run that may have to start over.
#pragma once

#include <ATen/core/Generator.h>

#include <utility>
#include <vector>

#include "compile/compile.h"

namespace epl {

// The default one, and those that the user made and handed to operators.
std::vector<at::Generator> generators_of(const Graph& graph);

class StateSnapshot {
 public:
  explicit StateSnapshot(const CompiledStep& step);
  void restore() const;

  // The tensors themselves, as they are now.
  std::vector<at::Tensor> tensors() const;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> contents_;
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
};

}  // namespace epl

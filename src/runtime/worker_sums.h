// WorkerSums: the sums of gradients that a worker keeps itself, since they do not stay in the
// arenas of its devices (PlanGradient::Stays::kUntilSummed).
//
// Each has the shape of its gradient, of which the worker holds the pages of the elements that it
// owns: it writes no others. All of them lie in one mapping, so that small ones share no page with
// what is owned elsewhere.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>

#include "layout/layout.h"
#include "program/program.h"
#include "runtime/pages.h"

namespace epl {

class WorkerSums {
 public:
  // In `pages`, which is made larger where it has too few bytes, and outlives what lies in it.
  WorkerSums(const Program& program, at::Tensor& pages);

  bool empty() const { return sums_.empty(); }
  bool has(int gradient) const { return sums_.count(gradient) != 0; }
  const at::Tensor& of(int gradient) const { return sums_.at(gradient); }

  // Puts the elements [begin, begin + length) of what was computed, in the order of memory, into
  // the sum; those of the first micro batch replace what is there.
  enum class Mode : uint8_t { kReplace, kAdd };
  void take(int gradient, const at::Tensor& computed, const Piece& elements, Mode mode) const;
  // Gives back what was written of others' elements, while somebody compared all of them.
  void release_besides(int gradient, const Piece& elements) const;

 private:
  std::map<int, at::Tensor> sums_;  // by gradient of the program
};

}  // namespace epl

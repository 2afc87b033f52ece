// Ask twice: is what a step was recorded as the same when it is recorded again?
//
// A recording holds what the step did once. Whatever the function read besides its batch and
// tensors that EPL knows by reference (C++ numbers, memory read through a pointer, a branch that
// another thread computed) stands in it as a constant. A second recording, of another batch, shows
// those constants: they differ.
#pragma once

#include <string>

#include "ir/graph.h"

namespace epl {

// What tells two recordings apart.
struct Difference {
  std::string text;      // for a reader who wrote the step; empty where nothing does
  bool guarded = false;  // a guard of the recording sees it in every step

  explicit operator bool() const { return !text.empty(); }
};

// Of batches of one shape, since numbers may follow sizes. Where a guard expects something else the
// rest may differ as well, and the guard will tell; only a number with a fraction, which is another
// one in each step, counts as a difference.
Difference difference_between(const Graph& first, const Graph& second);

// Operators in their order, with numbers that no shape explains. Recordings of one form do the same
// with batches of several shapes.
std::string form_of(const Graph& graph);

}  // namespace epl

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

enum class BatchShapes : uint8_t { kSame, kOther };  // of the two recordings

// What tells the two apart, for a reader who wrote the step; empty where nothing does. Recordings
// of batches of other shapes are compared by their operators alone, since numbers may follow sizes.
// What a guard expects may differ: it is looked at in every step; but a number that is a fraction
// is not found again, and tells them apart.
std::string difference_between(const Graph& first, const Graph& second, BatchShapes shapes);

}  // namespace epl

// Moving LibTorch's generator of the CPU, a Mersenne twister, on without drawing.
//
// Where devices draw the numbers of a step from streams of their own, the program's generator moves
// on by as many, so that what the program draws next is what it would draw without them.
#pragma once

#include <ATen/core/MT19937RNGEngine.h>

#include <cstdint>

namespace epl {

// How many numbers of 32 bits were drawn between two states of one generator; 0 where it was given
// another seed meanwhile.
uint64_t draws_between(const at::mt19937_data_pod& before, const at::mt19937_data_pod& after);

void skip_draws(at::mt19937_data_pod& state, uint64_t draws);

}  // namespace epl

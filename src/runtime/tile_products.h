// Products on the tiles of a processor (AMX), which oneDNN uses for bfloat16 and LibTorch calls.
//
// oneDNN 2.6 and 3, which the LibTorch of Debian 12 and 13 load, can end the process there: SIGILL
// at `tilezero`, in torch::mm of two 256x256 matrices, with and without the system's permission for
// tiles, on a virtual machine whose processor says that it has them. Without tiles their kernels
// use the other bfloat16 instructions, and work. Where tiles do work that is slower than it could
// be; whether they do can only be found out by a process that may die of it.
#pragma once

namespace epl {

// Before mixed precision: from here on oneDNN computes without tiles, where it is a library of its
// own. Throws epl::Error where it is too late: oneDNN has chosen its instructions by the first
// operator that it ran.
void avoid_tile_products();

}  // namespace epl

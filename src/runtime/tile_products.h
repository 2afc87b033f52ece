// Products on the tiles of a processor (AMX), which oneDNN uses for bfloat16 and LibTorch calls.
//
// oneDNN 2.6.3, which Debian 12's LibTorch 1.13 loads, ends the process there: its kernel clears a
// tile that nothing has set up (SIGILL at `tilezero`, in torch::mm of two 256x256 matrices, with
// and without the system's permission for tiles). Without tiles its kernels use the other bfloat16
// instructions, and work.
#pragma once

namespace epl {

// Before mixed precision: from here on oneDNN computes without tiles, where it is one of those that
// fail. Throws epl::Error where it is too late: oneDNN has chosen its instructions by the first
// operator that it ran.
void avoid_tile_products();

}  // namespace epl

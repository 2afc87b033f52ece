#include "runtime/tile_products.h"

#include <dlfcn.h>

#include "base/check.h"

namespace epl {
namespace {

// As oneDNN declares them, in its versions 2 and 3; LibTorch's own headers do not have them.
constexpr int kSuccess = 0;
constexpr int kBfloat16 = 0xe7;  // dnnl_cpu_isa_avx512_core_bf16
constexpr int kTiles = 0x300;    // what dnnl_cpu_isa_avx512_core_amx has besides

// Of the oneDNN that LibTorch loads; null where it is a part of LibTorch, as in its own releases,
// which have one that works.
template <typename Function>
Function* dnnl_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

void avoid_tile_products() {
  auto* const limit = dnnl_function<int(int)>("dnnl_set_max_cpu_isa");
  auto* const used = dnnl_function<int()>("dnnl_get_effective_cpu_isa");
  if (limit == nullptr || used == nullptr || limit(kBfloat16) == kSuccess) return;
  const bool uses_tiles = (used() & kTiles) == kTiles;
  EPL_CHECK(
      !uses_tiles,
      "this LibTorch's oneDNN ends the process in bfloat16 products on the tiles (AMX) of this "
      "processor, and has begun to compute, so that it cannot be told to leave them out",
      "amp.level = \"O1\"",
      "epl::init() at the beginning of main(), or DNNL_MAX_CPU_ISA=AVX512_CORE_BF16 in the "
      "environment");
}

}  // namespace epl

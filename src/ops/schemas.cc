// The operators of EPL's own, as LibTorch's dispatcher knows them: rows of ops and sharding put
// them into graphs. Their kernels are in runtime (collectives.cc, cut_softmax.cc, cut_index.cc,
// counted_targets.cc).
#include <torch/library.h>

#include <string>

#include "base/text.h"

namespace epl {
namespace {

// An operator that makes one tensor, and its overload that writes into a given one.
void define_with_out(torch::Library& library, const std::string& name,
                     const std::string& arguments) {
  library.def(concat(name, "(", arguments, ") -> Tensor").c_str());
  library.def(concat(name, ".out(", arguments, ", *, Tensor(a!) out) -> Tensor(a!)").c_str());
}

}  // namespace

// Over the devices of a group: those along an axis of the mesh (layout/mesh.h).
TORCH_LIBRARY(epl, library) {
  define_with_out(library, "all_reduce", "Tensor x, str op, str axis");
  define_with_out(library, "broadcast", "Tensor x, int root, str axis");
  define_with_out(library, "all_gather", "Tensor x, int dim, int[] pieces, str axis");
  define_with_out(library, "reduce_scatter", "Tensor x, int dim, int[] pieces, str axis");
  define_with_out(library, "all_to_all",
                  "Tensor x, int from, int to, int[] from_pieces, int[] to_pieces, str axis");
  define_with_out(library, "own_piece", "Tensor x, int dim, int[] pieces, str axis");
  define_with_out(library, "own_addend", "Tensor x, str axis");
}

// On what a device has of a tensor.
TORCH_LIBRARY(epl_rows, library) {
  define_with_out(library, "sum_exp", "Tensor x, Tensor largest, int dim");
  define_with_out(library, "log_softmax", "Tensor x, Tensor largest, Tensor sum");
  define_with_out(library, "log_softmax_backward", "Tensor gradient, Tensor output, Tensor sum");
  define_with_out(library, "index_in_piece",
                  "Tensor index, int begin, int whole, int? ignored, bool from_end");
  define_with_out(library, "note_ignored", "Tensor target, int ignored");
}

}  // namespace epl

// Indices into a dimension that is cut over devices, as an operator of LibTorch:
//
//   epl_rows::index_in_piece(Tensor index, int begin, int whole, int? ignored, bool from_end)
//       -> Tensor
//
// gives the numbers from `begin` on. Those that fall into another piece are below 0 or behind the
// end of this one, and `ignored` is below 0. LibTorch's own operators see only what falls into
// their piece, so numbers that fall into none of them are found here.
#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

namespace epl {
namespace {

int64_t placed(int64_t number, int64_t begin, int64_t whole, c10::optional<int64_t> ignored,
               bool from_end) {
  if (ignored && number == *ignored) return -1;
  const int64_t from_begin = from_end && number < 0 ? number + whole : number;
  TORCH_CHECK_INDEX(from_begin >= 0 && from_begin < whole, "index ", number,
                    " is out of bounds for a dimension of size ", whole,
                    " (which is cut over devices)");
  return from_begin - begin;
}

at::Tensor& index_in_piece_out(const at::Tensor& index, int64_t begin, int64_t whole,
                               c10::optional<int64_t> ignored, bool from_end, at::Tensor& out) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::Tensor numbers = index.to(at::kLong).contiguous();
  const at::Tensor results = at::empty_like(numbers);
  const int64_t* const from = numbers.data_ptr<int64_t>();
  int64_t* const to = results.data_ptr<int64_t>();
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    to[i] = placed(from[i], begin, whole, ignored, from_end);
  }
  return out.copy_(results);
}

at::Tensor index_in_piece(const at::Tensor& index, int64_t begin, int64_t whole,
                          c10::optional<int64_t> ignored, bool from_end) {
  at::Tensor out = at::empty_like(index, c10::MemoryFormat::Contiguous);
  return index_in_piece_out(index, begin, whole, ignored, from_end, out);
}

at::Tensor index_in_piece_meta(const at::Tensor& index, int64_t, int64_t, c10::optional<int64_t>,
                               bool) {
  return at::empty_like(index, c10::MemoryFormat::Contiguous);
}

}  // namespace

TORCH_LIBRARY_IMPL(epl_rows, CPU, library) {
  library.impl("index_in_piece", index_in_piece);
  library.impl("index_in_piece.out", index_in_piece_out);
}

TORCH_LIBRARY_IMPL(epl_rows, Meta, library) { library.impl("index_in_piece", index_in_piece_meta); }

TORCH_LIBRARY_IMPL(epl_rows, AutogradMeta, library) {
  library.impl("index_in_piece", torch::CppFunction::makeFallthrough());
}

}  // namespace epl

// Targets of a loss whose rows are cut over devices, as an operator of LibTorch:
//
//   epl_rows::all_count(Tensor target, int ignored) -> Tensor
//
// gives the targets, and throws where one of them is `ignored`. A mean over the targets that count
// has another divisor on each device then, and the mean of the devices' means is not that of all.
#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <epl/error.h>

#include "base/text.h"
#include "runtime/operators.h"

namespace epl {
namespace {

at::Tensor& all_count_out(const at::Tensor& target, int64_t ignored, at::Tensor& out) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (target.eq(ignored).any().item<bool>()) {
    throw Error(concat("a loss of reduction \"mean\" ignores rows (target ", ignored,
                       "), but the rows of its micro batch are cut over devices, each of which "
                       "would divide by the rows that count on it alone"),
                "epl::replicate(k) with k > 1 around the loss",
                "reduction kSum divided by a number that is the same for all devices, or "
                "epl::replicate(1), which gives every device whole micro batches");
  }
  return out.copy_(target);
}

at::Tensor all_count(const at::Tensor& target, int64_t ignored) {
  at::Tensor out = at::empty_like(target, c10::MemoryFormat::Contiguous);
  return all_count_out(target, ignored, out);
}

at::Tensor all_count_meta(const at::Tensor& target, int64_t) {
  return at::empty_like(target, c10::MemoryFormat::Contiguous);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(epl_rows, library) {
  define_with_out(library, "all_count", "Tensor target, int ignored");
}

TORCH_LIBRARY_IMPL(epl_rows, CPU, library) {
  library.impl("all_count", all_count);
  library.impl("all_count.out", all_count_out);
}

TORCH_LIBRARY_IMPL(epl_rows, Meta, library) { library.impl("all_count", all_count_meta); }

TORCH_LIBRARY_IMPL(epl_rows, AutogradMeta, library) {
  library.impl("all_count", torch::CppFunction::makeFallthrough());
}

}  // namespace epl

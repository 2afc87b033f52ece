#include "runtime/merge_metric.h"

#include <ATen/Functions.h>
#include <epl/collection.h>

namespace epl {
namespace {

// In the type of the parts where the sum fits into it.
at::Tensor sum_of(const std::vector<at::Tensor>& parts) {
  if (parts.size() == 1) return parts[0];
  const at::Tensor sum = at::stack(parts).sum(0);
  const at::Tensor narrow = sum.to(parts[0].dtype());
  const bool fits = narrow.is_floating_point() || narrow.is_complex() || narrow.equal(sum);
  return fits ? narrow : sum;
}

}  // namespace

at::Tensor merge_metric(const std::string& collection, const std::vector<at::Tensor>& parts) {
  const bool concatenates =
      collection == collections::kGlobalConcat || collection == collections::kLocalConcat;
  if (concatenates) return parts[0].dim() == 0 ? at::stack(parts) : at::cat(parts);
  if (collection == collections::kGlobalSum || collection == collections::kLocalSum) {
    return sum_of(parts);
  }
  return parts.size() == 1 ? parts[0] : at::stack(parts).mean(0);
}

}  // namespace epl

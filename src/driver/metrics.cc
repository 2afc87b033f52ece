#include "driver/metrics.h"

#include <ATen/Functions.h>
#include <epl/collection.h>

namespace epl {

at::Tensor merge_metric(const std::string& collection, const std::vector<at::Tensor>& parts) {
  const bool concatenates =
      collection == collections::kGlobalConcat || collection == collections::kLocalConcat;
  if (concatenates) return parts[0].dim() == 0 ? at::stack(parts) : at::cat(parts);
  if (parts.size() == 1) return parts[0];
  const at::Tensor all = at::stack(parts);
  if (collection == collections::kGlobalSum || collection == collections::kLocalSum) {
    return all.sum(0).to(parts[0].dtype());
  }
  return (c10::isFloatingType(all.scalar_type()) ? all : all.to(at::kFloat)).mean(0);
}

}  // namespace epl

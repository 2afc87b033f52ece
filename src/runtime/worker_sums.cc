#include "runtime/worker_sums.h"

#include <ATen/Functions.h>

namespace epl {
namespace {

constexpr int64_t kPageOfSums = 4096;

int64_t in_whole_pages(int64_t bytes) {
  return (bytes + kPageOfSums - 1) / kPageOfSums * kPageOfSums;
}

at::Tensor in_a_row(const at::Tensor& tensor, const Piece& elements) {
  return tensor.as_strided({tensor.numel()}, {1}).narrow(0, elements.begin, elements.length);
}

}  // namespace

WorkerSums::WorkerSums(const Program& program, at::Tensor& pages) {
  const auto type_of = [&](const PlanGradient& gradient) -> const TensorType& {
    return program.slots[static_cast<size_t>(gradient.slot)].type;
  };
  const auto is_here = [](const PlanGradient& gradient) {
    return gradient.stays == PlanGradient::Stays::kUntilSummed;
  };
  int64_t all = 0;
  for (const PlanGradient& each : program.gradients) {
    if (is_here(each)) all += in_whole_pages(type_of(each).numel() * type_of(each).item_bytes());
  }
  if (all == 0) return;
  if (!pages.defined() || static_cast<int64_t>(pages.nbytes()) < all) {
    pages = at::Tensor();  // before there are others
    pages = bytes_by_page(all);
  }
  int64_t begin = 0;
  for (size_t i = 0; i < program.gradients.size(); ++i) {
    if (!is_here(program.gradients[i])) continue;
    const TensorType& type = type_of(program.gradients[i]);
    const int64_t bytes = type.numel() * type.item_bytes();
    const at::Tensor row = pages.narrow(0, begin, bytes).view(type.dtype);
    sums_[static_cast<int>(i)] = row.as_strided(type.sizes, type.strides);
    begin += in_whole_pages(bytes);
  }
}

void WorkerSums::take(int gradient, const at::Tensor& computed, const Piece& elements,
                      Mode mode) const {
  if (elements.length == 0) return;
  at::Tensor own = in_a_row(of(gradient), elements);
  const at::Tensor added = in_a_row(computed, elements);
  if (mode == Mode::kReplace) {
    own.copy_(added);
  } else {
    own.add_(added);
  }
}

void WorkerSums::release_besides(int gradient, const Piece& elements) const {
  release_pages_besides(of(gradient), elements.begin, elements.length);
}

}  // namespace epl

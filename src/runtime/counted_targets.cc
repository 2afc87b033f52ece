// Targets of a loss of which a part of the rows is at hand, as an operator of LibTorch:
//
//   epl_rows::note_ignored(Tensor target, int ignored) -> Tensor
//
// gives the targets. Where one of them is `ignored`, whoever asks ignored_targets_seen() hears of
// it: a mean over the targets that count has another divisor on each part then, and the mean of the
// parts' means is not that of all.
#include "runtime/counted_targets.h"

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Reduction.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>

namespace epl {
namespace {

std::atomic<int64_t> seen{0};

bool has_ignored(const at::Tensor& target, int64_t ignored) {
  const bool plain = target.is_contiguous() && target.scalar_type() == at::kLong;
  if (!plain) return target.eq(ignored).any().item<bool>();
  const int64_t* const begin = target.data_ptr<int64_t>();
  const int64_t* const end = begin + target.numel();
  return std::find(begin, end, ignored) != end;
}

at::Tensor& note_ignored_out(const at::Tensor& target, int64_t ignored, at::Tensor& out) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  if (has_ignored(target, ignored)) seen.fetch_add(1, std::memory_order_relaxed);
  return out.copy_(target);
}

at::Tensor note_ignored(const at::Tensor& target, int64_t ignored) {
  at::Tensor out = at::empty_like(target, c10::MemoryFormat::Contiguous);
  return note_ignored_out(target, ignored, out);
}

at::Tensor like_target(const at::Tensor& target, int64_t) {
  return at::empty_like(target, c10::MemoryFormat::Contiguous);
}

// Which operator this is costs nothing to ask; only its arguments tell the rest, and those are
// there when it begins and not when it has ended.
struct MeanOverTargets final : at::ObserverContext {
  double targets = 0;
};

std::unique_ptr<at::ObserverContext> enter_loss(const at::RecordFunction& function) {
  const auto name = function.operator_name();
  const bool nll =
      name && (name->name == "aten::nll_loss_forward" || name->name == "aten::nll_loss2d_forward");
  if (!nll) return nullptr;
  const auto inputs = function.inputs();  // self, target, weight, reduction, ignore_index
  const bool mean = inputs[2].isNone() || !inputs[2].toTensor().defined();
  if (!mean || inputs[3].toInt() != at::Reduction::Mean) return nullptr;
  auto entered = std::make_unique<MeanOverTargets>();
  entered->targets = static_cast<double>(inputs[1].toTensor().numel());
  return entered;
}

// Read without an operator, which a recorder would take for one of the step's. The targets
// themselves may lie in pages that are watched (capture/watched_inputs.h); their count does not.
double counted(const at::Tensor& total) {
  if (total.storage().data() == nullptr) return -1;  // with plan.only nothing is counted
  if (total.scalar_type() == at::kDouble) return *total.data_ptr<double>();
  return total.scalar_type() == at::kFloat ? *total.data_ptr<float>() : -1;
}

void leave_loss(const at::RecordFunction& function, at::ObserverContext* entered) {
  if (entered == nullptr || function.outputs().size() != 2) return;
  const at::Tensor& total = function.outputs()[1].toTensor();
  const double count = total.is_cpu() && total.numel() == 1 ? counted(total) : -1;
  const double targets = static_cast<const MeanOverTargets*>(entered)->targets;
  if (count >= 0 && count < targets) seen.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

IgnoredTargetsWatch::IgnoredTargetsWatch()
    : callback_(at::addThreadLocalCallback(at::RecordFunctionCallback(enter_loss, leave_loss)
                                               .scopes({at::RecordScope::FUNCTION})
                                               .needsInputs(true)
                                               .needsOutputs(true))) {}

IgnoredTargetsWatch::~IgnoredTargetsWatch() { at::removeCallback(callback_); }

int64_t ignored_targets_seen() { return seen.load(std::memory_order_relaxed); }

TORCH_LIBRARY_IMPL(epl_rows, CPU, library) {
  library.impl("note_ignored", note_ignored);
  library.impl("note_ignored.out", note_ignored_out);
}

TORCH_LIBRARY_IMPL(epl_rows, Meta, library) { library.impl("note_ignored", like_target); }

TORCH_LIBRARY_IMPL(epl_rows, AutogradMeta, library) {
  library.impl("note_ignored", torch::CppFunction::makeFallthrough());
}

}  // namespace epl

// The hook in LibTorch's dispatcher: a fallback for every operator on DispatchKey::Fake, a key that
// LibTorch reserves for libraries outside of its core. It lies below autograd, so forward and
// backward operators arrive alike; it acts only on a thread that a RecorderGuard switched it on
// for.
#include <ATen/record_function.h>
#include <torch/library.h>

#include "capture/ghost.h"
#include "capture/made_under_split.h"
#include "capture/recorder.h"
#include "capture/run_on_shapes.h"

namespace epl {
namespace {

constexpr auto kKey = c10::DispatchKey::Fake;

thread_local Recorder* current_recorder = nullptr;

// LibTorch shows conjugates and some negatives through a bit of the tensor, on the same memory. A
// Value has no such bit: they are computed at once.
c10::OperatorHandle computed(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  auto& dispatcher = c10::Dispatcher::singleton();
  if (name == "aten::_conj") return dispatcher.findSchemaOrThrow("aten::_conj_physical", "");
  if (name == "aten::_neg_view") return dispatcher.findSchemaOrThrow("aten::neg", "");
  return op;
}

// By shapes where a guard says so, and where a ghost has outlived it.
void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (ShapesOnly::current() == nullptr && !reads_ghosts(op, *stack)) return op.callBoxed(stack);
  run_on_shapes(op, keys, stack, current_recorder);
}

void handle(const c10::OperatorHandle& called, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard once(kKey);
  if (is_running_on_shapes()) return run(called, keys, stack);  // part of an operator
  if (current_recorder == nullptr) {
    run(called, keys, stack);
    const CreationWatch* const watch = CreationWatch::current();
    for (size_t i = 0; watch != nullptr && i < called.schema().returns().size(); ++i) {
      const c10::IValue& made = (*stack)[stack->size() - 1 - i];
      if (made.isTensor()) watch->note(made.toTensor());
    }
    return;
  }
  const c10::OperatorHandle op = computed(called);
  current_recorder->record(op, stack, [&] { run(op, keys, stack); });
}

// What runs inside of a recorded operator is no part of the step.
bool is_seen() {
  return current_recorder != nullptr && !is_running_on_shapes() &&
         !c10::impl::tls_is_dispatch_key_excluded(kKey);
}

// Composite operators do not reach the dispatcher's lower keys, but profiling callbacks see them.
// Returned where the operator was told of, so that its end is told of as well.
struct Entered final : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> enter_op(const at::RecordFunction& function) {
  if (!is_seen()) return nullptr;
  const c10::impl::ExcludeDispatchKeyGuard unseen(kKey);
  const auto name = function.operator_name();
  EnclosingOp op{name ? c10::toString(*name) : function.name(), {}};
  if (needs_inputs(op.name)) op.inputs.assign(function.inputs().begin(), function.inputs().end());
  current_recorder->enter_op(std::move(op));
  return std::make_unique<Entered>();
}

void leave_op(const at::RecordFunction& function, at::ObserverContext* entered) {
  if (entered == nullptr || current_recorder == nullptr) return;
  const c10::impl::ExcludeDispatchKeyGuard unseen(kKey);
  current_recorder->leave_op(function.outputs());
}

}  // namespace

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&handle>());
}

RecorderGuard::RecorderGuard(Recorder& recorder)
    : callback_(at::addThreadLocalCallback(at::RecordFunctionCallback(enter_op, leave_op)
                                               .scopes({at::RecordScope::FUNCTION})
                                               .needsInputs(true)
                                               .needsOutputs(true))),
      include_(kKey) {
  current_recorder = &recorder;
}

RecorderGuard::~RecorderGuard() {
  current_recorder = nullptr;
  at::removeCallback(callback_);
}

}  // namespace epl

#include "capture/run_on_shapes.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "capture/ghost.h"
#include "capture/stand_ins.h"
#include "ops/facts.h"
#include "ops/shape.h"

namespace epl {
namespace {

using torch::jit::Stack;

constexpr auto kShapesKey = c10::DispatchKey::Fake;

thread_local int depth_of_shapes = 0;

// What an operator calls comes back to the hook while this stands.
class InsideOfOperator {
 public:
  InsideOfOperator() : excluded_(c10::impl::tls_is_dispatch_key_excluded(kShapesKey)) {
    c10::impl::tls_set_dispatch_key_excluded(kShapesKey, false);
    ++depth_of_shapes;
  }
  ~InsideOfOperator() {
    --depth_of_shapes;
    c10::impl::tls_set_dispatch_key_excluded(kShapesKey, excluded_);
  }
  InsideOfOperator(const InsideOfOperator&) = delete;
  InsideOfOperator& operator=(const InsideOfOperator&) = delete;

 private:
  const bool excluded_;
};

// One operator on its way.
class ShapeCall {
 public:
  ShapeCall(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack,
            const CallPlace* place)
      : op_(op),
        keys_(keys),
        stack_(*stack),
        place_(place),
        arguments_(op.schema().arguments()),
        base_(stack->size() - arguments_.size()) {
    look_at_arguments();
  }

  void run() {
    if (reads_metadata_only(op_)) return run_in_parts();
    if (!has_ghosts_) return run_small();
    if (auto answered = GhostAnswers(op_, stack_, base_, place_).find()) return give(*answered);
    const bool view = shows_ && !writes_;
    if (view || has_sparse_ || changes_place_only(op_)) return run_in_parts();
    run_by_shapes();
  }

 private:
  const c10::IValue& argument(size_t index) const { return stack_[base_ + index]; }
  std::string name() const { return c10::toString(op_.operator_name()); }

  void look_at_arguments() {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      visit_tensors(argument(i), [&](const at::Tensor& tensor) {
        has_tensors_ = true;
        has_ghosts_ |= is_ghost(tensor);
        has_sparse_ |= tensor.layout() != c10::kStrided;
      });
      const auto* const alias = arguments_[i].alias_info();
      if (alias != nullptr) (alias->isWrite() ? writes_ : shows_) = true;
      takes_results_ |= arguments_[i].is_out();
      const bool layout = arguments_[i].name() == "layout" && argument(i).isInt();
      has_sparse_ |= layout && argument(i).toLayout() != c10::kStrided;
    }
  }

  // The operator itself, with all that it calls.
  void run_kernel() {
    const c10::impl::ExcludeDispatchKeyGuard real(kShapesKey);
    op_.callBoxed(&stack_);
  }

  // Its kernel for this device; what that calls comes here.
  void run_in_parts() {
    const InsideOfOperator inside;
    op_.redispatchBoxed(keys_ & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kShapesKey),
                        &stack_);
  }

  bool has_parts() const {
    return find_shape_row(op_) == runs_in_parts ||
           !op_.hasKernelForDispatchKey(c10::DispatchKey::CPU);
  }

  // No argument is a ghost. What lies in memory that is there stays real, and so does what is
  // small.
  void run_small() {
    if (writes_ || shows_ || has_sparse_ || !gives_tensors()) return run_kernel();
    StandIns stand_ins;
    std::optional<Stack> made;
    try {
      made = shapes(stand_ins, op_);
    } catch (const c10::Error&) {
      made = std::nullopt;  // the kernel says what is wrong
    }
    if (!made || is_made_real(bytes_of(*made))) return run_kernel();
    give(ghosts_of(*made, stand_ins));
  }

  bool gives_tensors() const {
    const auto& returns = op_.schema().returns();
    return std::any_of(returns.begin(), returns.end(), [](const c10::Argument& result) {
      const auto kind = result.type()->kind();
      return kind == c10::TypeKind::TensorType || kind == c10::TypeKind::ListType;
    });
  }

  // What part of an operator makes to be resized is sized from a ghost.
  static bool is_made_real(int64_t bytes) {
    return bytes <= current_shape_options().real_up_to && (bytes > 0 || !is_running_on_shapes());
  }

  static int64_t bytes_of(const Stack& made) {
    int64_t bytes = 0;
    for (const c10::IValue& value : made) {
      visit_tensors(
          value, [&](const at::Tensor& tensor) { bytes += static_cast<int64_t>(tensor.nbytes()); });
    }
    return bytes;
  }

  void run_by_shapes() {
    StandIns stand_ins;
    const std::optional<Stack> made = shapes_or_variant(stand_ins);
    if (!made && !writes_ && has_parts()) return run_in_parts();
    // What writes in place keeps its sizes, and so may go without a shape.
    EPL_CHECK(
        made || (writes_ && !takes_results_),
        concat(name(), " of ", types_of_arguments(op_, stack_), " has no shape function", near()),
        "a run on shapes alone (plan.only)",
        "add a row to src/ops/shape_rows_layers.cc, or use another operator there");
    if (!writes_) {
      become_ghosts(written_statistics());
      return give(ghosts_of(*made, stand_ins));
    }
    become_ghosts(written_by_schema());
    if (takes_results_ && !is_sized_) stand_ins.resize_originals();
    give(written_results(made, stand_ins));
  }

  std::vector<size_t> written_by_schema() const {
    std::vector<size_t> written;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const auto* const alias = arguments_[i].alias_info();
      if (alias != nullptr && alias->isWrite()) written.push_back(i);
    }
    return written;
  }

  // Batch norm in training mode writes them without saying so.
  std::vector<size_t> written_statistics() const {
    const auto statistics = running_statistics(op_);
    if (!statistics || !argument(statistics->training).toBool()) return {};
    return {statistics->mean, statistics->mean + 1};
  }

  void become_ghosts(const std::vector<size_t>& written) const {
    for (size_t i : written) {
      visit_tensors(argument(i), [&](const at::Tensor& tensor) {
        if (is_ghost(tensor)) return;
        ShapesOnly* const shapes = ShapesOnly::current();
        EPL_CHECK(shapes != nullptr,
                  concat(name(), " would write a tensor that has memory from one that has none"),
                  "a run on shapes alone", "");
        shapes->become_ghost(tensor);
      });
    }
  }

  // What is written is given back; what is made besides is a ghost.
  Stack written_results(const std::optional<Stack>& made, StandIns& stand_ins) const {
    Stack results;
    const auto& returns = op_.schema().returns();
    for (size_t i = 0; i < returns.size(); ++i) {
      const auto given_back = argument_of(returns[i]);
      results.push_back(given_back ? argument(*given_back)
                                   : ghosts_of({made->at(i)}, stand_ins).at(0));
    }
    return results;
  }

  // The argument that a result is, where it is one.
  std::optional<size_t> argument_of(const c10::Argument& result) const {
    for (size_t i : written_by_schema()) {
      const auto* const alias = result.alias_info();
      if (alias != nullptr && *alias == *arguments_[i].alias_info()) return i;
    }
    return std::nullopt;
  }

  bool only_gives_back() const {
    const auto& returns = op_.schema().returns();
    return std::all_of(returns.begin(), returns.end(), [&](const c10::Argument& result) {
      return argument_of(result).has_value();
    });
  }

  Stack ghosts_of(const Stack& made, StandIns& stand_ins) const {
    const c10::impl::ExcludeDispatchKeyGuard unseen(kShapesKey);
    Stack results;
    for (const c10::IValue& value : made) {
      results.push_back(
          with_tensors(value, [&](const at::Tensor& meta) { return stand_ins.ghost_of(meta); }));
    }
    return results;
  }

  void give(Stack results) {
    stack_.resize(base_);
    for (c10::IValue& result : results) stack_.push_back(std::move(result));
  }

  // out= that the Meta device does not know is sized as what makes a new tensor.
  std::optional<Stack> shapes_or_variant(StandIns& stand_ins) {
    std::optional<Stack> made = shapes(stand_ins, op_);
    if (made || !takes_results_) return made;
    const auto functional = functional_variant(op_);
    if (!functional) return std::nullopt;
    made = shapes(stand_ins, *functional);
    if (made) size_by(*made);
    is_sized_ = made.has_value();
    return made;
  }

  void size_by(const Stack& made) const {
    become_ghosts(written_by_schema());
    size_t next = 0;
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (!arguments_[i].is_out() || next >= made.size()) continue;
      size_as(made[next++].toTensor(), argument(i).toTensor());
    }
  }

  // What `op` makes of stand-ins; none where nobody can tell. Any other error is the program's,
  // such as sizes that do not fit.
  std::optional<Stack> shapes(StandIns& stand_ins, const c10::OperatorHandle& op) const {
    const c10::impl::ExcludeDispatchKeyGuard unseen(kShapesKey);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    Stack meta = make_stand_ins(stand_ins, op);
    const ShapeFunction row = find_shape_row(op);
    if (row == runs_in_parts) return std::nullopt;
    if (row != nullptr) return row(meta);
    try {
      op.callBoxed(&meta);
    } catch (const c10::NotImplementedError&) {
      return std::nullopt;
    }
    return meta;
  }

  Stack make_stand_ins(StandIns& stand_ins, const c10::OperatorHandle& op) const {
    Stack meta;
    const auto& wanted = op.schema().arguments();
    for (size_t i = 0; i < wanted.size(); ++i) {
      const c10::IValue& value = argument(i);
      const bool device = wanted[i].name() == "device" && (!has_tensors_ || !value.isNone());
      meta.push_back(device ? c10::IValue(c10::Device(c10::kMeta))
                            : with_tensors(value, [&](const at::Tensor& tensor) {
                                return stand_ins.of(tensor);
                              }));
    }
    return meta;
  }

  std::string near() const {
    const std::string text = place_ == nullptr ? "" : place_->near();
    return text.empty() ? "" : concat(", ", text);
  }

  const c10::OperatorHandle& op_;
  const c10::DispatchKeySet keys_;
  Stack& stack_;
  const CallPlace* const place_;
  const std::vector<c10::Argument>& arguments_;
  const size_t base_;
  bool has_tensors_ = false;
  bool has_ghosts_ = false;
  bool has_sparse_ = false;     // or makes one
  bool writes_ = false;         // some argument
  bool shows_ = false;          // gives a view of one
  bool takes_results_ = false;  // has out=
  bool is_sized_ = false;       // what takes them
};

}  // namespace

bool reads_ghosts(const c10::OperatorHandle& op, const Stack& stack) {
  bool any = false;
  for (size_t i = stack.size() - op.schema().arguments().size(); i < stack.size(); ++i) {
    visit_tensors(stack[i], [&](const at::Tensor& tensor) { any |= is_ghost(tensor); });
  }
  return any;
}

bool is_running_on_shapes() { return depth_of_shapes > 0; }

void run_on_shapes(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack,
                   const CallPlace* place) {
  ShapeCall(op, keys, stack, place).run();
}

}  // namespace epl

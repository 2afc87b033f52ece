#include "capture/ghost_answers.h"

#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "capture/stand_ins.h"
#include "layout/tensor_type.h"
#include "ops/facts.h"

namespace epl {
namespace {

using torch::jit::Stack;

bool is_mask(const at::Tensor& index) {
  return index.scalar_type() == c10::kBool || index.scalar_type() == c10::kByte;
}

bool has_sparse(const Stack& stack, size_t first) {
  bool any = false;
  for (size_t i = first; i < stack.size(); ++i) {
    visit_tensors(stack[i], [&](const at::Tensor& t) { any |= t.layout() != c10::kStrided; });
  }
  return any;
}

}  // namespace

std::optional<Stack> GhostAnswers::find() {
  const std::string& name = op_.operator_name().name;
  if (name == "aten::_local_scalar_dense") return Stack{number()};
  if (name == "aten::equal") return Stack{equal()};
  if (name == "aten::nonzero") return Stack{nonzero()};
  if (name == "aten::masked_select") return Stack{selection()};
  if (only_checks(op_)) return Stack();
  if (name == "aten::index") expand_masks();
  static const std::set<std::string> others = {"aten::_coalesce", "aten::_ctc_loss",
                                               "aten::to_sparse"};
  const bool decide = contents_decide_shape(op_) && !has_sparse(stack_, first_);
  if (decide || others.count(name) != 0) {
    throw_without_contents(c10::toString(op_.operator_name()), place_);
  }
  return std::nullopt;
}

// What every element of a ghost is taken for.
bool GhostAnswers::is_one() const {
  if (place_ != nullptr && place_->reads_for_checks()) return false;
  const ReadBack read_back = current_shape_options().read_back;
  if (read_back == ReadBack::kError) {
    throw_without_contents(c10::toString(op_.operator_name()), place_);
  }
  return read_back == ReadBack::kOne;
}

void GhostAnswers::assume(const std::string& what) const {
  if (place_ != nullptr && place_->reads_for_checks()) return;
  if (ShapesOnly* const shapes = ShapesOnly::current()) shapes->assume(what);
}

c10::IValue GhostAnswers::number() const {
  const int64_t number = is_one() ? 1 : 0;
  assume(concat("item() of ", types_of_arguments(op_, stack_), " gives ", number));
  const c10::ScalarType dtype = argument(0).toTensor().scalar_type();
  if (dtype == c10::kBool) return at::Scalar(number == 1);
  if (c10::isFloatingType(dtype)) return at::Scalar(static_cast<double>(number));
  if (!c10::isComplexType(dtype)) return at::Scalar(number);
  return at::Scalar(c10::complex<double>(static_cast<double>(number)));
}

// Attention asks whether query, key and value are one tensor. Two that lie apart are taken for
// different ones.
bool GhostAnswers::equal() const {
  const at::Tensor& a = argument(0).toTensor();
  const at::Tensor& b = argument(1).toTensor();
  const bool same = a.is_alias_of(b) && type_of(a).same_place(type_of(b));
  if (!same && a.sizes() == b.sizes()) {
    assume(concat("equal() of ", types_of_arguments(op_, stack_), " gives false"));
  }
  return same;
}

at::Tensor GhostAnswers::nonzero() const {
  const at::Tensor& tensor = argument(0).toTensor();
  const int64_t count = is_one() ? tensor.numel() : 0;
  assume(concat("nonzero() of ", types_of_arguments(op_, stack_), " finds ", count));
  // As LibTorch lays it out: the numbers of one dimension side by side.
  return make_ghost({count, tensor.dim()}, {1, std::max<int64_t>(count, 1)}, c10::kLong);
}

at::Tensor GhostAnswers::selection() const {
  const at::Tensor& tensor = argument(0).toTensor();
  const at::Tensor& mask = argument(1).toTensor();
  const auto sizes = at::infer_size(tensor.sizes(), mask.sizes());
  if (!is_ghost(mask)) {
    const c10::impl::ExcludeDispatchKeyGuard real(c10::DispatchKey::Fake);
    const auto count = mask.expand(sizes).sum().item<int64_t>();
    return make_ghost({count}, {1}, tensor.scalar_type());
  }
  int64_t count = is_one() ? 1 : 0;
  for (int64_t size : sizes) count *= size;
  assume(concat("masked_select() of ", types_of_arguments(op_, stack_), " takes ", count));
  return make_ghost({count}, {1}, tensor.scalar_type());
}

void GhostAnswers::expand_masks() {
  c10::List<c10::optional<at::Tensor>> indices;
  for (const c10::IValue& item : argument(1).toListRef()) {
    const at::Tensor index = item.isNone() ? at::Tensor() : item.toTensor();
    if (!index.defined() || !is_mask(index)) {
      indices.push_back(index.defined() ? c10::make_optional(index) : c10::nullopt);
    } else if (!is_ghost(index)) {
      const c10::impl::ExcludeDispatchKeyGuard real(c10::DispatchKey::Fake);
      for (const at::Tensor& places : index.nonzero().unbind(1)) indices.push_back(places);
    } else {
      const int64_t count = is_one() ? index.numel() : 0;
      assume(concat("a mask ", print_type(type_of(index)), " picks ", count));
      for (int64_t dim = 0; dim < index.dim(); ++dim) {
        indices.push_back(make_ghost({count}, {1}, c10::kLong));
      }
    }
  }
  stack_[first_ + 1] = indices;
}

std::string types_of_arguments(const c10::OperatorHandle& op, const Stack& stack) {
  std::vector<std::string> texts;
  for (size_t i = stack.size() - op.schema().arguments().size(); i < stack.size(); ++i) {
    visit_tensors(stack[i],
                  [&](const at::Tensor& tensor) { texts.push_back(print_type(type_of(tensor))); });
  }
  return join(texts, ", ");
}

ShapeOptions current_shape_options() {
  const ShapesOnly* const shapes = ShapesOnly::current();
  return shapes == nullptr ? ShapeOptions() : shapes->options();
}

void throw_without_contents(const std::string& what, const CallPlace* place) {
  const std::string near = place == nullptr ? "" : place->near();
  throw Error(concat(what, " reads contents of a tensor that has a shape alone",
                     near.empty() ? "" : ", ", near),
              "a run on shapes alone (plan.only)",
              "plan.read_back = \"zero\" or \"one\", which every number that the program reads "
              "back is then taken for, or a step that does not read it");
}

}  // namespace epl

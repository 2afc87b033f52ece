// Meta tensors that stand for the arguments of an operator, and the ghosts that its results become.
// A result that shares the storage of a stand-in shares that of its original.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <map>

namespace epl {

// Applies `change` to each tensor of a value: alone, in a list or in a list of optional ones.
template <typename Change>
c10::IValue with_tensors(const c10::IValue& value, const Change& change) {
  if (value.isTensor()) {
    return value.toTensor().defined() ? c10::IValue(change(value.toTensor())) : value;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(tensor.defined() ? change(tensor) : tensor);
    }
    return list;
  }
  if (!value.isOptionalTensorList()) return value;
  c10::List<c10::optional<at::Tensor>> list;
  for (const c10::IValue& item : value.toListRef()) {
    list.push_back(item.isNone() ? c10::optional<at::Tensor>()
                                 : c10::optional<at::Tensor>(change(item.toTensor())));
  }
  return list;
}

template <typename Visit>
void visit_tensors(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const c10::IValue& item : value.toListRef()) {
      if (item.isTensor() && item.toTensor().defined()) visit(item.toTensor());
    }
  }
}

class StandIns {
 public:
  at::Tensor of(const at::Tensor& tensor);
  at::Tensor ghost_of(const at::Tensor& meta);

  // An argument that takes the results has the sizes that its stand-in took.
  void resize_originals() const;

 private:
  struct Pair {
    at::Tensor twin;
    at::Tensor original;
  };
  std::map<const c10::StorageImpl*, Pair> pairs_;
};

// Gives a ghost the sizes of `meta`, and its strides where it has to be made larger or smaller.
void size_as(const at::Tensor& meta, const at::Tensor& out);

}  // namespace epl

#include "checkpoint/tensor_bytes.h"

#include "base/check.h"

namespace epl {
namespace {

struct TypeRow {
  c10::ScalarType of_torch;
  StoredType stored;
};

constexpr TypeRow kTypeRows[] = {
    {c10::ScalarType::Bool, StoredType::kBool}, {c10::ScalarType::Byte, StoredType::kU8},
    {c10::ScalarType::Char, StoredType::kI8},   {c10::ScalarType::Short, StoredType::kI16},
    {c10::ScalarType::Int, StoredType::kI32},   {c10::ScalarType::Long, StoredType::kI64},
    {c10::ScalarType::Half, StoredType::kF16},  {c10::ScalarType::BFloat16, StoredType::kBF16},
    {c10::ScalarType::Float, StoredType::kF32}, {c10::ScalarType::Double, StoredType::kF64},
};

void check_memory(const std::string& name, const at::Tensor& tensor) {
  EPL_CHECK(tensor.defined() && tensor.device().is_cpu() && tensor.layout() == at::kStrided &&
                tensor.is_contiguous() && !tensor.is_neg() && !tensor.is_conj(),
            concat("cannot write or read `", name,
                   "`: its elements do not lie one after the other in the memory of the processor"),
            "a checkpoint", "tensor.contiguous()");
}

}  // namespace

StoredType stored_type_of(c10::ScalarType type, const std::string& name) {
  for (const TypeRow& row : kTypeRows) {
    if (row.of_torch == type) return row.stored;
  }
  throw Error(concat("cannot write or read `", name, "`: safetensors has no elements of ",
                     c10::toString(type)),
              "a checkpoint", "a tensor of real numbers, at::view_as_real of it");
}

HeldPart held(const std::string& name, const at::Tensor& tensor) {
  const StoredType type = stored_type_of(tensor.scalar_type(), name);
  check_memory(name, tensor);
  const Shape shape = tensor.sizes().vec();
  return {name, type, shape, whole(shape), tensor.data_ptr()};
}

WantedPart wanted(const std::string& name, const at::Tensor& tensor) {
  const HeldPart all = held(name, tensor);
  return {all.name, all.type, all.shape, all.part, tensor.data_ptr()};
}

}  // namespace epl

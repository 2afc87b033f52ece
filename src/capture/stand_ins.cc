#include "capture/stand_ins.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "capture/ghost.h"

namespace epl {

at::Tensor StandIns::of(const at::Tensor& tensor) {
  at::Tensor twin(
      at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type()));
  if (tensor.storage_offset() != 0) {  // some results begin where their argument does
    const auto items = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
    twin = at::Tensor(at::detail::empty_strided_meta({items}, {1}, tensor.scalar_type()))
               .as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  }
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    twin.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  pairs_.emplace(twin.storage().unsafeGetStorageImpl(), Pair{twin, tensor});
  return twin;
}

at::Tensor StandIns::ghost_of(const at::Tensor& meta) {
  const auto [known, is_new] =
      pairs_.try_emplace(meta.storage().unsafeGetStorageImpl(), Pair{meta, at::Tensor()});
  auto& [twin, original] = known->second;
  if (!is_new) {
    return original.as_strided(meta.sizes(), meta.strides(), meta.storage_offset());
  }
  const bool at_begin = meta.storage_offset() == 0;
  original = at_begin ? make_ghost(meta.sizes(), meta.strides(), meta.scalar_type())
                      : make_ghost_like(meta);
  return original;
}

void StandIns::resize_originals() const {
  for (const auto& [storage, pair] : pairs_) size_as(pair.twin, pair.original);
}

void size_as(const at::Tensor& meta, const at::Tensor& out) {
  if (meta.sizes() == out.sizes()) return;
  const c10::impl::ExcludeDispatchKeyGuard unseen(c10::DispatchKey::Fake);
  out.resize_(meta.sizes());
  if (meta.strides() != out.strides()) out.as_strided_(meta.sizes(), meta.strides());
}

}  // namespace epl

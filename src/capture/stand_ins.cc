#include "capture/stand_ins.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "capture/ghost.h"

namespace epl {

at::Tensor StandIns::of(const at::Tensor& tensor) {
  at::Tensor twin(
      at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type()));
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    twin.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  pairs_.emplace(twin.storage().unsafeGetStorageImpl(), Pair{twin, tensor});
  return twin;
}

at::Tensor StandIns::ghost_of(const at::Tensor& meta) {
  const auto [known, is_new] =
      pairs_.try_emplace(meta.storage().unsafeGetStorageImpl(), Pair{meta, at::Tensor()});
  at::Tensor& original = known->second.original;
  if (is_new && meta.storage_offset() == 0) {
    return original = make_ghost(meta.sizes(), meta.strides(), meta.scalar_type());
  }
  if (is_new) original = make_ghost_storage(meta);
  return original.as_strided(meta.sizes(), meta.strides(),
                             original.storage_offset() + meta.storage_offset());
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

#include "capture/ghost.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/SparseTensorImpl.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstring>

#include "base/text.h"
#include "config/libtorch.h"

namespace epl {
namespace {

// Gives no memory and counts what it was asked for.
class NoBytes final : public c10::Allocator {
 public:
  static NoBytes& get() {
    static auto* const allocator = new NoBytes();  // tensors may outlive static objects
    return *allocator;
  }

#if EPL_TORCH_AT_LEAST(2, 2)
  void copy_data(void*, const void*, size_t) const override {}
  c10::DataPtr allocate(size_t bytes) override {
#else
  c10::DataPtr allocate(size_t bytes) const override {
#endif
    in_use += static_cast<int64_t>(bytes);
    return {nullptr, new size_t(bytes), &give_back, c10::Device(c10::kCPU)};
  }

  static inline std::atomic<int64_t> in_use{0};

 private:
  static void give_back(void* context) {
    auto* const bytes = static_cast<size_t*>(context);
    in_use -= static_cast<int64_t>(*bytes);
    delete bytes;
  }
};

thread_local ShapesOnly* current_shapes = nullptr;

c10::StorageImpl* storage_impl(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

// The same memory, or, where its tensor was resized meanwhile, more with the same contents.
c10::DataPtr as_large_as(size_t bytes, c10::DataPtr data, size_t had) {
  if (bytes <= had) return data;
  c10::DataPtr larger = c10::GetCPUAllocator()->allocate(bytes);
  std::memset(larger.get(), 0, bytes);
  if (had > 0) std::memcpy(larger.get(), data.get(), had);
  return larger;
}

}  // namespace

bool is_ghost(const at::Tensor& tensor) {
  if (!tensor.defined()) return false;
  if (tensor.layout() == c10::kSparse) {
    const auto* const sparse = static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
    return is_ghost(sparse->values());  // asks no operator
  }
  return tensor.has_storage() && storage_impl(tensor)->allocator() == &NoBytes::get();
}

at::Tensor make_ghost(at::IntArrayRef sizes, at::IntArrayRef strides, c10::ScalarType dtype) {
  const c10::DispatchKeySet keys({c10::DispatchKey::CPU, c10::DispatchKey::Fake});
  return at::Tensor(
      at::detail::empty_strided_generic(sizes, strides, &NoBytes::get(), keys, dtype));
}

at::Tensor make_ghost_storage(const at::Tensor& tensor) {
  const auto items = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
  return make_ghost({items}, {1}, tensor.scalar_type());
}

at::Tensor make_ghost_like(const at::Tensor& tensor) {
  return make_ghost_storage(tensor).as_strided(tensor.sizes(), tensor.strides(),
                                               tensor.storage_offset());
}

int64_t bytes_of_ghosts() { return NoBytes::in_use; }

ShapesOnly::ShapesOnly(const ShapeOptions& options)
    : options_(options), outer_(current_shapes), include_(c10::DispatchKey::Fake) {
  current_shapes = this;
}

ShapesOnly::~ShapesOnly() {
  current_shapes = outer_;
  for (auto taken = taken_.rbegin(); taken != taken_.rend(); ++taken) {
    c10::StorageImpl* const storage = taken->storage.unsafeGetStorageImpl();
    storage->set_data_ptr(as_large_as(storage->nbytes(), std::move(taken->data), taken->bytes));
    storage->set_allocator(taken->allocator);
  }
}

ShapesOnly* ShapesOnly::current() { return current_shapes; }

std::vector<std::string> ShapesOnly::assumptions() const {
  std::vector<std::string> lines;
  for (const auto& [what, times] : assumed_) {
    lines.push_back(times == 1 ? what : concat(what, " (", times, " times)"));
  }
  return lines;
}

void ShapesOnly::become_ghost(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || is_ghost(tensor)) return;
  c10::StorageImpl* const storage = storage_impl(tensor);
  c10::Allocator* const allocator = storage->allocator();
  c10::DataPtr data = storage->set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
  storage->set_allocator(&NoBytes::get());
  // What is empty has no memory to be given back: an operator made it for a result.
  if (storage->nbytes() == 0) return;
  taken_.push_back({tensor.storage(), std::move(data), storage->nbytes(), allocator});
}

}  // namespace epl

#include "runtime/executor.h"

#include <ATen/DimVector.h>
#include <ATen/Functions.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <c10/core/GradMode.h>
#include <c10/core/TensorOptions.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "layout/constant_text.h"
#include "runtime/device_memory.h"

namespace epl {
namespace {

at::Tensor tensor_at(const c10::Storage& storage, const TensorType& type) {
  c10::Storage shared = storage;
  const auto key = c10::computeDispatchKey(type.dtype, type.layout, storage.device());
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(shared), c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(type.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(type.sizes, type.strides, type.offset);
  return tensor;
}

void* address_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided ? tensor.data_ptr() : nullptr;
}

// Where the user's whole tensor began in its storage when the step was recorded.
int64_t recorded_offset(const PlanRole& role, int index) {
  const TensorType type = role.type(role.program.leaves[static_cast<size_t>(index)].slot);
  const Shard shard = role.shard(index);
  if (!shard.is_cut()) return type.offset;
  return type.offset - shard.piece.begin * type.strides[static_cast<size_t>(shard.dim)];
}

c10::TypePtr element_type(const c10::TypePtr& type) {
  c10::TypePtr inner = type;
  if (auto optional = inner->cast<c10::OptionalType>()) inner = optional->getElementType();
  return inner->expectRef<c10::ListType>().getElementType();
}

}  // namespace

// A call with its arguments in place. Slots that operators make anew in each run are filled in
// late.
struct Executor::BoundCall {
  struct Late {
    size_t argument;
    const Operand* operand;
    c10::TypePtr type;
  };
  struct Expected {
    size_t result;  // position among all result tensors
    at::Tensor place;
    void* address;
    int64_t bytes;
  };
  struct Made {
    size_t result;
    SlotId slot;
  };

  const Call* call;
  int position;  // in its segment
  std::vector<c10::IValue> arguments;
  std::vector<Late> late;
  std::vector<Expected> expected;
  std::vector<Made> made;
};

// Where a leaf lay and how it was seen: data that the user put in place of it may begin at the same
// address.
struct Executor::BoundLeaf {
  explicit BoundLeaf(const at::Tensor& tensor) : address(address_of(tensor)) {
    if (address == nullptr) return;
    sizes = tensor.sizes();
    strides = tensor.strides();
  }
  bool is_still(const at::Tensor& tensor) const {
    if (address_of(tensor) != address) return false;
    return address == nullptr || (tensor.sizes() == sizes && tensor.strides() == strides);
  }

  void* address;
  at::DimVector sizes, strides;
};

void Arena::ensure(int64_t bytes) {
  if (bytes <= bytes_) return;
  release();  // before the new one is there, so that both never count at once
  memory_ = c10::GetAllocator(device_.type())->allocate(static_cast<size_t>(bytes));
  bytes_ = bytes;
}

void Arena::release() {
  memory_.clear();
  bytes_ = 0;
}

Executor::Executor(PlanRole role, const Arena& arena, std::vector<at::Tensor> leaf_tensors,
                   at::Generator generator, StreamOf stream_of)
    : role_(role),
      program_(role_.program),
      leaf_tensors_(std::move(leaf_tensors)),
      generator_(std::move(generator)),
      stream_of_(std::move(stream_of)),
      arena_(arena) {
  bind();
}

Executor::~Executor() = default;

void Executor::bind() {
  segments_.clear();
  tensors_.assign(program_.slots.size(), at::Tensor());
  bind_arena();
  bind_leaves();
  for (const auto& segment : program_.segments) {
    auto& calls = segments_.emplace_back();
    for (size_t i = 0; i < segment.calls.size(); ++i) {
      if (segment.calls[i].mode == Call::Mode::kNothing) continue;
      calls.push_back(bind_call(segment.calls[i]));
      calls.back().position = static_cast<int>(i);
    }
  }
}

void Executor::bind_arena() {
  EPL_ASSERT(program_.arena_bytes <= arena_.bytes(), "the arena is large enough for the plan");
  bound_arena_ = arena_.base();
  std::vector<c10::Storage> storages;
  for (const auto& buffer : program_.buffers) {
    void* address = arena_.base() + buffer.offset;
    storages.emplace_back(c10::Storage::use_byte_size_t(), static_cast<size_t>(buffer.bytes),
                          c10::DataPtr(buffer.bytes == 0 ? nullptr : address, arena_.device()),
                          /*allocator=*/nullptr, /*resizable=*/false);
  }
  for (size_t i = 0; i < program_.slots.size(); ++i) {
    const Slot& slot = program_.slots[i];
    if (slot.where != Slot::Where::kArena) continue;
    tensors_[i] =
        tensor_at(storages[static_cast<size_t>(slot.index)], role_.type(static_cast<SlotId>(i)));
  }
}

void Executor::bind_leaves() {
  bound_leaves_.clear();
  for (const auto& tensor : leaf_tensors_) bound_leaves_.emplace_back(tensor);
  for (size_t i = 0; i < program_.slots.size(); ++i) {
    const Slot& slot = program_.slots[i];
    if (slot.where != Slot::Where::kLeaf) continue;
    const at::Tensor& leaf = leaf_tensors_[static_cast<size_t>(slot.index)];
    if (leaf.layout() != c10::kStrided || leaf.unsafeGetTensorImpl()->is_wrapped_number()) {
      tensors_[i] = leaf;
      continue;
    }
    // Recorded places are relative to where the leaf lay then; it may lie elsewhere in a new
    // storage.
    TensorType type = role_.type(static_cast<SlotId>(i));
    type.offset += leaf.storage_offset() - recorded_offset(role_, slot.index);
    tensors_[i] = tensor_at(leaf.storage(), type);
  }
}

bool Executor::rebind_if_moved() {
  bool moved = arena_.base() != bound_arena_;
  for (size_t i = 0; i < leaf_tensors_.size() && !moved; ++i) {
    moved = !bound_leaves_[i].is_still(leaf_tensors_[i]);
  }
  if (moved) bind();
  return moved;
}

// Lists are copied: devices that counted references to one object would wait for each other's
// cache.
c10::IValue Executor::bind_constant(const c10::IValue& constant, const c10::TypePtr& type) const {
  const bool for_generator =
      constant.isNone() && type->isSubtypeOf(*c10::OptionalType::create(c10::GeneratorType::get()));
  if (for_generator) return generator_;
  if (constant.isGenerator() && stream_of_) return stream_of_(constant.toGenerator());
  return constant.isList() ? constant.deepcopy() : constant;
}

c10::IValue Executor::bind_operand(const Operand& operand, const c10::TypePtr& type) const {
  const auto at_slot = [&](SlotId slot) { return slot == kNoSlot ? at::Tensor() : tensor(slot); };
  switch (operand.kind) {
    case Operand::Kind::kConstant:
      return bind_constant(role_.constant(operand), type);
    case Operand::Kind::kSlot:
      return at_slot(operand.slots[0]);
    case Operand::Kind::kList:
      break;
  }
  if (element_type(type)->kind() == c10::TypeKind::OptionalType) {
    c10::List<c10::optional<at::Tensor>> list;
    for (SlotId slot : operand.slots) {
      list.push_back(slot == kNoSlot ? c10::nullopt : c10::make_optional(at_slot(slot)));
    }
    return list;
  }
  c10::List<at::Tensor> list;
  for (SlotId slot : operand.slots) list.push_back(at_slot(slot));
  return list;
}

Executor::BoundCall Executor::bind_call(const Call& call) {
  BoundCall bound;
  bound.call = &call;
  const auto& schema = call.op.schema();
  const auto made_late = [&](SlotId slot) {
    return slot != kNoSlot &&
           program_.slots[static_cast<size_t>(slot)].where == Slot::Where::kMadeByOperator;
  };
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const Operand& operand = call.operands[i];
    const auto& type = schema.arguments()[i].type();
    if (std::any_of(operand.slots.begin(), operand.slots.end(), made_late)) {
      bound.late.push_back({i, &operand, type});
      bound.arguments.emplace_back();
    } else {
      bound.arguments.push_back(bind_operand(operand, type));
    }
  }
  for (size_t i = 0; i < call.results.size(); ++i) {
    const SlotId slot = call.results[i];
    if (call.mode == Call::Mode::kOut) {
      bound.arguments.emplace_back(tensor(slot));
    } else if (slot == kNoSlot || call.mode == Call::Mode::kInPlace) {
      continue;
    } else if (made_late(slot)) {
      bound.made.push_back({i, slot});
    } else {
      const at::Tensor& place = tensor(slot);
      bound.expected.push_back({i, place, place.data_ptr(), static_cast<int64_t>(place.nbytes())});
    }
  }
  return bound;
}

void Executor::load(const std::vector<at::Tensor>& batch, const std::vector<SlotId>& slots,
                    GivenRows rows) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (size_t i = 0; i < program_.leaves.size(); ++i) {
    const PlanLeaf& leaf = program_.leaves[i];
    const SlotId slot = slots.empty() ? leaf.slot : slots[i];
    if (leaf.kind != PlanLeaf::Kind::kInput || slot == kNoSlot) continue;
    const at::Tensor& given = batch.at(static_cast<size_t>(leaf.index));
    const at::Tensor& place = tensors_[static_cast<size_t>(slot)];
    const Shard shard = role_.shard(static_cast<int>(i));
    if (!shard.is_cut()) {
      place.copy_(given);
      continue;
    }
    const int64_t before = shard.piece.begin - rows.begin * shard.whole / rows.of;
    place.copy_(given.narrow(0, before, shard.piece.length));
  }
}

void Executor::set_seed(double seed) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const auto& leaf : program_.leaves) {
    const bool seeds = leaf.kind == PlanLeaf::Kind::kSeed && leaf.slot != kNoSlot;
    if (seeds) tensors_[static_cast<size_t>(leaf.slot)].fill_(seed);
  }
}

void Executor::run(int segment, int first, int end) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  // Some kernels ask for the mode (mkldnn_rnn_layer makes what its backward reads).
  const c10::AutoGradMode as_recorded(true);
  auto& calls = segments_[static_cast<size_t>(segment)];
  auto bound = std::lower_bound(calls.begin(), calls.end(), first,
                                [](const BoundCall& call, int at) { return call.position < at; });
  for (; bound != calls.end() && bound->position < end; ++bound) run_call(*bound);
}

void Executor::run_call(BoundCall& bound) {
  const Call& call = *bound.call;
  // Copies: LibTorch's boxed out= kernels with several outputs return references to arguments that
  // they have dropped from the stack. What those refer to lives on in bound.arguments and, for
  // those that are filled in late, in tensors_.
  stack_.assign(bound.arguments.begin(), bound.arguments.end());
  for (const auto& late : bound.late) {
    stack_[late.argument] = bind_operand(*late.operand, late.type);
  }
  if (bound.expected.empty()) {
    call.op.callBoxed(&stack_);
  } else {
    DeviceMemory::Expect expect;
    for (const auto& expected : bound.expected) expect.add(expected.address, expected.bytes);
    call.op.callBoxed(&stack_);
  }
  if (call.expects) check_expectation(call);
  take_results(bound);
  stack_.clear();
  for (SlotId slot : call.frees) tensors_[static_cast<size_t>(slot)].reset();
}

void Executor::check_expectation(const Call& call) const {
  const c10::IValue& now = stack_.back();
  const c10::IValue& recorded = *call.expects;
  const bool both_nan = now.isDouble() && recorded.isDouble() && std::isnan(now.toDouble()) &&
                        std::isnan(recorded.toDouble());
  const bool near = now.isDouble() && recorded.isDouble() &&
                    std::abs(now.toDouble() - recorded.toDouble()) <=
                        program_.guard_tolerance * std::abs(recorded.toDouble());
  if (now == recorded || both_nan || near) return;
  throw GuardFailed(concat(call.op.operator_name(), " gave ", print_constant(now), ", but ",
                           print_constant(recorded), " when the step was recorded"));
}

// Sees to it that results lie in their slots. Most do already: see DeviceMemory::Expect.
void Executor::take_results(BoundCall& bound) {
  if (bound.expected.empty() && bound.made.empty()) return;
  c10::SmallVector<at::Tensor, 4> results;
  for (const auto& value : stack_) {
    if (value.isTensor()) {
      results.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (const auto& item : value.toListRef()) results.push_back(item.toTensor());
    }
  }
  for (const auto& made : bound.made) {
    tensors_[static_cast<size_t>(made.slot)] = results[made.result];
  }
  // Two results of one size may have swapped places: take all that are elsewhere before writing
  // any.
  c10::SmallVector<std::pair<const BoundCall::Expected*, at::Tensor>, 2> elsewhere;
  for (const auto& expected : bound.expected) {
    const at::Tensor& result = results[expected.result];
    if (result.data_ptr() == expected.address && result.strides() == expected.place.strides()) {
      continue;
    }
    if (result.sizes() != expected.place.sizes()) {
      throw GuardFailed(concat(bound.call->op.operator_name(), " gave a tensor of shape ",
                               result.sizes(), ", but ", expected.place.sizes(),
                               " when the step was recorded"));
    }
    elsewhere.emplace_back(&expected, result);
  }
  if (elsewhere.size() > 1) {
    for (auto& entry : elsewhere) entry.second = entry.second.clone();
  }
  for (const auto& [expected, result] : elsewhere) {
    if (expected->bytes == 0) continue;
    // The same bytes seen with other strides must not be read while they are written.
    const bool overlaps = result.data_ptr() == expected->address;
    expected->place.copy_(overlaps ? result.clone() : result);
  }
}

}  // namespace epl

// Recorder: memory that the step made and C++ filled, unseen.
#include <ATen/Functions.h>

#include <set>

#include "base/check.h"
#include "capture/contents_hash.h"
#include "capture/recorder.h"
#include "ops/facts.h"

namespace epl {
namespace {

// What users fill through accessor() or data_ptr(), by whether its contents are the same in every
// step.
const std::set<std::string> kFixed = {"aten::zeros",      "aten::ones",      "aten::full",
                                      "aten::zeros_like", "aten::ones_like", "aten::full_like",
                                      "aten::new_zeros",  "aten::new_ones",  "aten::new_full",
                                      "aten::eye",        "aten::arange",    "aten::linspace"};
const std::set<std::string> kVarying = {"aten::clone",   "aten::_to_copy",  "aten::rand",
                                        "aten::randn",   "aten::rand_like", "aten::randn_like",
                                        "aten::randint", "aten::randperm"};

}  // namespace

void Recorder::note_made(const Node& node, int index) {
  const std::string& name = node.op.operator_name().name;
  const bool fixed = kFixed.count(name) != 0;
  if (!fixed && kVarying.count(name) == 0) return;
  const ValueId id = node.results.at(0).values.at(0);
  if (id == kNoValue || graph_.value(id).storage != id) return;
  const auto known = storage_of_root(id);
  if (!known) return;
  made_.insert_or_assign(id, Made{index, *known, hash_of_contents(tensor_in(*known, id)), fixed});
}

// Before an operator reads or writes it.
void Recorder::check_made(ValueId root) {
  const auto found = made_.find(root);
  if (found == made_.end()) return;
  const Made made = found->second;
  made_.erase(found);
  const at::Tensor tensor = tensor_in(made.storage, root);
  if (!tensor.defined() || hash_of_contents(tensor) == made.hash) return;
  if (made.fixed) {
    uninitialized_[root] = Uninitialized{made.node, tensor};
    filled_by_cpp(root);
    return;
  }
  cannot_be_replayed(concat("C++ writes into ", print_type(graph_.value(root).type), " that ",
                            op_name(graph_.nodes[static_cast<size_t>(made.node)]),
                            " made, by data_ptr() or accessor(): a replay would not"));
}

std::optional<WeakStorage> Recorder::storage_of_root(ValueId root) const {
  for (auto storage = storages_.rbegin(); storage != storages_.rend(); ++storage) {
    if (storage->expired()) continue;
    const auto found = roots_.find(storage->_unsafe_get_target());
    if (found != roots_.end() && found->second == root) return *storage;
  }
  return std::nullopt;
}

// The tensor that a root value was when it was made; undefined where its memory is gone.
at::Tensor Recorder::tensor_in(const WeakStorage& storage, ValueId root) const {
  auto locked = storage.lock();
  if (!locked) return {};
  const TensorType& type = graph_.value(root).type;
  const auto options = at::TensorOptions().dtype(type.dtype).device(locked->device());
  return at::empty({0}, options)
      .set_(c10::Storage(std::move(locked)), type.offset, type.sizes, type.strides);
}

// Keeps the node of an empty tensor if this node fills it, else turns the tensor into a constant.
void Recorder::settle_uninitialized(const Node& node) {
  if (uninitialized_.empty() && made_.empty()) return;
  const auto& schema = node.op.schema();
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    const bool writes = alias != nullptr && alias->isWrite();
    const bool all = writes && (schema.arguments()[i].is_out() || (i == 0 && overwrites(node.op)));
    const bool places = i == 0 && writes && places_filled(graph_, node) > 0;
    const bool views = alias != nullptr && !alias->isWrite();
    for (ValueId id : node.arguments[i].values) {
      if (id == kNoValue || views) continue;
      check_made(graph_.value(id).storage);
      if (resizes(node.op)) continue;
      // Where there are no elements C++ cannot have filled any.
      if (alias == nullptr && graph_.value(id).type.numel() == 0) continue;
      if (all || places) {
        filled_by_op(id, all ? graph_.value(id).type.numel() : places_filled(graph_, node));
      } else {
        filled_by_cpp(graph_.value(id).storage);
      }
    }
  }
}

// Part by part, maybe: what is left when it is read, C++ has filled.
void Recorder::filled_by_op(ValueId id, int64_t elements) {
  const auto found = uninitialized_.find(graph_.value(id).storage);
  if (found == uninitialized_.end()) return;
  found->second.filled +=
      elements * static_cast<int64_t>(c10::elementSize(graph_.value(id).type.dtype));
  const auto bytes = static_cast<int64_t>(found->second.tensor.storage().nbytes());
  if (found->second.filled >= bytes) uninitialized_.erase(found);
}

}  // namespace epl

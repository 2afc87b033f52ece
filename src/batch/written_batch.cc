#include "batch/written_batch.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "ops/facts.h"

namespace epl {
namespace {

// The bytes of its storage between the first and the last element of a tensor.
struct Bytes {
  int64_t begin = 0, end = 0;
};

Bytes bytes_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  int64_t last = tensor.storage_offset();
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  const auto size = static_cast<int64_t>(tensor.itemsize());
  return {tensor.storage_offset() * size, (last + 1) * size};
}

bool has_memory(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && tensor.layout() == c10::kStrided;
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  if (!has_memory(a) || !has_memory(b) || !a.storage().is_alias_of(b.storage())) return false;
  const Bytes of_a = bytes_of(a), of_b = bytes_of(b);
  return of_a.begin < of_b.end && of_b.begin < of_a.end;
}

uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<uint32_t>(tensor._version());
}

// The first operator that writes memory, by the value that the memory came with.
std::map<ValueId, std::string> writers_of_memory(const Graph& graph) {
  std::map<ValueId, std::string> writers;
  for (const Node& node : graph.nodes) {
    for (size_t argument : written_arguments(node)) {
      for (ValueId id : node.arguments[argument].values) {
        if (id != kNoValue) writers.emplace(graph.value(id).storage, op_name(node));
      }
    }
  }
  return writers;
}

}  // namespace

InputWriters writers_of_inputs(const Graph& graph) {
  const auto written = writers_of_memory(graph);
  InputWriters writers;
  for (const Leaf& leaf : graph.leaves) {
    const auto writer = written.find(leaf.value);
    const bool is_written = leaf.kind == Leaf::Kind::kInput && writer != written.end();
    if (is_written) writers.emplace(static_cast<size_t>(leaf.index), writer->second);
  }
  return writers;
}

void check_apart(const InputWriters& writers, const Batch& batch) {
  for (const auto& [index, writer] : writers) {
    if (index >= batch.size()) continue;
    for (size_t other = 0; other < batch.size(); ++other) {
      EPL_CHECK(other == index || !overlap(batch[index], batch[other]),
                concat("tensors ", std::min(index, other), " and ", std::max(index, other),
                       " of the batch share memory, and the step writes tensor ", index,
                       " in place (", writer,
                       "): in the plain program the other one changes as well, but EPL's steps "
                       "write copies"),
                "epl::Trainer::step",
                "a copy of one of them (batch[i].clone()), or the operator that does not write in "
                "place");
    }
  }
}

void check_apart(const Graph& graph, const InputWriters& writers, const Batch& batch) {
  const auto written = writers_of_memory(graph);
  for (const Leaf& leaf : graph.leaves) {
    if (!has_memory(leaf.tensor)) continue;
    const auto writer = written.find(graph.value(leaf.value).storage);
    for (size_t i = 0; i < batch.size(); ++i) {
      const auto of_input = writers.find(i);
      if (writer == written.end() && of_input == writers.end()) continue;
      EPL_CHECK(!overlap(leaf.tensor, batch[i]),
                concat("tensor ", i, " of the batch shares memory with ",
                       leaf.name.empty() ? "a tensor that the step closes over"
                                         : concat("`", leaf.name, "`"),
                       ", and the step writes it in place (",
                       writer != written.end() ? writer->second : of_input->second,
                       "): in the plain program both change, but EPL's steps read copies of the "
                       "batch"),
                "epl::Trainer::step",
                "a copy in the batch (clone()), or the tensor itself, closed over and not in the "
                "batch");
    }
  }
}

at::Tensor WrittenOutside::lock() const {
  const auto lives = storage.lock();
  if (!lives) return {};
  const at::Tensor tensor = at::empty({0}, at::TensorOptions().dtype(type.dtype));
  return tensor.set_(c10::Storage(lives), type.offset, type.sizes, type.strides);
}

bool WrittenOutside::is_same(const WrittenOutside& other) const {
  return storage._unsafe_get_target() == other.storage._unsafe_get_target() &&
         type.same_place(other.type);
}

std::vector<WrittenOutside> find_written_outside(const Capture& captured) {
  const Graph& graph = captured.graph;
  const auto written = writers_of_memory(graph);
  std::set<const c10::StorageImpl*> users;
  for (const ClosedOver& tensor : captured.closed_over) users.insert(tensor.storage);
  for (const HeldUnseen& memory : captured.held_unseen) {
    users.insert(memory.storage._unsafe_get_target());
  }
  std::vector<WrittenOutside> result;
  for (const Leaf& leaf : graph.leaves) {
    if (leaf.kind != Leaf::Kind::kConstant || !has_memory(leaf.tensor)) continue;
    const bool is_users = users.count(leaf.tensor.storage().unsafeGetStorageImpl()) != 0;
    if (!is_users || written.count(graph.value(leaf.value).storage) == 0) continue;
    if (!leaf.tensor.device().is_cpu()) continue;
    result.push_back({leaf.name.empty() ? "a tensor that the step closes over" : leaf.name,
                      leaf.tensor.storage().getWeakStorageImpl(), type_of(leaf.tensor)});
  }
  return result;
}

void AllWrittenOutside::add(const Capture& captured) {
  for (auto&& tensor : find_written_outside(captured)) {
    const bool known = std::any_of(all_.begin(), all_.end(),
                                   [&](const auto& other) { return other.is_same(tensor); });
    if (!known) all_.push_back(std::move(tensor));
  }
  const auto is_gone = [](const WrittenOutside& tensor) { return !tensor.lock().defined(); };
  all_.erase(std::remove_if(all_.begin(), all_.end(), is_gone), all_.end());
}

std::vector<std::pair<std::string, at::Tensor>> AllWrittenOutside::tensors() const {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const WrittenOutside& each : all_) {
    const at::Tensor tensor = each.lock();
    if (tensor.defined()) tensors.emplace_back(each.name, tensor);
  }
  return tensors;
}

std::string writes_in_shared_memory(const Graph& graph) {
  const auto written = writers_of_memory(graph);
  std::map<const c10::StorageImpl*, std::vector<const Leaf*>> sharing;
  for (const Leaf& leaf : graph.leaves) {
    if (has_memory(leaf.tensor)) {
      sharing[leaf.tensor.storage().unsafeGetStorageImpl()].push_back(&leaf);
    }
  }
  for (const auto& [storage, leaves] : sharing) {
    if (leaves.size() < 2) continue;
    for (const Leaf* leaf : leaves) {
      const auto writer = written.find(graph.value(leaf->value).storage);
      if (writer == written.end()) continue;
      const Leaf* other = leaves[leaves[0] == leaf ? 1 : 0];
      return concat("it writes `", leaf->name, "` in place (", writer->second, "), and `",
                    other->name, "` lies in the same piece of memory");
    }
  }
  return "";
}

void WrittenBatch::note(const InputWriters& writers, const Batch& batch) {
  for (const auto& [index, writer] : writers) {
    if (index >= batch.size() || !has_memory(batch[index])) continue;
    const at::Tensor& tensor = batch[index];
    const Bytes bytes = bytes_of(tensor);
    const uint32_t version = version_of(tensor);
    const auto found = memories_.find(tensor.storage().unsafeGetStorageImpl());
    const bool lives = found != memories_.end() && !found->second.storage.expired();
    if (found != memories_.end() && !lives) memories_.erase(found);
    Memory& memory = memories_
                         .try_emplace(tensor.storage().unsafeGetStorageImpl(),
                                      Memory{tensor.storage().getWeakStorageImpl(), {}})
                         .first->second;
    // Versions only grow: older ones never come again.
    const auto is_over = [&](const Written& each) {
      return each.version != version || (each.begin >= bytes.begin && each.end <= bytes.end);
    };
    auto& written = memory.written;
    written.erase(std::remove_if(written.begin(), written.end(), is_over), written.end());
    const bool goes_on = !written.empty() && written.back().end == bytes.begin &&
                         written.back().index == index && written.back().writer == writer;
    if (goes_on) {
      written.back().end = bytes.end;
    } else {
      written.push_back({index, writer, bytes.begin, bytes.end, version});
    }
  }
  if (memories_.size() > most_) drop_dead();
}

void WrittenBatch::drop_dead() {
  for (auto entry = memories_.begin(); entry != memories_.end();) {
    entry = entry->second.storage.expired() ? memories_.erase(entry) : std::next(entry);
  }
  most_ = std::max<size_t>(64, 2 * memories_.size());
}

void WrittenBatch::check(const Batch& batch) const {
  if (memories_.empty()) return;
  for (const at::Tensor& tensor : batch) {
    if (!has_memory(tensor)) continue;
    const auto memory = memories_.find(tensor.storage().unsafeGetStorageImpl());
    if (memory == memories_.end() || memory->second.storage.expired()) continue;
    const Bytes bytes = bytes_of(tensor);
    const uint32_t version = version_of(tensor);
    for (const Written& written : memory->second.written) {
      const bool again =
          written.version == version && written.begin < bytes.end && bytes.begin < written.end;
      EPL_CHECK(!again,
                concat("tensor ", written.index,
                       " of the batch is handed in again, and the step writes it in place (",
                       written.writer,
                       "): the plain program would go on with what an earlier step left in it, "
                       "but EPL's steps write copies"),
                "epl::Trainer::step",
                "a copy in the step (batch[i].clone()), the operator that does not write in place, "
                "or a tensor that the step closes over in place of one of the batch");
    }
  }
}

}  // namespace epl

#include "driver/written_batch.h"

#include "base/check.h"
#include "ops/facts.h"

namespace epl {

InputWriters writers_of_inputs(const Graph& graph) {
  std::map<ValueId, size_t> inputs;  // by storage
  for (const Leaf& leaf : graph.leaves) {
    if (leaf.kind == Leaf::Kind::kInput) inputs[leaf.value] = static_cast<size_t>(leaf.index);
  }
  InputWriters writers;
  for (const Node& node : graph.nodes) {
    for (size_t argument : written_arguments(node)) {
      for (ValueId id : node.arguments[argument].values) {
        if (id == kNoValue) continue;
        const auto input = inputs.find(graph.value(id).storage);
        if (input != inputs.end()) writers.emplace(input->second, op_name(node));
      }
    }
  }
  return writers;
}

void WrittenBatch::note(const InputWriters& writers, const Batch& batch) {
  written_.clear();
  for (const auto& [index, writer] : writers) {
    if (index >= batch.size() || !batch[index].has_storage()) continue;
    written_.push_back({index, writer, batch[index].storage().getWeakStorageImpl(),
                        static_cast<uint32_t>(batch[index]._version())});
  }
}

void WrittenBatch::check(const Batch& batch) const {
  for (const Written& written : written_) {
    const auto lives = written.storage.lock();
    for (const at::Tensor& tensor : batch) {
      const bool again = lives && tensor.defined() && tensor.has_storage() &&
                         tensor.storage().unsafeGetStorageImpl() == lives.get() &&
                         static_cast<uint32_t>(tensor._version()) == written.version;
      EPL_CHECK(!again,
                concat("tensor ", written.index,
                       " of the batch is handed in again, and the step writes it in place (",
                       written.writer,
                       "): the plain program would go on with what the last step left in it, but "
                       "EPL's steps write copies"),
                "epl::Trainer::step",
                "a copy in the step (batch[i].clone()), the operator that does not write in place, "
                "or a tensor that the step closes over in place of one of the batch");
    }
  }
}

}  // namespace epl

#include "plan/shared_writes.h"

#include <map>
#include <optional>
#include <set>

#include "base/check.h"
#include "ir/makers.h"
#include "ops/facts.h"

namespace epl {
namespace {

struct Write {
  size_t node = 0;
  int chunk = 0;
  std::optional<ValueId> made;  // what shows it afterwards; none of running statistics
};

class SharedWrites {
 public:
  SharedWrites(Graph& graph, int stages, const std::string& asked_by)
      : graph_(graph), stages_(stages), asked_by_(asked_by), makers_(graph) {
    for (const auto& leaf : graph.leaves) names_[storage(leaf.value)] = leaf.name;
    for (const auto& leaf : graph.leaves) {
      const bool outlives = leaf.kind != Leaf::Kind::kInput && leaf.kind != Leaf::Kind::kSeed;
      if (outlives) state_.insert(storage(leaf.value));
    }
    for (size_t i = 0; i < graph.nodes.size(); ++i) note_writes(i);
  }

  void settle() {
    if (writes_.empty()) return;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) check_reads(i);
    for (auto& metric : graph_.metrics) settle_metric(metric);
  }

 private:
  ValueId storage(ValueId id) const { return graph_.value(id).storage; }

  void note_writes(size_t index) {
    const Node& node = graph_.nodes[index];
    for (size_t argument : written_arguments(node)) {
      for (ValueId id : node.arguments[argument].values) {
        if (id == kNoValue) continue;
        Write write{index, node.chunk, std::nullopt};
        for_each_output(node, [&](ValueId made) {
          if (storage(made) == storage(id)) write.made = made;
        });
        writes_[storage(id)].push_back(write);
      }
    }
  }

  // What a node that writes the same memory reads of it is its own matter: running statistics of a
  // module that two stages use.
  bool writes_itself(const Node& node, ValueId memory) const {
    for (const Write& write : writes_.at(memory)) {
      if (&graph_.nodes[write.node] == &node) return true;
    }
    return false;
  }

  // A tensor that goes to another chunk is handed over as it was when its value was made: who reads
  // it by a name from before the write has it as written only where all three are in one chunk. Who
  // may touch state is asked when memory is bound (runtime/bound_step.h).
  bool misses(const Write& write, size_t reader, ValueId id) const {
    if (state_.count(storage(id)) != 0 || write.node >= reader) return false;
    const auto maker = makers_.index_of(id);
    const bool before = !maker || *maker < write.node;
    const bool together = graph_.nodes[reader].chunk == write.chunk && chunk_of(id) == write.chunk;
    return before && !together;
  }

  int chunk_of(ValueId id) const {
    const Node* const maker = makers_.of(id);
    return maker == nullptr ? 0 : maker->chunk;
  }

  [[noreturn]] void refuse(const Write& write, const std::string& who, int chunk) const {
    const Node& node = graph_.nodes[write.node];
    const auto name = names_.find(storage_written(write));
    throw Error(
        concat(op_name(node), " in stage ", write.chunk % stages_, " writes in place into ",
               name == names_.end() || name->second.empty() ? "a tensor"
                                                            : concat("`", name->second, "`"),
               ", which ", who, " reads in stage ", chunk % stages_,
               ": stages run apart from each other, and it would not see that"),
        asked_by_, "both in one stage, or clone() of it in the stage that writes it");
  }

  ValueId storage_written(const Write& write) const {
    for (const auto& [memory, all] : writes_) {
      for (const Write& each : all) {
        if (&each == &write) return memory;
      }
    }
    return kNoValue;
  }

  void check_reads(size_t index) const {
    const Node& node = graph_.nodes[index];
    for_each_input(node, [&](ValueId id) {
      const auto found = writes_.find(storage(id));
      if (found == writes_.end() || writes_itself(node, storage(id))) return;
      for (const Write& write : found->second) {
        if (misses(write, index, id)) refuse(write, op_name(node), node.chunk);
      }
    });
  }

  void settle_metric(Metric& metric) const {
    const auto found = writes_.find(storage(metric.value));
    if (found == writes_.end()) return;
    const int chunk = chunk_of(metric.value);
    const Write& last = found->second.back();
    if (last.chunk == chunk) return;
    const bool shows =
        last.made && graph_.value(*last.made).type.same_place(graph_.value(metric.value).type);
    if (!shows) refuse(last, concat("the metric `", metric.name, "`"), chunk);
    metric.value = *last.made;
  }

  Graph& graph_;
  const int stages_;
  const std::string& asked_by_;
  std::map<ValueId, std::string> names_;          // of leaves, by storage
  std::set<ValueId> state_;                       // storages of what outlives the step
  std::map<ValueId, std::vector<Write>> writes_;  // by storage, in order
  const Makers makers_;
};

}  // namespace

void settle_shared_writes(Graph& graph, int stages, const std::string& asked_by) {
  SharedWrites(graph, stages, asked_by).settle();
}

}  // namespace epl

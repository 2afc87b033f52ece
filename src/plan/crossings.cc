#include "plan/crossings.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "ir/makers.h"
#include "ops/facts.h"

namespace epl {
namespace {

// By node: whether a node of another chunk needs it, through whatever nodes of its own chunk.
// Guards and writes of state, which have no reader, count as needed.
std::vector<bool> needed_elsewhere(const Graph& graph) {
  const Makers makers(graph);
  std::vector<bool> needed(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    bool has_results = false;
    for_each_output(node, [&](ValueId) { has_results = true; });
    if (!has_results || node.expects) needed[i] = true;
    for_each_input(node, [&](ValueId id) {
      const auto maker = makers.index_of(id);
      if (!maker) return;
      if (graph.nodes[*maker].chunk != node.chunk || needed[i]) needed[*maker] = true;
    });
  }
  return needed;
}

}  // namespace

std::string name_of(const ChunkTask& task) {
  const char* const names[] = {"forward ", "backward ", "weights "};
  return concat(names[static_cast<size_t>(task.kind)], task.chunk);
}

std::vector<ChunkTask> tasks_of_nodes(const Graph& graph, bool splits_backward) {
  const std::vector<bool> needed = needed_elsewhere(graph);
  std::vector<ChunkTask> tasks;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    Task::Kind kind = Task::Kind::kForward;
    if (node.phase == Phase::kBackward) {
      kind = splits_backward && !needed[i] ? Task::Kind::kWeights : Task::Kind::kBackward;
    }
    tasks.push_back({kind, node.chunk});
  }
  return tasks;
}

std::vector<Crossing> find_crossings(const Graph& graph, const std::vector<ChunkTask>& tasks) {
  std::set<ValueId> batch;
  std::set<ValueId> everywhere;  // storages
  for (const auto& leaf : graph.leaves) {
    if (leaf.kind == Leaf::Kind::kInput) {
      batch.insert(leaf.value);
    } else {
      everywhere.insert(graph.value(leaf.value).storage);
    }
  }
  const Makers makers(graph);
  // By value and reading chunk: the first task that reads it.
  std::map<std::pair<ValueId, int>, ChunkTask> readers;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for_each_input(graph.nodes[i], [&](ValueId id) {
      const auto reader = readers.emplace(std::make_pair(id, tasks[i].chunk), tasks[i]).first;
      reader->second = std::min(reader->second, tasks[i]);
    });
  }
  std::map<std::pair<ChunkTask, ChunkTask>, std::vector<ValueId>> found;
  for (const auto& [key, reader] : readers) {
    const ValueId id = key.first;
    const auto maker = makers.index_of(id);
    if (everywhere.count(graph.value(id).storage) != 0) continue;
    if (!maker && batch.count(id) == 0) continue;
    const ChunkTask from = maker ? tasks[*maker] : ChunkTask{};
    if (from.chunk != reader.chunk) found[{from, reader}].push_back(id);
  }
  std::vector<Crossing> crossings;
  for (auto& [ends, values] : found) crossings.push_back({ends.first, ends.second, values});
  return crossings;
}

}  // namespace epl

#include "passes/assign_chunks.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace epl {
namespace {

constexpr int kUndecided = -1;
constexpr int kNone = std::numeric_limits<int>::max();

class Assignment {
 public:
  explicit Assignment(Graph& graph)
      : graph_(graph),
        taskgraphs_(static_cast<int>(graph.taskgraphs.size())),
        makers_(static_cast<size_t>(graph.value_count()), nullptr) {}

  void run() {
    for (auto& node : graph_.nodes) {
      node.chunk = node.phase == Phase::kForward ? forward(node) : backward(node);
      for_each_output(node, [&](ValueId id) { makers_[static_cast<size_t>(id)] = &node; });
    }
    decide_by_readers();
    check_flow();
  }

 private:
  // The first chunk of the TaskGraph that is not before `least`, and the last not behind `most`.
  int first_from(int least, int taskgraph) const {
    int chunk = taskgraph;
    while (chunk < least) chunk += taskgraphs_;
    return chunk;
  }
  int last_until(int most, int taskgraph) const {
    return most - (most - taskgraph % taskgraphs_ + taskgraphs_) % taskgraphs_;
  }

  // The latest chunk among the node's inputs of the forward phase.
  int latest_forward_input(const Node& node) const {
    int latest = kUndecided;
    for_each_input(node, [&](ValueId id) {
      const Node* maker = makers_[static_cast<size_t>(id)];
      if (maker != nullptr && maker->phase == Phase::kForward) {
        latest = std::max(latest, maker->chunk);
      }
    });
    return latest;
  }

  int forward(const Node& node) const {
    const int latest = latest_forward_input(node);
    return node.taskgraph < 0 ? latest : first_from(latest, node.taskgraph);
  }

  int backward(const Node& node) const {
    int earliest_gradient = kNone;
    for_each_input(node, [&](ValueId id) {
      const Node* maker = makers_[static_cast<size_t>(id)];
      if (maker == nullptr || maker->phase == Phase::kForward || maker->chunk == kUndecided) return;
      earliest_gradient = std::min(earliest_gradient, maker->chunk);
    });
    const int saved = latest_forward_input(node);
    if (node.taskgraph < 0) {
      const int chunk = std::min(earliest_gradient, saved < 0 ? kNone : saved);
      return chunk == kNone ? kUndecided : chunk;
    }
    if (earliest_gradient == kNone && saved < 0) return kUndecided;
    const int own = saved < 0 ? kNone : first_from(saved, node.taskgraph);
    if (earliest_gradient == kNone) return own;
    return std::min(own, last_until(earliest_gradient, node.taskgraph));
  }

  // What reads nothing that has a chunk joins its readers: the first one forward, the last one (in
  // the order of chunks) backward.
  void decide_by_readers() {
    std::vector<int> wanted(static_cast<size_t>(graph_.value_count()), kUndecided);
    for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
      if (node->chunk == kUndecided) decide(*node, wanted);
      for_each_input(*node, [&](ValueId id) {
        const Node* maker = makers_[static_cast<size_t>(id)];
        if (maker == nullptr || maker->phase != node->phase) return;
        int& want = wanted[static_cast<size_t>(id)];
        const bool first = node->phase == Phase::kForward;
        want = want == kUndecided
                   ? node->chunk
                   : (first ? std::min(want, node->chunk) : std::max(want, node->chunk));
      });
    }
  }

  void decide(Node& node, const std::vector<int>& wanted) const {
    int chunk = kUndecided;
    for_each_output(node, [&](ValueId id) {
      const int want = wanted[static_cast<size_t>(id)];
      if (want == kUndecided) return;
      if (chunk == kUndecided) chunk = want;
      chunk = node.phase == Phase::kForward ? std::min(chunk, want) : std::max(chunk, want);
    });
    node.chunk = chunk == kUndecided ? std::max(node.taskgraph, 0) : chunk;
  }

  void check_flow() const {
    for (const auto& node : graph_.nodes) {
      EPL_ASSERT(node.chunk >= 0, concat(op_name(node), " has no chunk"));
      for_each_input(node, [&](ValueId id) {
        const Node* maker = makers_[static_cast<size_t>(id)];
        if (maker == nullptr || maker->phase != node.phase) return;
        const bool flows =
            node.phase == Phase::kForward ? maker->chunk <= node.chunk : maker->chunk >= node.chunk;
        EPL_ASSERT(flows, concat("a value goes from ", op_name(*maker), " in chunk ", maker->chunk,
                                 " to ", op_name(node), " in chunk ", node.chunk));
      });
    }
  }

  Graph& graph_;
  const int taskgraphs_;
  std::vector<const Node*> makers_;  // by value; null for leaves
};

}  // namespace

bool AssignChunks::run(Graph& graph) {
  EPL_ASSERT(!graph.taskgraphs.empty(), "a pipeline has TaskGraphs");
  Assignment(graph).run();
  return true;
}

int chunk_count(const Graph& graph) {
  int last = 0;
  for (const auto& node : graph.nodes) last = std::max(last, node.chunk);
  const auto taskgraphs = static_cast<int>(graph.taskgraphs.size());
  return (last / taskgraphs + 1) * taskgraphs;
}

}  // namespace epl

#include "passes/assign_chunks.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/check.h"
#include "ir/makers.h"

namespace epl {
namespace {

constexpr int kUndecided = -1;
constexpr int kNone = std::numeric_limits<int>::max();

class Assignment {
 public:
  explicit Assignment(Graph& graph)
      : graph_(graph), taskgraphs_(static_cast<int>(graph.taskgraphs.size())), makers_(graph) {}

  void run() {
    for_each_in(Phase::kForward, [&](Node& node) {
      node.chunk = forward(node);
      if (is_free(node)) free_.insert(&node);
    });
    decide_by_readers(Phase::kForward);
    for_each_in(Phase::kForward, [&](Node& node) {
      int& chunk = chunk_of_call_.emplace(node.origin.call, node.chunk).first->second;
      chunk = std::max(chunk, node.chunk);
    });
    for_each_in(Phase::kBackward, [&](Node& node) { node.chunk = backward(node); });
    decide_by_readers(Phase::kBackward);
    check_flow();
  }

 private:
  template <typename Visit>
  void for_each_in(Phase phase, const Visit& visit) {
    for (auto& node : graph_.nodes) {
      if (node.phase == phase) visit(node);
    }
  }

  // The first chunk of the TaskGraph that is not before `least`, and the last not behind `most`.
  int first_from(int least, int taskgraph) const {
    int chunk = taskgraph;
    while (chunk < least) chunk += taskgraphs_;
    return chunk;
  }
  int last_until(int most, int taskgraph) const {
    return most - (most - taskgraph % taskgraphs_ + taskgraphs_) % taskgraphs_;
  }

  // Whether it comes from parameters, constants and the batch without another TaskGraph in between,
  // so that any chunk of its TaskGraph can do it, or any chunk at all where it has none.
  bool is_free(const Node& node) const {
    bool free = true;
    for_each_input(node, [&](ValueId id) {
      const Node* maker = makers_.of(id);
      if (maker == nullptr) return;
      const bool beside = maker->taskgraph < 0 || maker->taskgraph == node.taskgraph;
      free &= free_.count(maker) != 0 && beside;
    });
    return free;
  }

  int forward(const Node& node) const {
    int latest = kUndecided;
    for_each_input(node, [&](ValueId id) {
      if (const Node* maker = makers_.of(id)) latest = std::max(latest, maker->chunk);
    });
    return node.taskgraph < 0 ? latest : first_from(latest, node.taskgraph);
  }

  // That of its forward where it is known, else the latest of the values that its forward saved.
  // What is free says nothing: the second chunk of a TaskGraph may read what the first made.
  int forward_of(const Node& node) const {
    const auto known = chunk_of_call_.find(node.origin.call);
    if (node.origin.call >= 0 && known != chunk_of_call_.end()) return known->second;
    int latest = kUndecided;
    for_each_input(node, [&](ValueId id) {
      const Node* maker = makers_.of(id);
      if (maker != nullptr && maker->phase == Phase::kForward && free_.count(maker) == 0) {
        latest = std::max(latest, maker->chunk);
      }
    });
    return latest;
  }

  int backward(const Node& node) const {
    int earliest_gradient = kNone;
    for_each_input(node, [&](ValueId id) {
      const Node* maker = makers_.of(id);
      if (maker == nullptr || maker->phase == Phase::kForward || maker->chunk == kUndecided) return;
      earliest_gradient = std::min(earliest_gradient, maker->chunk);
    });
    const int saved = forward_of(node);
    if (node.taskgraph < 0) {
      const int chunk = std::min(earliest_gradient, saved < 0 ? kNone : saved);
      return chunk == kNone ? kUndecided : chunk;
    }
    if (earliest_gradient == kNone && saved < 0) return kUndecided;
    const int own = saved < 0 ? kNone : first_from(saved, node.taskgraph);
    if (earliest_gradient == kNone) return own;
    return std::min(own, last_until(earliest_gradient, node.taskgraph));
  }

  // What reads nothing that has a chunk joins its readers of the same phase: the first one forward,
  // the last one (in the order of chunks) backward.
  void decide_by_readers(Phase phase) {
    std::vector<int> wanted(static_cast<size_t>(graph_.value_count()), kUndecided);
    for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
      if (node->phase != phase) continue;
      if (node->chunk == kUndecided || free_.count(&*node) != 0) decide(*node, wanted);
      for_each_input(*node, [&](ValueId id) {
        int& want = wanted[static_cast<size_t>(id)];
        want = first_wish(phase, want, node->chunk);
      });
    }
  }

  static int first_wish(Phase phase, int a, int b) {
    if (a == kUndecided || b == kUndecided) return std::max(a, b);
    return phase == Phase::kForward ? std::min(a, b) : std::max(a, b);
  }

  void decide(Node& node, const std::vector<int>& wanted) const {
    int chunk = kUndecided;
    for_each_output(node, [&](ValueId id) {
      chunk = first_wish(node.phase, chunk, wanted[static_cast<size_t>(id)]);
    });
    if (chunk == kUndecided) {
      node.chunk = std::max({node.chunk, node.taskgraph, 0});
    } else if (node.taskgraph < 0) {
      node.chunk = chunk;
    } else {
      node.chunk = node.phase == Phase::kForward
                       ? std::max(node.chunk, last_until(chunk, node.taskgraph))
                       : first_from(chunk, node.taskgraph);
    }
  }

  // What one stage writes in place into a value of another one can have gradients that autograd
  // brings back and forth between them.
  void check_flow() const {
    for (const auto& node : graph_.nodes) {
      EPL_ASSERT(node.chunk >= 0, concat(op_name(node), " has no chunk"));
      for_each_input(node, [&](ValueId id) {
        const Node* maker = makers_.of(id);
        if (maker == nullptr || maker->phase != node.phase) return;
        const bool flows =
            node.phase == Phase::kForward ? maker->chunk <= node.chunk : maker->chunk >= node.chunk;
        EPL_CHECK(flows,
                  concat("the ", node.phase == Phase::kForward ? "forward" : "backward",
                         " pass would go against the stages of the pipeline: a value goes from ",
                         op_name(*maker), " in stage ", maker->chunk % taskgraphs_, " to ",
                         op_name(node), " in stage ", node.chunk % taskgraphs_),
                  graph_.taskgraphs[static_cast<size_t>(node.chunk % taskgraphs_)].asked_by(),
                  "no writes in place in one scope into what another scope has made: clone() it "
                  "first, or do both in one scope");
      });
    }
  }

  Graph& graph_;
  const int taskgraphs_;
  const Makers makers_;
  std::set<const Node*> free_;
  std::map<int, int> chunk_of_call_;  // by Origin::call, of the forward nodes
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

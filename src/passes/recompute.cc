#include "passes/recompute.h"

#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "base/check.h"
#include "ir/makers.h"
#include "ops/facts.h"

namespace epl {
namespace {

class Rewriter {
 public:
  Rewriter(Graph& graph, const std::vector<size_t>& nodes)
      : graph_(graph), makers_(graph), values_(graph.value_count()) {
    for (size_t index : nodes) {
      for_each_output(graph.nodes[index], [&](ValueId id) { again_[id] = index; });
    }
  }

  bool run() {
    std::vector<Node> recorded = std::move(graph_.nodes);
    recorded_ = &recorded;
    const size_t before = recorded.size();
    // Nodes are copied: makers of what is cloned are looked up among them.
    for (const Node& node : recorded) {
      Node own = node;
      if (own.phase == Phase::kBackward) read_clones(own);
      graph_.nodes.push_back(std::move(own));
    }
    const bool changed = graph_.nodes.size() != before;
    drop_unread();
    return changed;
  }

 private:
  // What forward made for backward alone, and views of it: nobody reads them any more. Nothing else
  // goes, so that graphs of devices that run collectives together stay alike.
  void drop_unread() {
    std::set<ValueId> read;
    for_each_returned(graph_, [&](ValueId id) { read.insert(id); });
    std::vector<Node> kept;
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      Node& node = graph_.nodes[i];
      bool any = false;
      bool unread = node.phase == Phase::kForward;
      for_each_output(node, [&](ValueId id) {
        any = true;
        unread &= read.count(id) == 0 && again_.count(graph_.value(id).storage) != 0;
      });
      if (any && unread) continue;
      for_each_input(node, [&](ValueId id) { read.insert(id); });
      kept.push_back(std::move(node));
    }
    graph_.nodes.assign(std::make_move_iterator(kept.rbegin()),
                        std::make_move_iterator(kept.rend()));
  }

  void read_clones(Node& node) {
    for_each_input(node, [&](ValueId& id) { id = clone_of(id, node.chunk); });
    // What a view shows is where the clone lies.
    for_each_output(node, [&](ValueId id) {
      const auto moved = clones_.find(graph_.value(id).storage);
      if (moved != clones_.end() && moved->first != id && shares(node, moved->second)) {
        graph_.value(id).storage = moved->second;
      }
    });
  }

  bool shares(const Node& node, ValueId storage) const {
    bool found = false;
    for_each_input(node, [&](ValueId id) { found |= graph_.value(id).storage == storage; });
    return found;
  }

  // The value as it is made again, or itself.
  ValueId clone_of(ValueId id, int chunk) {
    const auto maker = to_clone(id, chunk);
    if (!maker) return id;
    if (clones_.count(id) == 0) clone(*maker);
    return clones_.at(id);
  }

  // The node that has to run again for a reader in this chunk; none where the value stays.
  std::optional<size_t> to_clone(ValueId id, int chunk) const {
    if (id >= values_ || again_.count(graph_.value(id).storage) == 0) return std::nullopt;
    const auto maker = makers_.index_of(id);
    const bool here = maker && (*recorded_)[*maker].chunk == chunk &&
                      (*recorded_)[*maker].phase == Phase::kForward &&
                      chunk_of_storage(id) == chunk;
    return here ? maker : std::nullopt;
  }

  int chunk_of_storage(ValueId id) const {
    return (*recorded_)[again_.at(graph_.value(id).storage)].chunk;
  }

  // A node or view, behind the clones of what it reads. Without recursion: a chain is as long as a
  // network is deep.
  void clone(size_t index) {
    std::vector<size_t> open{index};
    while (!open.empty()) {
      const Node form = repeated_form((*recorded_)[open.back()]);
      std::optional<size_t> missing;
      for_each_input(form, [&](ValueId id) {
        if (const auto maker = to_clone(id, form.chunk); maker && clones_.count(id) == 0) {
          missing = maker;
        }
      });
      if (missing) {
        open.push_back(*missing);
      } else {
        EPL_ASSERT(is_chosen(open.back()) || is_view(graph_, form),
                   concat(op_name(form), " shares memory with what runs again, and is no view"));
        open.pop_back();
        append_clone(form);
      }
    }
  }

  bool is_chosen(size_t index) const {
    bool any = false;
    for_each_output((*recorded_)[index], [&](ValueId id) {
      const auto found = again_.find(id);
      any |= found != again_.end() && found->second == index;
    });
    return any;
  }

  void append_clone(Node node) {
    node.phase = Phase::kBackward;
    for_each_input(node, [&](ValueId& id) {
      const auto made = clones_.find(id);
      if (made != clones_.end() && to_clone(id, node.chunk)) id = made->second;
    });
    for_each_output(node, [&](ValueId& id) {
      const Value recorded = graph_.value(id);
      const bool has_own = recorded.storage == id;
      const ValueId storage = has_own ? kNoValue : clones_.at(recorded.storage);
      id = clones_[id] = graph_.add_value(recorded.type, storage);
    });
    graph_.nodes.push_back(std::move(node));
  }

  Graph& graph_;
  const Makers makers_;
  const ValueId values_;               // how many there were
  std::map<ValueId, size_t> again_;    // storage -> node
  std::map<ValueId, ValueId> clones_;  // value -> as it is made again
  const std::vector<Node>* recorded_ = nullptr;
};

}  // namespace

bool Recompute::run(Graph& graph) { return Rewriter(graph, nodes_).run(); }

}  // namespace epl
